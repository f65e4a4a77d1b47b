"""Toolyard's ``ConnectionManager`` on the default loop, like the others, or on uvloop with ``--uvloop``."""

from __future__ import annotations

import sys
from typing import Any

from peers.driver import Target, drive
from toolyard.clients import ConnectionManager
from toolyard.types.call import McpRequest
from toolyard.types.server import HttpSpec, Server, StdioSpec


def server(index: int, target: Target) -> Server:
    """A server's definition for a target."""
    if "url" in target:
        return Server(f"s{index}", HttpSpec(target["url"]))
    return Server(f"s{index}", StdioSpec(target["command"], args=tuple(target["args"])))


class Toolyard:
    """``toolyard.clients.ConnectionManager``."""

    async def open(self, targets: list[Target]) -> None:
        self.manager = ConnectionManager([server(index, target) for index, target in enumerate(targets)])
        await self.manager.connect()

    async def list(self, index: int) -> int:
        return len((await self.manager.list_tools(f"s{index}")).items)

    async def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        return await self.manager.connection("s0").request(
            McpRequest("tools/call", {"name": tool, "arguments": arguments})
        )

    def text(self, answer: Any) -> str:
        return answer["content"][0]["text"]

    async def close(self) -> None:
        await self.manager.close_all()


if __name__ == "__main__":
    if "--uvloop" in sys.argv:
        from uvloop import run

        drive(Toolyard, "toolyard", "uvloop", runner=run)
    else:
        drive(Toolyard, "toolyard", "aiohttp", "orjson")
