"""Raw tool objects, as hostile as a server can make them, become definitions or are set apart one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from toolyard.types.catalog import QuarantinedTool, ToolRemark
from toolyard.types.tool import Definition, JsonObject

__all__ = ["MAX_NESTING_LEVELS", "MAX_TOOL_NAME_CHARS", "SchemaCheck", "ValidatedTools", "validate_tools"]

MAX_TOOL_NAME_CHARS = 256
"""Characters. MCP advises 128; a name that is twice as long still works, under a shortened exposed name."""
MAX_NESTING_LEVELS = 252
"""Levels of objects and arrays in one tool. orjson writes 254, and a listing adds two around each tool: so a
listing that orjson wrote holds no tool that is too deep, and needs no walk."""
_MAX_CONTAINERS = 1_000_000
"""Objects and arrays in one tool: only what is no tree at all, and so never was JSON, has more."""

SchemaCheck: TypeAlias = Callable[[JsonObject], str | None]
"""A further check of an input schema: the reason to quarantine its tool, or None. It must not raise."""


@dataclass(frozen=True, slots=True)
class ValidatedTools:
    """The verdict on a listing's tools. ``definitions`` are sorted by name, with each name once."""

    definitions: tuple[Definition, ...]
    quarantined: tuple[QuarantinedTool, ...]
    remarks: tuple[ToolRemark, ...]


def validate_tools(
    server_id: str,
    tools: Sequence[object],
    *,
    schema_check: SchemaCheck | None = None,
    skip_depth_check: bool = False,
) -> ValidatedTools:
    """Sort the tools of a listing into usable ones and quarantined ones. Never raises.

    Of two usable tools with one name the first stays. ``depth_known`` promises that no tool is nested deeper
    than ``MAX_DEPTH``, and saves the walk that would find out.
    """
    found: dict[str, Definition] = {}
    quarantined: list[QuarantinedTool] = []
    remarks: list[ToolRemark] = []
    for tool in tools:
        reason = None if skip_depth_check else _size_problem(tool)
        if reason is not None:
            quarantined.append(QuarantinedTool(server_id, _printable_name(tool), reason, None))
            continue
        odd: list[ToolRemark] = []
        judged = _parse_definition(server_id, tool, odd)
        if isinstance(judged, str):
            quarantined.append(QuarantinedTool(server_id, _printable_name(tool), judged, tool))
        elif judged.name in found:
            reason = "the server lists this name twice; the first definition stays"
            quarantined.append(QuarantinedTool(server_id, judged.name, reason, tool))
        elif schema_check is not None and (reason := schema_check(judged.input_schema)) is not None:
            quarantined.append(QuarantinedTool(server_id, judged.name, reason, tool))
        else:
            found[judged.name] = judged
            remarks += odd
    return ValidatedTools(tuple(found[name] for name in sorted(found)), tuple(quarantined), tuple(remarks))


def _parse_definition(server_id: str, tool: object, remarks: list[ToolRemark]) -> Definition | str:
    """The definition, or the reason why there is none."""
    if not isinstance(tool, dict):
        return f"it is {_describe_json_type(tool)} where an object belongs"
    raw = cast("dict[str, object]", tool)
    name = raw.get("name")
    if not isinstance(name, str):
        return (
            "it has no name"
            if name is None
            else f"its name is {_describe_json_type(name)} where a string belongs"
        )
    reason = _name_problem(name) or _schema_problem(raw)
    if reason is not None:
        return reason

    title, description = raw.get("title"), raw.get("description")
    output_schema, annotations = raw.get("outputSchema"), raw.get("annotations")
    if title is not None and not isinstance(title, str):
        title = _add_ignored_remark(server_id, name, "title", title, "a string", remarks)
    if description is not None and not isinstance(description, str):
        description = _add_ignored_remark(server_id, name, "description", description, "a string", remarks)
    if output_schema is not None and not isinstance(output_schema, dict):
        output_schema = _add_ignored_remark(
            server_id, name, "outputSchema", output_schema, "an object", remarks
        )
    if annotations is not None and not isinstance(annotations, dict):
        annotations = _add_ignored_remark(server_id, name, "annotations", annotations, "an object", remarks)
    hints = cast("JsonObject", annotations or {})
    if title is None and isinstance(hint := hints.get("title"), str):
        title = hint
    input_schema = cast("JsonObject", raw["inputSchema"])
    shape = cast("JsonObject | None", output_schema)
    return Definition(server_id, name, title, description or "", input_schema, shape, hints, raw)


def _add_ignored_remark(
    server_id: str, tool: str, key: str, value: object, what: str, remarks: list[ToolRemark]
) -> None:
    remarks.append(
        ToolRemark(server_id, tool, f"{key} is {_describe_json_type(value)}, not {what}, and was ignored")
    )


def _name_problem(name: str) -> str | None:
    if not name.strip():
        return "its name is empty"
    if len(name) > MAX_TOOL_NAME_CHARS:
        return f"its name has {len(name)} characters, more than {MAX_TOOL_NAME_CHARS}"
    if not name.isprintable():
        # Control characters, direction marks and the like: they deceive whoever reads a list or a log.
        return "its name has characters that cannot be printed"
    return None


def _schema_problem(raw: dict[str, object]) -> str | None:
    if "inputSchema" not in raw:
        return "it has no inputSchema"
    schema = raw["inputSchema"]
    if not isinstance(schema, dict):
        return f"inputSchema is {_describe_json_type(schema)} where a JSON Schema object belongs"
    fields = cast("dict[str, object]", schema)
    root = fields.get("type", "object")
    if root != "object":
        shown = f"'{_replace_unprintable(root[:40])}'" if isinstance(root, str) else _describe_json_type(root)
        return f"inputSchema has the type {shown} where 'object' belongs"
    if not isinstance(fields.get("properties", {}), dict):
        return (
            f"the properties of inputSchema are {_describe_json_type(fields['properties'])} where "
            "an object belongs"
        )
    return None


def _size_problem(tool: object) -> str | None:
    """Why a tool is too deep or too large. Level by level, so that no nesting can exhaust the stack."""
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
    """What a JSON value is, in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "an object" if isinstance(value, dict) else "no JSON"
