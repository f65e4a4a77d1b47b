"""Validation of the tools in a listing. Invalid or hostile tools are quarantined one by one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar, cast

import orjson

from toolyard.catalog.token_costs import estimate_tool_tokens
from toolyard.types.tool import Definition, JsonObject, QuarantinedTool, ToolRemark

__all__ = [
    "MAX_NESTING_LEVELS",
    "MAX_TOOL_BYTES",
    "MAX_TOOL_NAME_CHARS",
    "SchemaCheck",
    "ValidatedTools",
    "validate_tools",
]

_T = TypeVar("_T")
MAX_TOOL_NAME_CHARS = 256
"""MCP recommends at most 128 characters. Longer names work too, under a shortened exposed name."""
MAX_NESTING_LEVELS = 252
"""Maximum depth of objects and arrays in one tool. orjson writes up to 254 levels, and a listing adds two
around each tool: a listing written by orjson therefore has no tool that is too deep, and the check can be
skipped."""
MAX_TOOL_BYTES = 512 * 1024
"""Maximum size of one tool as JSON, more than any model can use. Describing a tool, converting its schema or
building its form takes time in proportion to its size."""
_MAX_CONTAINERS = 1_000_000
"""Maximum number of objects and arrays in one tool. Only object graphs with shared nodes, which cannot come
from JSON, have more."""

SchemaCheck: TypeAlias = Callable[[JsonObject], str | None]
"""Additional check of an input schema: returns the reason to quarantine its tool, or None. Must not raise."""


@dataclass(frozen=True, slots=True)
class ValidatedTools:
    """Result of validating a listing's tools. ``definitions`` are sorted by name and have unique names."""

    definitions: tuple[Definition, ...]
    quarantined: tuple[QuarantinedTool, ...]
    remarks: tuple[ToolRemark, ...]


def validate_tools(
    server_id: str,
    tools: Sequence[object],
    *,
    schema_check: SchemaCheck | None = None,
    skip_depth_check: bool = False,
    skip_size_check: bool = False,
    max_tool_bytes: int = MAX_TOOL_BYTES,
) -> ValidatedTools:
    """Separate the tools of a listing into usable and quarantined ones. Never raises.

    Of two usable tools with the same name, the first is used. Pass ``skip_depth_check`` if no tool can be
    nested deeper than ``MAX_NESTING_LEVELS``, and ``skip_size_check`` if none can exceed ``max_tool_bytes``.
    """
    definitions: dict[str, Definition] = {}
    quarantined: list[QuarantinedTool] = []
    remarks: list[ToolRemark] = []
    for tool in tools:
        reason = None if skip_depth_check else _depth_problem(tool)
        if reason is None and not skip_size_check and _encoded_size(tool) > max_tool_bytes:
            reason = f"its definition has more than {max_tool_bytes:,} bytes"
        if reason is not None:
            quarantined.append(QuarantinedTool(server_id, _printable_name(tool), reason, None))
            continue
        tool_remarks: list[ToolRemark] = []
        parsed = _parse_definition(server_id, tool, tool_remarks)
        if isinstance(parsed, str):
            quarantined.append(QuarantinedTool(server_id, _printable_name(tool), parsed, tool))
        elif parsed.name in definitions:
            reason = "the server lists this name twice; the first definition is used"
            quarantined.append(QuarantinedTool(server_id, parsed.name, reason, tool))
        elif schema_check is not None and (reason := schema_check(parsed.input_schema)) is not None:
            quarantined.append(QuarantinedTool(server_id, parsed.name, reason, tool))
        else:
            definitions[parsed.name] = parsed
            remarks += tool_remarks
    ordered = tuple(definitions[name] for name in sorted(definitions))
    return ValidatedTools(ordered, tuple(quarantined), tuple(remarks))


