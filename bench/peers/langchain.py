"""langchain-mcp-adapters with sessions that stay open, its good case: without one, each call connects."""

from __future__ import annotations

from typing import Any

from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools

from peers.driver import Group, Target, drive


def session(target: Target) -> Any:
    """A persistent session for a target, by way of the library's multi-server client."""
    if "url" in target:
        connection = {"transport": "streamable_http", "url": target["url"]}
    else:
        connection = {"transport": "stdio", "command": target["command"], "args": target["args"]}
    return MultiServerMCPClient({"s": connection}).session("s")


class LangChain(Group):
    """LangChain tools on open sessions, invoked as a graph's tool node does."""

    def __init__(self) -> None:
        super().__init__(session)
        self.tools: dict[str, Any] = {}

    async def list(self, index: int) -> int:
        tools = await load_mcp_tools(self.clients[index])
        if index == 0:
            self.tools = {tool.name: tool for tool in tools}
        return len(tools)

    async def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        return await self.tools[tool].ainvoke(arguments)

    def text(self, answer: Any) -> str:
        return answer[0]["text"]


if __name__ == "__main__":
    drive(LangChain, "langchain-mcp-adapters", "langchain-core", "mcp")
