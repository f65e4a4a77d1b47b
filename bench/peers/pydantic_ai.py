"""pydantic-ai's toolset for one MCP server, entered once, as an agent's run does."""

from __future__ import annotations

from typing import Any

from fastmcp.client.transports import StdioTransport
from pydantic_ai.mcp import MCPToolset

from peers.driver import Group, Target, drive


def toolset(target: Target) -> MCPToolset[Any]:
    """The toolset for a target. Its own cache of tools is off, since listings are what is timed."""
    if "url" in target:
        return MCPToolset(target["url"], cache_tools=False)
    transport = StdioTransport(target["command"], target["args"], keep_alive=False)
    return MCPToolset(transport, cache_tools=False, init_timeout=30)


class PydanticAi(Group):
    """``pydantic_ai.mcp.MCPToolset``."""

    def __init__(self) -> None:
        super().__init__(toolset)

    async def list(self, index: int) -> int:
        return len(await self.clients[index].list_tools())

    async def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        return await self.clients[0].direct_call_tool(tool, arguments)

    def text(self, answer: Any) -> str:
        return answer


if __name__ == "__main__":
    drive(PydanticAi, "pydantic-ai-slim", "fastmcp-slim", "mcp")
