"""A core whose servers answer from a script, so that what is called can be counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from toolyard.catalog.cache import CatalogueCache
from toolyard.catalog.exposed_names import NameAssigner
from toolyard.catalog.listing_storage import MemoryListingStorage
from toolyard.clients import ConnectionManager
from toolyard.clients.call_path import CallPath, CallSettings
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.config.settings.table import Settings
from toolyard.meta_tools import CallerSearch, MetaToolLimits, MetaTools
from toolyard.results import ResultLimits
from toolyard.types.account import Principal
from toolyard.types.call import Caller, McpRequest, ToolCall, WriteTools
from toolyard.types.server import Server, StdioSpec
from toolyard.types.tool import RawListing

__all__ = ["Core", "server", "text_result", "tool"]


def tool(name: str, description: str = "", **fields: Any) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **fields}


def server(id: str, **fields: Any) -> Server:
    return Server(id, StdioSpec("never-started"), **fields)


class _Manager(ConnectionManager):
    """Answers calls itself, and notes them."""

    def __init__(self, servers: list[Server], answer: Callable[[str, str, Any], Any]) -> None:
        super().__init__(servers)
        self.called: list[str] = []
        self._answer = answer

    async def send(self, server_id: str, caller: Caller, request: McpRequest) -> Any:
        params = request.params or {}
        self.called.append(f"{server_id}/{params['name']}")
        return self._answer(server_id, params["name"], params["arguments"])


class Core:
    """Rosters, the call path and the meta tools over scripted servers."""

    def __init__(
        self,
        servers: list[Server],
        tools: Mapping[str, list[dict[str, Any]]],
        *,
        answer: Callable[[str, str, Any], Any] | None = None,
        write_tools: WriteTools = WriteTools.ALLOW,
        budgets: MetaToolLimits = MetaToolLimits(),  # noqa: B008 - frozen
        **options: Any,
    ) -> None:
        async def fetch(server_id: str, principal: Principal, chat: str | None = None) -> RawListing:
            return RawListing(tools=tuple(tools[server_id]))

        self.manager = _Manager(servers, answer or (lambda *_: text_result("done")))
        self.rosters = ToolDirectory(
            self.manager,
            CatalogueCache(fetch, MemoryListingStorage()),
            NameAssigner(),
            list_deadline=Settings().list_deadline,
        )
        rules = CallSettings(write_tools, ResultLimits())
        self.calls = CallPath(self.manager, self.rosters, rules, **options)
        self.meta = MetaTools(self.rosters, self.calls, CallerSearch(self.calls), budgets)

    async def __call__(self, name: str, arguments: Any, caller: Any) -> dict[str, Any]:
        return (await self.meta.call(ToolCall(name, arguments), caller)).body


def text_result(text: str, **fields: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], **fields}
