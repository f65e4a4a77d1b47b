"""The native tools as an MCP server in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast

from toolyard import __version__
from toolyard.agents.builtin_tools.dispatch import NativeTools
from toolyard.agents.builtin_tools.tool_definitions import as_listed
from toolyard.protocol.constants import INVALID_PARAMS, METHOD_NOT_FOUND
from toolyard.protocol.pending import Failure, Id, Message, error_message, result_message
from toolyard.protocol.server import complete, discover_result, initialize_result, is_modern

__all__ = ["INFO", "NativeServer"]

INFO: Mapping[str, Any] = {"name": "toolyard-native", "title": "Native tools", "version": __version__}
CAPABILITIES: Mapping[str, Any] = {"tools": {}}


class NativeServer:
    """Answers one connection over the memory transport: its calls can be cancelled, each by its id."""

    def __init__(self, tools: NativeTools) -> None:
        self._tools = tools
        self._running: dict[Id, asyncio.Task[Any]] = {}

    async def __call__(self, message: Message, reply: Callable[[Message], None]) -> None:
        id, params = message.get("id"), cast("dict[str, Any]", message.get("params") or {})
        if id is None:
            self._told(message, params)
            return
        method = str(message.get("method"))
        found = await self._answer(id, method, params)
        if isinstance(found, Failure):
            reply(error_message(id, found.code, found.message))
        else:
            reply(result_message(id, complete(found, method, INFO) if is_modern(message) else found))

    async def _answer(self, id: Id, method: str, params: dict[str, Any]) -> dict[str, Any] | Failure:
        if method == "tools/call":
            return await self._called(id, params)
        if method == "tools/list":
            return {"tools": [as_listed(tool) for tool in self._tools.definitions.values()]}
        if method == "server/discover":
            return discover_result(INFO, CAPABILITIES)
        if method == "initialize":
            return initialize_result(params.get("protocolVersion"), INFO, CAPABILITIES)
        return {} if method == "ping" else Failure(METHOD_NOT_FOUND, f"there is no method {method}")

    async def _called(self, id: Id, params: dict[str, Any]) -> dict[str, Any] | Failure:
        name = params.get("name")
        if not isinstance(name, str) or name not in self._tools.definitions:
            return Failure(INVALID_PARAMS, f"there is no tool {name!r:.100}")
        task = asyncio.current_task()
        if task is not None:
            self._running[id] = task
        try:
            return await self._tools.call(name, params.get("arguments"))
        finally:
            self._running.pop(id, None)

    def _told(self, message: Message, params: dict[str, Any]) -> None:
        if message.get("method") == "notifications/cancelled":
            task = self._running.get(params.get("requestId", ""))
            if task is not None:
                task.cancel()
