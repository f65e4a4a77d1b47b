"""Parse one source of configuration, a text or a mapping, into checked entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, cast

from toolyard.config.entries.checked_object import CheckedObject
from toolyard.config.entries.identifiers import assign_valid_ids, id_fault
from toolyard.config.entries.raw_entries import ConfigLayer
from toolyard.config.entries.servers import (
    invalid_compatible_server,
    read_bundle,
    read_compatible_server,
    read_strict_server,
)
from toolyard.config.problem_report import ProblemReport, describe_type
from toolyard.config.sources.json_document import JsonDocument, JsonPath, JsonValue, format_path
from toolyard.config.sources.json_reader import MAX_JSON_DEPTH, read_json
from toolyard.errors import ConfigError, Problem

__all__ = ["layer_from_mapping", "layer_from_text"]

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
