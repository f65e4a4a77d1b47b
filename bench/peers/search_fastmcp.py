"""FastMCP's BM25 search transform, asked as its own search tool asks it, without the call around it."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from fastmcp.server.transforms.search import BM25SearchTransform
from fastmcp.tools.base import Tool

from peers.search_driver import LIMIT, drive


class FastMcp:
    """Tools are named ``server_tool``, as a proxy over several servers names them."""

    def index(self, tools: list[dict[str, Any]]) -> None:
        self.loop = asyncio.new_event_loop()
        self.transform = BM25SearchTransform(max_results=LIMIT)
        self.tools = [
            Tool(
                name=re.sub(r"[^A-Za-z0-9_.-]", "_", f"{tool['server']}_{tool['name']}")[:100] + f"_{number}",
                description=tool.get("description") or "",
                parameters=tool.get("input_schema") or {},
            )
            for number, tool in enumerate(tools)
        ]
        self.search("first")  # the index is built by the first search

    def search(self, query: str) -> list[int]:
        hits = self.loop.run_until_complete(self.transform._search(self.tools, query))
        return [int(tool.name.rsplit("_", 1)[1]) for tool in hits]


if __name__ == "__main__":
    drive(FastMcp(), "fastmcp")
