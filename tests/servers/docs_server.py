"""A documentation server in Context7's place, made with the official SDK: two tools read, one writes."""

from __future__ import annotations

import sys

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("docs-server")
READS = ToolAnnotations(read_only_hint=True)
WRITES = ToolAnnotations(read_only_hint=False)


@server.tool(name="resolve-library-id", annotations=READS)
async def resolve_library_id(library: str) -> str:
    """Finds the id of a library."""
    return f"/docs/{library.lower()}"


@server.tool(name="query-docs", annotations=READS)
async def query_docs(library_id: str, topic: str) -> str:
    """Answers a question about a library."""
    return f"{library_id} says about {topic}: read the manual"


@server.tool(name="publish-note", annotations=WRITES)
async def publish_note(text: str) -> str:
    """Writes."""
    return text


if __name__ == "__main__":
    server.run("streamable-http", port=int(sys.argv[1]))
