"""The native tools as an MCP server in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast

from toolyard import __version__
from toolyard.agents.builtin_tools.dispatch import NativeTools
from toolyard.agents.builtin_tools.tool_definitions import serialize_tool
from toolyard.protocol.constants import INVALID_PARAMS, METHOD_NOT_FOUND
from toolyard.protocol.pending import (
    Message,
    RequestId,
    RpcFailure,
    build_error_message,
    build_result_message,
)
from toolyard.protocol.server import (
    build_complete_result,
    build_discover_result,
    build_initialize_result,
    is_modern_request,
)

__all__ = ["SERVER_INFO", "NativeServer"]

SERVER_INFO: Mapping[str, Any] = {"name": "toolyard-native", "title": "Native tools", "version": __version__}
SERVER_CAPABILITIES: Mapping[str, Any] = {"tools": {}}


class NativeServer:
    """Answers one connection over the memory transport: its calls can be cancelled, each by its id."""

    def __init__(self, tools: NativeTools) -> None:
        self._tools = tools
        self._running_calls: dict[RequestId, asyncio.Task[Any]] = {}

    async def __call__(self, message: Message, reply: Callable[[Message], None]) -> None:
        id, params = message.get("id"), cast("dict[str, Any]", message.get("params") or {})
        if id is None:
            self._handle_notification(message, params)
            return
        method = str(message.get("method"))
        found = await self._handle_request(id, method, params)
        if isinstance(found, RpcFailure):
            reply(build_error_message(id, found.code, found.message))
        else:
            reply(
                build_result_message(
                    id,
                    build_complete_result(found, method, SERVER_INFO)
                    if is_modern_request(message)
                    else found,
                )
            )

    async def _handle_request(
        self, id: RequestId, method: str, params: dict[str, Any]
    ) -> dict[str, Any] | RpcFailure:
        if method == "tools/call":
            return await self._call_tool(id, params)
        if method == "tools/list":
            return {"tools": [serialize_tool(tool) for tool in self._tools.definitions.values()]}
        if method == "server/discover":
            return build_discover_result(SERVER_INFO, SERVER_CAPABILITIES)
        if method == "initialize":
            return build_initialize_result(params.get("protocolVersion"), SERVER_INFO, SERVER_CAPABILITIES)
        return {} if method == "ping" else RpcFailure(METHOD_NOT_FOUND, f"there is no method {method}")

    async def _call_tool(self, id: RequestId, params: dict[str, Any]) -> dict[str, Any] | RpcFailure:
        name = params.get("name")
        if not isinstance(name, str) or name not in self._tools.definitions:
            return RpcFailure(INVALID_PARAMS, f"there is no tool {name!r:.100}")
        task = asyncio.current_task()
        if task is not None:
            self._running_calls[id] = task
        try:
            return await self._tools.call(name, params.get("arguments"))
        finally:
            self._running_calls.pop(id, None)

    def _handle_notification(self, message: Message, params: dict[str, Any]) -> None:
        if message.get("method") == "notifications/cancelled":
            task = self._running_calls.get(params.get("requestId", ""))
            if task is not None:
                task.cancel()
