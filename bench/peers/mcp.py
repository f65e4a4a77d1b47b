"""The official SDK's own client, as its documentation shows it: one ``Client`` a server, entered once."""

from __future__ import annotations

from typing import Any

from mcp import Client, StdioServerParameters

from peers.driver import Group, Target, drive


def client(target: Target) -> Client:
    """The SDK's client for a target; its default is to probe for the modern era."""
    if "url" in target:
        return Client(target["url"])
    return Client(StdioServerParameters(command=target["command"], args=target["args"]))


class RawMcp(Group):
    """``mcp.Client``."""

    def __init__(self) -> None:
        super().__init__(client)

    async def list(self, index: int) -> int:
        return len((await self.clients[index].list_tools()).tools)

    async def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        return await self.clients[0].call_tool(tool, arguments)

    def text(self, answer: Any) -> str:
        return answer.content[0].text


if __name__ == "__main__":
    drive(RawMcp, "mcp", "httpx2", "pydantic")
