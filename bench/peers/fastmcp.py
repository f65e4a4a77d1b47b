"""FastMCP's client, entered once a server."""

from __future__ import annotations

from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from peers.driver import Group, Target, drive


def client(target: Target) -> Client[Any]:
    """FastMCP's client for a target; its response cache is off by default."""
    if "url" in target:
        return Client(target["url"])
    return Client(StdioTransport(target["command"], target["args"], keep_alive=False))


class FastMcp(Group):
    """``fastmcp.Client``."""

    def __init__(self) -> None:
        super().__init__(client)

    async def list(self, index: int) -> int:
        return len(await self.clients[index].list_tools())

    async def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        return await self.clients[0].call_tool(tool, arguments)

    def text(self, answer: Any) -> str:
        return answer.content[0].text


if __name__ == "__main__":
    drive(FastMcp, "fastmcp", "mcp")
