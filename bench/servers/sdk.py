"""The benchmark's ``echo`` by a server made with the official SDK, as most on standard streams are."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer

server = MCPServer("echo")


@server.tool()
def echo(text: str) -> str:
    """Says the same."""
    return text


if __name__ == "__main__":
    server.run("stdio")
