"""Parse each source of configuration, merge the entries by id, expand variables, and check references."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal, cast

from toolyard.config.entries.checked_object import CheckedObject, ProblemReport, describe_type
from toolyard.config.entries.identifiers import assign_valid_ids, id_fault
from toolyard.config.entries.servers import (
    ConfigLayer,
    RawBundle,
    UnexpandedServer,
    invalid_compatible_server,
    read_bundle,
    read_compatible_server,
    read_strict_server,
    report_bare_stars,
)
from toolyard.config.sources.json_document import (
    MAX_JSON_DEPTH,
    JsonDocument,
    JsonPath,
    JsonValue,
    format_path,
    read_json,
)
from toolyard.config.sources.server_variables import resolve_variables
from toolyard.config.suggestions import did_you_mean
from toolyard.errors import ConfigError, Problem
from toolyard.types.server import Bundle, Configuration, Server, StdioSpec, Trust

__all__ = ["all_problems", "check_references", "layer_from_mapping", "layer_from_text", "merge_layers"]


LayerSource = Literal["file", "environment", "overrides", "code"]

_OTHER_CLIENT_KEYS = {"mcp": "opencode", "context_servers": "Zed", "inputs": "VS Code"}
"""Top-level keys of other clients, whose files ``toolyard import`` can convert."""


def layer_from_text(
    text: str,
    source: LayerSource,
    *,
    name: str | None = None,
    approved: bool = True,
    folder: Path | None = None,
) -> ConfigLayer:
    """Parse JSON text. Raises nothing: problems are in the report of the layer.

    ``folder`` is the project folder of a discovered file.
    """
    report = ProblemReport(source, name)
    try:
        report.document = read_json(text, file=name)
    except ConfigError as error:
        report.problems += error.problems
        return ConfigLayer(report, broken=True, approved=approved, folder=folder)
    return _read_layer(report.document.root, ConfigLayer(report, approved=approved, folder=folder))


def layer_from_mapping(
    mapping: Mapping[str, object], source: LayerSource, *, name: str | None = None
) -> ConfigLayer:
    """Parse a mapping passed by a caller. It may contain tuples for lists, and any mapping for objects."""
    report = ProblemReport(source, name)
    try:
        root = _to_json_value(mapping, (), name)
    except ConfigError as error:
        report.problems += error.problems
        return ConfigLayer(report, broken=True)
    return _read_layer(root, ConfigLayer(report))


def _to_json_value(value: object, path: JsonPath, name: str | None) -> JsonValue:
    if len(path) > MAX_JSON_DEPTH:
        message = f"objects and lists are nested more than {MAX_JSON_DEPTH} levels deep"
        raise ConfigError([Problem(message, file=name, path=format_path(path[:3]))])
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {
            _require_string_key(key, path, name): _to_json_value(item, (*path, str(key)), name)
            for key, item in items
        }
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        items = cast("Sequence[object]", value)
        return [_to_json_value(item, (*path, index), name) for index, item in enumerate(items)]
    message = f"expected a JSON value, found a Python {type(value).__name__}"
    raise ConfigError([Problem(message, file=name, path=format_path(path))])


def _require_string_key(key: object, path: JsonPath, name: str | None) -> str:
    if isinstance(key, str):
        return key
    message = f"expected string keys, found a Python {type(key).__name__}"
    raise ConfigError([Problem(message, file=name, path=format_path(path))])


def _read_layer(root: JsonValue, layer: ConfigLayer) -> ConfigLayer:
    report = layer.report
    if not isinstance(root, dict):
        report.add_problem((), f"expected an object at the top level, found {describe_type(root)}")
        return layer
    # Other clients store further data in a file with "mcpServers", so unknown keys are problems only in a
    # file in our own dialect.
    strict = "servers" in root or "mcpServers" not in root
    top = CheckedObject(root, (), report, strict=strict)
    top.get("$schema")
    for server_id, entry in _read_entries(top, "servers", strict=True):
        layer.servers[server_id] = read_strict_server(server_id, entry)
    ids = _read_compatible_servers(top, layer)
    for bundle_id, entry in _read_entries(top, "bundles", strict=True):
        layer.bundles[bundle_id] = read_bundle(bundle_id, entry, ids)
    if report.document is not None:
        in_entries = {problem for raw in layer.servers.values() for problem in raw.report.problems}
        report.problems += [each for each in report.document.duplicate_keys if each not in in_entries]
    # Only if strict: "mcp" beside "mcpServers" is legitimate in files of other clients.
    for key in [key for key in _OTHER_CLIENT_KEYS if strict and key in root]:
        top.get(key)
        hint = "convert the file with `toolyard import`"
        report.add_problem((key,), f"unknown key, used by {_OTHER_CLIENT_KEYS[key]}", hint=hint, at_key=True)
    top.report_unknown_keys()
    return layer


def _read_entries(top: CheckedObject, key: str, *, strict: bool) -> list[tuple[str, CheckedObject]]:
    table = top.get(key)
    if key not in top.value:
        return []
    if not isinstance(table, dict):
        top.report_mismatch(key, "an object of entries by id", table)
        return []
    entries: list[tuple[str, CheckedObject]] = []
    for identifier, value in table.items():
        path = (key, identifier)
        # An entry with an invalid id is still parsed, so that its other problems are reported as well.
        fault = id_fault(identifier)
        if fault is not None and strict:
            top.report.add_problem(path, fault, at_key=True)
        # An invalid entry of other clients' dialect fails alone, so its problems are collected apart.
        report = top.report if strict else top.report.for_entry()
        if isinstance(value, dict):
            entries.append((identifier, CheckedObject(value, path, report, strict=strict)))
            continue
        report.add_problem(path, f"expected an object, found {describe_type(value)}")
        if not strict:
            entries.append((identifier, CheckedObject({}, path, report, strict=False)))
    return entries


def _read_compatible_servers(top: CheckedObject, layer: ConfigLayer) -> dict[str, str]:
    """Add the entries of ``mcpServers`` and return their ids by name: names need not be valid ids."""
    entries = _read_entries(top, "mcpServers", strict=False)
    ids = assign_valid_ids([name for name, _ in entries], layer.servers)
    for name, entry in entries:
        server_id = ids[name]
        if server_id in layer.servers:
            layer.report.add_problem(
                entry.path, "the same id is also under 'servers'", hint="keep one of the two", at_key=True
            )
        if server_id != name:
            hint = "rename it, or convert the file with `toolyard import`"
            layer.report.add_hint(entry.path, f"{id_fault(name)}; used here as '{server_id}'", hint=hint)
        if entry.report.problems:
            raw = invalid_compatible_server(server_id, entry)
        else:
            raw = read_compatible_server(server_id, entry)
        layer.servers[server_id] = raw
        if entry.report.document is not None:
            entry.report.problems += _duplicates_below(entry.path, entry.report.document)
    return ids


def _duplicates_below(path: JsonPath, document: JsonDocument) -> list[Problem]:
    prefix = format_path(path)
    return [
        each
        for each in document.duplicate_keys
        if each.path == prefix or each.path.startswith((f"{prefix}.", f"{prefix}["))
    ]


_INVALID_ENTRY_HINT = "correct the entry; the other servers are not affected"


def check_references(servers: Mapping[str, UnexpandedServer], bundles: Mapping[str, RawBundle]) -> None:
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


def _check_untrusted_server(raw: UnexpandedServer, server: Server, bundles: list[Bundle]) -> None:
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
    raw_servers: dict[str, UnexpandedServer] = {}
    raw_bundles: dict[str, RawBundle] = {}
    unapproved = set[str]()
    folders: dict[str, Path | None] = {}
    for layer in layers:
        raw_servers |= layer.servers
        raw_bundles |= layer.bundles
        unapproved.difference_update(layer.servers)
        if not layer.approved:
            unapproved.update(layer.servers)
        folders |= dict.fromkeys(layer.servers, layer.folder)

    servers: dict[str, Server] = {}
    for server_id, raw in raw_servers.items():
        if raw.server is not None:
            reason = unapproved_reason if server_id in unapproved else None
            server = resolve_variables(raw, raw.server, env, unapproved_reason=reason)
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
        unapproved=frozenset(unapproved),
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
