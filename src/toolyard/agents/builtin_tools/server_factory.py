"""In-process MCP server of the built-in tools, and the setup with which a connection manager uses it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from toolyard.agents.builtin_tools.dispatch import NativeLimits, NativeTools, build_list_entry
from toolyard.agents.builtin_tools.web_fetch import PageFetcher
from toolyard.agents.builtin_tools.workspace import Workspace, can_confine
from toolyard.catalog.listing_codec import validate_listing
from toolyard.net import OutboundHttp
from toolyard.protocol.constants import INVALID_PARAMS, METHOD_NOT_FOUND
from toolyard.protocol.eras import ERAS, detect_era
from toolyard.protocol.jsonrpc import (
    Message,
    RequestId,
    RpcFailure,
    build_error_message,
    build_result_message,
)
from toolyard.protocol.server import build_discover_result, build_initialize_result
from toolyard.transports.memory import MemoryTransport
from toolyard.types.server import NATIVE_SERVER_ID, ProtocolEra, Server, StdioSpec, Timeouts
from toolyard.types.tool import Catalogue, RawListing
from toolyard.types.version import __version__

__all__ = ["SERVER_INFO", "NativeServer", "NativeServerSetup", "build_native_server"]


SERVER_INFO: Mapping[str, Any] = {
    "name": "toolyard-native",
    "title": "Built-in tools",
    "version": __version__,
}
SERVER_CAPABILITIES: Mapping[str, Any] = {"tools": {}}


class NativeServer:
    """Serves one connection over the memory transport.

    Each running call can be cancelled by its request id.
    """

    def __init__(self, tools: NativeTools) -> None:
        self._tools = tools
        self._running_calls: dict[RequestId, asyncio.Task[Any]] = {}

    async def __call__(self, message: Message, reply: Callable[[Message], None]) -> None:
        id, params = message.get("id"), cast("dict[str, Any]", message.get("params") or {})
        if id is None:
            self._handle_notification(message, params)
            return
        method = str(message.get("method"))
        outcome = await self._handle_request(id, method, params)
        if isinstance(outcome, RpcFailure):
            reply(build_error_message(id, outcome.code, outcome.message))
        else:
            reply(build_result_message(id, detect_era(message).finish_result(outcome, method, SERVER_INFO)))

    async def _handle_request(
        self, id: RequestId, method: str, params: dict[str, Any]
    ) -> dict[str, Any] | RpcFailure:
        if method == "tools/call":
            return await self._call_tool(id, params)
        if method == "tools/list":
            return {"tools": [build_list_entry(tool) for tool in self._tools.definitions.values()]}
        if method == "server/discover":
            return build_discover_result(SERVER_CAPABILITIES)
        if method == "initialize":
            return build_initialize_result(params.get("protocolVersion"), SERVER_INFO, SERVER_CAPABILITIES)
        return {} if method == "ping" else RpcFailure(METHOD_NOT_FOUND, f"unknown method {method}")

    async def _call_tool(self, id: RequestId, params: dict[str, Any]) -> dict[str, Any] | RpcFailure:
        name = params.get("name")
        if not isinstance(name, str) or name not in self._tools.definitions:
            return RpcFailure(INVALID_PARAMS, f"unknown tool {name!r:.100}")
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


log = logging.getLogger("toolyard.native")

_CATALOGUE_TTL_SECONDS = 10 * 365 * 86400.0


@dataclass(frozen=True, slots=True)
class NativeServerSetup:
    """The server's definition, its fixed catalogue, and a factory of transports for each connection."""

    server: Server
    catalogue: Catalogue
    make_transport: Callable[[], MemoryTransport]
    tools: NativeTools

    async def close(self) -> None:
        """Close the tools. Call it after closing the connections."""
        self.tools.close()


def build_native_server(
    workspace_root: Path | None, data_dir: Path | None, net: OutboundHttp, max_characters: int
) -> NativeServerSetup:
    """Build the server of built-in tools; without a workspace root it only offers ``web_fetch``.

    The data directory is never read, wherever it is. A result has at most ``max_characters``.
    """
    workspace = _make_workspace(workspace_root, data_dir)
    limits = NativeLimits(max_characters)
    tools = NativeTools(workspace, PageFetcher(net, seconds=limits.fetch_seconds), limits)
    listing = RawListing(
        tools=tuple(build_list_entry(tool) for tool in tools.definitions.values()),
        server_info=SERVER_INFO,
        capabilities=SERVER_CAPABILITIES,
        protocol_version=ERAS[0].latest_version,
    )
    contents, _ = validate_listing(NATIVE_SERVER_ID, listing, None)
    return NativeServerSetup(
        # The server runs in this process; the command is a placeholder that is never executed.
        Server(
            NATIVE_SERVER_ID,
            StdioSpec(NATIVE_SERVER_ID),
            label="Built-in tools",
            shared=True,
            protocol=ProtocolEra(ERAS[0].name),
            timeouts=Timeouts(connect=10.0, silence=60.0, call=60.0),
        ),
        Catalogue(contents, time.time(), _CATALOGUE_TTL_SECONDS),
        lambda: MemoryTransport(NativeServer(tools)),
        tools,
    )


def _make_workspace(workspace_root: Path | None, data_dir: Path | None) -> Workspace | None:
    if workspace_root is None:
        return None
    if not can_confine():
        log.warning(
            "workspace_root is set, but file tools are off: this system cannot confine them to a folder"
        )
        return None
    return Workspace(workspace_root, data_dir)
