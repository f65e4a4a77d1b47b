"""Layers become one configuration: merged by id, resolved, and checked against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from toolyard.config.entries.allowlists import report_bare_stars
from toolyard.config.entries.raw_entries import ConfigLayer, RawBundle, RawServer
from toolyard.config.sources.server_variables import resolve_variables
from toolyard.config.suggestions import did_you_mean
from toolyard.errors import ConfigError, Problem
from toolyard.types.config import Configuration
from toolyard.types.server import Bundle, Server, Trust

__all__ = ["check_references", "merge_layers"]


def check_references(servers: Mapping[str, RawServer], bundles: Mapping[str, RawBundle]) -> None:
    """Report what is wrong between the merged entries, each at the entry that has to change."""
    of_server: dict[str, list[Bundle]] = {}
    for draft in bundles.values():
        if draft.bundle is None:
            continue
        target = servers.get(draft.bundle.server_id)
        if target is None:
            draft.report.problem(
                (*draft.path, "serverId"),
                f"there is no server '{draft.bundle.server_id}'",
                hint=did_you_mean(draft.bundle.server_id, servers),
            )
            continue
        of_server.setdefault(draft.bundle.server_id, []).append(draft.bundle)
        if target.server is not None and target.server.trust is Trust.UNTRUSTED:
            _check_untrusted_bundle(draft, draft.bundle)
    for server_id, draft in servers.items():
        if draft.server is not None and draft.server.trust is Trust.UNTRUSTED:
            _check_untrusted_server(draft, draft.server, of_server.get(server_id, []))


def _check_untrusted_bundle(draft: RawBundle, bundle: Bundle) -> None:
    report_bare_stars(bundle.allow_tools, draft.path, draft.report)
    if bundle.mode == "direct":
        draft.report.problem(
            (*draft.path, "mode"),
            f'expected "meta", found "direct": the server \'{bundle.server_id}\' is untrusted',
            hint="models reach an untrusted server through meta mode only",
        )


def _check_untrusted_server(draft: RawServer, server: Server, bundles: list[Bundle]) -> None:
    if server.allow_tools is not None:
        return
    if bundles and all(bundle.allow_tools is not None for bundle in bundles):
        return
    draft.report.problem(
        draft.path,
        "an untrusted server needs 'allowTools', on itself or on every bundle of it; found neither",
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
    """Merge ``layers``, the lowest first: an entry replaces the whole entry of the same id below it.

    ``unapproved`` is what the servers of a layer that is not approved say about themselves. Not ``whole``:
    other layers are left out, so an entry may refer to one that is not here.
    Raises ConfigError with everything that is wrong in any layer.
    """
    drafts: dict[str, RawServer] = {}
    bundles: dict[str, RawBundle] = {}
    reasons: dict[str, str | None] = {}
    for layer in layers:
        drafts |= layer.servers
        bundles |= layer.bundles
        reasons |= dict.fromkeys(layer.servers, None if layer.approved else unapproved_reason)

    servers: dict[str, Server] = {}
    for server_id, draft in drafts.items():
        if draft.server is not None:
            servers[server_id] = resolve_variables(
                draft, draft.server, env, unapproved_reason=reasons[server_id]
            )
    if complete and not any(layer.broken for layer in layers):
        check_references(drafts, bundles)

    reports = [layer.report for layer in layers]
    problems = [problem for report in reports for problem in report.problems]
    if problems:
        raise ConfigError(problems)
    return Configuration(
        servers=MappingProxyType(servers),
        bundles=MappingProxyType({key: draft.bundle for key, draft in bundles.items() if draft.bundle}),
        hints=(*hints, *(hint for report in reports for hint in report.hints)),
        file=file,
        waiting=waiting,
    )
