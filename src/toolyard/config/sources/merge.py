"""Merge layers by id into one configuration, expand variables, and check references between entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from toolyard.config.entries.allowlists import report_bare_stars
from toolyard.config.entries.raw_entries import ConfigLayer, RawBundle, RawServer
from toolyard.config.sources.server_variables import resolve_variables
from toolyard.config.suggestions import did_you_mean
from toolyard.errors import ConfigError, Problem
from toolyard.types.server import Bundle, Configuration, Server, StdioSpec, Trust

__all__ = ["all_problems", "check_references", "merge_layers"]


_INVALID_ENTRY_HINT = "correct the entry; the other servers are not affected"


def check_references(servers: Mapping[str, RawServer], bundles: Mapping[str, RawBundle]) -> None:
    """Report problems between merged entries, each at the entry that has to change."""
    bundles_by_server: dict[str, list[Bundle]] = {}
    for raw in bundles.values():
        if raw.server_id is None:
            continue
        target = servers.get(raw.server_id)
        if target is None:
            raw.report.add_problem(
                (*raw.path, "serverId"),
                f"unknown server '{raw.server_id}'",
                hint=did_you_mean(raw.server_id, servers),
            )
            continue
        if raw.bundle is None:
            continue
        bundles_by_server.setdefault(raw.bundle.server_id, []).append(raw.bundle)
        if target.server is not None and target.server.trust is Trust.UNTRUSTED:
            _check_untrusted_bundle(raw, raw.bundle)
    for server_id, raw in servers.items():
        if raw.server is not None and raw.server.trust is Trust.UNTRUSTED:
            _check_untrusted_server(raw, raw.server, bundles_by_server.get(server_id, []))


def _check_untrusted_bundle(raw: RawBundle, bundle: Bundle) -> None:
    report_bare_stars(bundle.allow_tools, raw.path, raw.report)
    if bundle.mode == "direct":
        raw.report.add_problem(
            (*raw.path, "mode"),
            f'expected "meta", found "direct": the server \'{bundle.server_id}\' is untrusted',
            hint="models use an untrusted server through meta mode only",
        )


def _check_untrusted_server(raw: RawServer, server: Server, bundles: list[Bundle]) -> None:
    if server.allow_tools is not None:
        return
    if bundles and all(bundle.allow_tools is not None for bundle in bundles):
        return
    raw.report.add_problem(
        raw.path,
        "an untrusted server needs 'allowTools', on the server or on each of its bundles; found neither",
        hint='add "allowTools" with the names of the tools you need',
        at_key=True,
    )


def merge_layers(
    layers: Sequence[ConfigLayer],
    env: Mapping[str, str],
    *,
    file: str | None = None,
    waiting: str | None = None,
    unapproved_reason: str | None = None,
    hints: Sequence[Problem] = (),
    complete: bool = True,
) -> Configuration:
    """Merge ``layers`` in order of increasing precedence: an entry replaces an earlier one with the same id.

    ``unapproved_reason`` is the ``disabled_reason`` of the servers of a layer that is not approved. Unless
    ``complete``, further layers are missing, so entries may refer to ids that do not exist. Raises
    ConfigError with the problems of all layers.
    """
    raw_servers: dict[str, RawServer] = {}
    raw_bundles: dict[str, RawBundle] = {}
    unapproved_reasons: dict[str, str | None] = {}
    folders: dict[str, Path | None] = {}
    for layer in layers:
        raw_servers |= layer.servers
        raw_bundles |= layer.bundles
        unapproved_reasons |= dict.fromkeys(layer.servers, None if layer.approved else unapproved_reason)
        folders |= dict.fromkeys(layer.servers, layer.folder)

    servers: dict[str, Server] = {}
    for server_id, raw in raw_servers.items():
        if raw.server is not None:
            server = resolve_variables(raw, raw.server, env, unapproved_reason=unapproved_reasons[server_id])
            servers[server_id] = _resolve_paths(server, folders[server_id])
        elif raw.fallback is not None:
            servers[server_id] = raw.fallback
    # The entries of a source with invalid JSON are unknown, so a missing server may be defined there.
    if complete and not any(layer.broken for layer in layers):
        check_references(raw_servers, raw_bundles)

    reports = [layer.report for layer in layers]
    if any(report.problems for report in reports):
        raise ConfigError([problem for layer in layers for problem in all_problems(layer)])
    invalid_hints: list[Problem] = []
    for server_id, raw in ((key, raw) for layer in layers for key, raw in layer.servers.items()):
        if raw.fallback is None or not raw.report.problems:
            continue
        if raw is raw_servers[server_id] and raw.fallback.enabled:
            servers[server_id] = _disable_invalid_server(servers[server_id], raw.report.problems)
        else:
            # Nothing uses an entry that is turned off, or replaced by another source.
            invalid_hints += raw.report.problems
    return Configuration(
        servers=MappingProxyType(servers),
        bundles=MappingProxyType({key: raw.bundle for key, raw in raw_bundles.items() if raw.bundle}),
        hints=(*hints, *(hint for report in reports for hint in report.hints), *invalid_hints),
        file=file,
        waiting=waiting,
    )


def all_problems(layer: ConfigLayer) -> Iterator[Problem]:
    """Yield the problems of a layer, then those of entries that fail alone."""
    yield from layer.report.problems
    for raw in layer.servers.values():
        if raw.fallback is not None:
            yield from raw.report.problems


def _resolve_paths(server: Server, folder: Path | None) -> Server:
    """Let a stdio server run in ``folder``: its ``cwd`` and a command that is a path are relative to it."""
    spec = server.transport
    if folder is None or not isinstance(spec, StdioSpec):
        return server
    command = str(folder / spec.command) if "/" in spec.command else spec.command
    return replace(server, transport=replace(spec, command=command, cwd=str(folder / (spec.cwd or ""))))


def _disable_invalid_server(server: Server, problems: Sequence[Problem]) -> Server:
    reasons = "; ".join(f"{problem.path}: {problem.message}" for problem in problems)
    problems = [replace(problem, hint=problem.hint or _INVALID_ENTRY_HINT) for problem in problems]
    return replace(
        server, enabled=False, disabled_reason=f"its entry is invalid: {reasons}", problems=tuple(problems)
    )
