"""What a model is told about the meta tools. Every byte of it is paid for in every prompt, and cached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolyard.types.tool import Definition

__all__ = ["META_TOOLS", "MOST_LISTED", "MOST_NAMES", "OWNER", "RESULT_READ"]

OWNER = "toolyard"
"""Stands where a server's id does."""
MOST_LISTED = 128
MOST_NAMES = 16

_NUMBER: Mapping[str, Any] = {"type": "integer"}
_TEXT: Mapping[str, Any] = {"type": "string"}


def _tool(name: str, description: str, properties: Mapping[str, Any], *required: str) -> Definition:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    raw = {"name": name, "description": description, "inputSchema": schema}
    return Definition(OWNER, name, description=description, input_schema=schema, raw=raw)


RESULT_READ = _tool(
    "result_read",
    "Read more of a long result by its handle: from an offset, lines with some words (grep), or a place in "
    "its JSON (path, e.g. $.items[*].id).",
    {"handle": _TEXT, "offset": _NUMBER, "length": _NUMBER, "grep": _TEXT, "path": _TEXT},
    "handle",
)
_CALL = _tool("tools_call", "Call a tool.", {"name": _TEXT, "arguments": {"type": "object"}}, "name")
_DESCRIBE = _tool(
    "tools_describe",
    "Which arguments tools take.",
    {"names": {"type": "array", "items": _TEXT}},
    "names",
)
_LIST = _tool(
    "tools_list",
    "List all tools, or one server's.",
    {"server": _TEXT, "offset": _NUMBER, "limit": _NUMBER},
)
_SEARCH = _tool(
    "tools_search", "Find tools by what they should do.", {"query": _TEXT, "limit": _NUMBER}, "query"
)

META_TOOLS: Mapping[str, Definition] = {
    tool.name: tool for tool in (RESULT_READ, _CALL, _DESCRIBE, _LIST, _SEARCH)
}
"""By name, in the order of the names."""
