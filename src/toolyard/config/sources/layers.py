"""One source of configuration, from text or mapping to checked entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, cast

from toolyard.config.entries.bundles import read_bundle
from toolyard.config.entries.checked_object import Entry
from toolyard.config.entries.identifiers import id_fault
from toolyard.config.entries.raw_entries import Layer
from toolyard.config.entries.servers import compatible_server, strict_server
from toolyard.config.problem_report import Report, kind_of
from toolyard.config.sources.json_document import JsonValue, Steps, path_text
from toolyard.config.sources.json_reader import MAX_DEPTH, read_json
from toolyard.errors import ConfigError, Problem

__all__ = ["layer_from_mapping", "layer_from_text"]

Source = Literal["file", "environment", "overrides", "code"]

_OF_OTHERS = {"mcp": "opencode", "context_servers": "Zed", "inputs": "VS Code"}
"""Keys at the top that other clients write, which ``toolyard import`` reads."""


def layer_from_text(text: str, source: Source, *, name: str | None = None, approved: bool = True) -> Layer:
    """Read JSON text. Nothing is raised: what is wrong stands in the layer's report."""
    report = Report(source, name)
    try:
        report.document = read_json(text, file=name)
    except ConfigError as error:
        report.problems += error.problems
        return Layer(report, broken=True, approved=approved)
    report.problems += report.document.duplicates
    return _read(report.document.root, Layer(report, approved=approved))


def layer_from_mapping(mapping: Mapping[str, object], source: Source, *, name: str | None = None) -> Layer:
    """Read a mapping that a caller made. Its lists may be tuples, its objects any mapping."""
    report = Report(source, name)
    try:
        root = _plain(mapping, (), name)
    except ConfigError as error:
        report.problems += error.problems
        return Layer(report, broken=True)
    return _read(root, Layer(report))


def _plain(value: object, path: Steps, name: str | None) -> JsonValue:
    if len(path) > MAX_DEPTH:
        message = f"more than {MAX_DEPTH} objects and lists stand inside each other"
        raise ConfigError([Problem(message, file=name, path=path_text(path[:3]))])
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {_key(key, path, name): _plain(item, (*path, str(key)), name) for key, item in items}
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        items = cast("Sequence[object]", value)
        return [_plain(item, (*path, index), name) for index, item in enumerate(items)]
    message = f"expected what JSON can say, found a Python {type(value).__name__}"
    raise ConfigError([Problem(message, file=name, path=path_text(path))])


def _key(key: object, path: Steps, name: str | None) -> str:
    if isinstance(key, str):
        return key
    message = f"expected keys that are strings, found a Python {type(key).__name__}"
    raise ConfigError([Problem(message, file=name, path=path_text(path))])


def _read(root: JsonValue, layer: Layer) -> Layer:
    report = layer.report
    if not isinstance(root, dict):
        report.problem((), f"expected an object at the top, found {kind_of(root)}")
        return layer
    # Other clients keep more in such a file, so only one that speaks our own dialect is read strictly.
    strict = "servers" in root or "mcpServers" not in root
    top = Entry(root, (), report, strict=strict)
    top.get("$schema")
    for server_id, entry in _entries(top, "servers", strict=True):
        layer.servers[server_id] = strict_server(server_id, entry)
    for server_id, entry in _entries(top, "mcpServers", strict=False):
        if server_id in layer.servers:
            report.problem(
                entry.path, "the same id stands under 'servers'", hint="keep one of the two", key=True
            )
        layer.servers[server_id] = compatible_server(server_id, entry)
    for bundle_id, entry in _entries(top, "bundles", strict=True):
        layer.bundles[bundle_id] = read_bundle(bundle_id, entry)
    for key in [key for key in _OF_OTHERS if strict and key in root]:
        top.get(key)
        hint = "`toolyard import` reads that, with the path of the file"
        report.problem((key,), f"unknown key; {_OF_OTHERS[key]} writes it", hint=hint, key=True)
    top.finish()
    return layer


def _entries(top: Entry, key: str, *, strict: bool) -> list[tuple[str, Entry]]:
    table = top.get(key)
    if key not in top.value:
        return []
    if not isinstance(table, dict):
        top.wrong(key, "an object of entries by id", table)
        return []
    entries: list[tuple[str, Entry]] = []
    for identifier, value in table.items():
        path = (key, identifier)
        fault = id_fault(identifier)
        if fault is not None:
            top.report.problem(path, fault, key=True)
        if isinstance(value, dict):
            entries.append((identifier, Entry(value, path, top.report, strict=strict)))
        else:
            top.report.problem(path, f"expected an object, found {kind_of(value)}")
    return entries
