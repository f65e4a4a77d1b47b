"""Definitions of the meta tools. They are short, since they are part of every prompt.

``make_compact_schema`` removes schema keywords that carry no information for a model, to save tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from toolyard.types.tool import Definition, JsonObject

__all__ = [
    "MAX_DESCRIBED_TOOLS",
    "MAX_LISTED_TOOLS",
    "META_SERVER_ID",
    "META_TOOLS",
    "RESULT_READ_TOOL",
    "make_compact_schema",
]


META_SERVER_ID = "toolyard"
"""Server id in the definitions of meta tools."""
MAX_LISTED_TOOLS = 128
MAX_DESCRIBED_TOOLS = 16

_INTEGER_SCHEMA: Mapping[str, Any] = {"type": "integer"}
_STRING_SCHEMA: Mapping[str, Any] = {"type": "string"}


def _define_tool(name: str, description: str, properties: Mapping[str, Any], *required: str) -> Definition:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    raw = {"name": name, "description": description, "inputSchema": schema}
    return Definition(META_SERVER_ID, name, description=description, input_schema=schema, raw=raw)


RESULT_READ_TOOL = _define_tool(
    "result_read",
    "Read more of a long result by its handle: from an offset, lines that contain words (grep), or a path in "
    "its JSON (path, e.g. $.items[*].id).",
    {
        "handle": _STRING_SCHEMA,
        "offset": _INTEGER_SCHEMA,
        "length": _INTEGER_SCHEMA,
        "grep": _STRING_SCHEMA,
        "path": _STRING_SCHEMA,
    },
    "handle",
)
_CALL_TOOL = _define_tool(
    "tools_call", "Call a tool.", {"name": _STRING_SCHEMA, "arguments": {"type": "object"}}, "name"
)
_DESCRIBE_TOOL = _define_tool(
    "tools_describe",
    "Show the arguments of tools.",
    {"names": {"type": "array", "items": _STRING_SCHEMA}},
    "names",
)
_LIST_TOOL = _define_tool(
    "tools_list",
    "List all tools, or one server's.",
    {"server": _STRING_SCHEMA, "offset": _INTEGER_SCHEMA, "limit": _INTEGER_SCHEMA},
)
_SEARCH_TOOL = _define_tool(
    "tools_search",
    "Find tools by what they should do.",
    {"query": _STRING_SCHEMA, "limit": _INTEGER_SCHEMA},
    "query",
)

META_TOOLS: Mapping[str, Definition] = {
    tool.name: tool for tool in (RESULT_READ_TOOL, _CALL_TOOL, _DESCRIBE_TOOL, _LIST_TOOL, _SEARCH_TOOL)
}
"""Meta tools by name, in alphabetical order."""


_SCHEMA_KEYWORDS = ("items", "additionalProperties", "not")
_SCHEMA_LIST_KEYWORDS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMA_MAP_KEYWORDS = ("properties", "$defs", "definitions", "patternProperties")
_MAX_SCHEMA_DEPTH = 32


def make_compact_schema(schema: JsonObject, depth: int = 0) -> dict[str, Any]:
    """Return the schema without ``$schema``, ``title`` and ``additionalProperties: false``.

    Properties with such names are not affected. Below ``_MAX_SCHEMA_DEPTH`` the schema is left unchanged.
    """
    compact: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "$schema" or (key == "title" and isinstance(value, str)):
            continue
        if key == "additionalProperties" and value is False:
            continue
        compact[key] = _compact_keyword(key, value, depth + 1) if depth < _MAX_SCHEMA_DEPTH else value
    return compact


def _compact_keyword(key: str, value: object, depth: int) -> object:
    if key in _SCHEMA_KEYWORDS:
        return _compact_subschema(value, depth)
    if key in _SCHEMA_MAP_KEYWORDS and isinstance(value, Mapping):
        return {name: _compact_subschema(each, depth) for name, each in cast("JsonObject", value).items()}
    if key in _SCHEMA_LIST_KEYWORDS and isinstance(value, list):
        return [_compact_subschema(each, depth) for each in cast("list[object]", value)]
    return value


def _compact_subschema(value: object, depth: int) -> object:
    return make_compact_schema(cast("JsonObject", value), depth) if isinstance(value, Mapping) else value
