"""Our index, as the doors use it."""

from __future__ import annotations

from typing import Any

from peers.search_driver import LIMIT, drive
from toolyard.catalog.search import SearchIndex
from toolyard.types.tool import Definition


class Ours:
    """``SearchIndex``, one ``put`` a server."""

    def index(self, tools: list[dict[str, Any]]) -> None:
        self.found = SearchIndex()
        servers: dict[str, dict[str, Definition]] = {}
        about: dict[str, str] = {}
        for number, tool in enumerate(tools):
            server = tool["server"]
            definition = Definition(
                server,
                tool["name"],
                description=tool.get("description") or "",
                input_schema=tool.get("input_schema") or {},
            )
            servers.setdefault(server, {})[str(number)] = definition
            about[server] = tool.get("server_description") or ""
        for server, server_tools in servers.items():
            self.found.put(server, server_tools, about[server])
        # What is put off until somebody searches belongs to the index.
        self.search("")

    def search(self, query: str) -> list[int]:
        return [int(hit.name) for hit in self.found.search(query, LIMIT)]


if __name__ == "__main__":
    drive(Ours(), "toolyard")
