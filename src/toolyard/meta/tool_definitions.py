"""Definitions of the meta tools. They are short, since they are part of every prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolyard.types.tool import Definition

__all__ = ["MAX_DESCRIBED_TOOLS", "MAX_LISTED_TOOLS", "META_SERVER_ID", "META_TOOLS", "RESULT_READ_TOOL"]

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