def _parse_definition(server_id: str, tool: object, remarks: list[ToolRemark]) -> Definition | str:
    """Return the definition, or the reason to quarantine the tool."""
    if not isinstance(tool, dict):
        return f"it must be an object, not {_describe_json_type(tool)}"
    raw = cast("dict[str, object]", tool)
    name = raw.get("name")
    if not isinstance(name, str):
        return (
            "it has no name"
            if name is None
            else f"its name must be a string, not {_describe_json_type(name)}"
        )
    reason = _name_problem(name) or _schema_problem(raw)
    if reason is not None:
        return reason

    def read_optional(key: str, kind: type[_T], label: str) -> _T | None:
        # Optional fields of a wrong type are ignored with a remark: the tool is usable without them.
        value = raw.get(key)
        if value is None or isinstance(value, kind):
            return value
        problem = f"{key} is {_describe_json_type(value)}, not {label}, and was ignored"
        remarks.append(ToolRemark(server_id, name, problem))
        return None

    title = read_optional("title", str, "a string")
    description = read_optional("description", str, "a string") or ""
    output_schema = cast("JsonObject | None", read_optional("outputSchema", dict, "an object"))
    hints = cast("JsonObject", read_optional("annotations", dict, "an object") or {})
    if title is None and isinstance(hint := hints.get("title"), str):
        title = hint
    if "inputSchema" not in raw:
        remarks.append(ToolRemark(server_id, name, "it has no inputSchema, which counts as {}"))
    input_schema = cast("JsonObject", raw.get("inputSchema", {}))
    # Estimated here, where long lists are in a thread: ten thousand long definitions take half a second.
    tokens = estimate_tool_tokens(name, description, input_schema)
    return Definition(server_id, name, title, description, input_schema, output_schema, hints, raw, tokens)


def _name_problem(name: str) -> str | None:
    if not name.strip():
        return "its name is empty"
    if len(name) > MAX_TOOL_NAME_CHARS:
        return f"its name has {len(name)} characters, more than {MAX_TOOL_NAME_CHARS}"
    if not name.isprintable():
        # Control characters and direction marks could falsify lists and logs.
        return "its name contains unprintable characters"
    return None


def _schema_problem(raw: dict[str, object]) -> str | None:
    schema = raw.get("inputSchema", {})
    if not isinstance(schema, dict):
        return f"inputSchema must be a JSON Schema object, not {_describe_json_type(schema)}"
    fields = cast("dict[str, object]", schema)
    root = fields.get("type", "object")
    if root != "object":
        shown = f"'{_replace_unprintable(root[:40])}'" if isinstance(root, str) else _describe_json_type(root)
        return f"the type of inputSchema must be 'object', not {shown}"
    if not isinstance(fields.get("properties", {}), dict):
        kind = _describe_json_type(fields["properties"])
        return f"the properties of inputSchema must be an object, not {kind}"
    return None


def _depth_problem(tool: object) -> str | None:
    """Return a reason if a tool is nested too deeply or too large.

    Walks level by level instead of recursively, so that deep nesting cannot exhaust the stack.
    """
    level, depth, nodes = _select_containers([tool]), 0, 0
    while level:
        depth += 1
        nodes += len(level)
        if depth > MAX_NESTING_LEVELS:
            return f"it is nested more than {MAX_NESTING_LEVELS} levels deep"
        if nodes > _MAX_CONTAINERS:
            return f"it has more than {_MAX_CONTAINERS} objects and arrays"
        level = [
            child
            for node in level
            for child in _select_containers(node.values() if isinstance(node, dict) else node)
        ]
    return None


def _encoded_size(tool: object) -> int:
    """Return the size of a tool as JSON. It must not be nested too deeply."""
    try:
        return len(orjson.dumps(tool))
    except TypeError:
        return len(json.dumps(tool, default=str, skipkeys=True))


def _select_containers(values: Iterable[object]) -> list[dict[str, object] | list[object]]:
    return [cast("list[object]", value) for value in values if isinstance(value, dict | list)]


def _printable_name(tool: object) -> str | None:
    if not isinstance(tool, dict):
        return None
    name = cast("dict[str, object]", tool).get("name")
    if not isinstance(name, str) or not name:
        return None
    shown = _replace_unprintable(name[: MAX_TOOL_NAME_CHARS + 1])
    return shown if len(shown) <= MAX_TOOL_NAME_CHARS else shown[: MAX_TOOL_NAME_CHARS - 1] + "…"


def _replace_unprintable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


def _describe_json_type(value: object) -> str:
    """Return the JSON type of a value in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, list):
        return "an array"
    return "an object" if isinstance(value, dict) else "a value that is not JSON"
