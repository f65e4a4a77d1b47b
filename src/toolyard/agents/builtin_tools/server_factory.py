"""Our own server, ready to be one of those that a manager has."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from toolyard.agents.builtin_tools.dispatch import NativeLimits, NativeTools
from toolyard.agents.builtin_tools.server import SERVER_CAPABILITIES, SERVER_INFO, NativeServer
from toolyard.agents.builtin_tools.tool_definitions import serialize_tool
from toolyard.agents.builtin_tools.web_fetch import PageFetcher
from toolyard.agents.builtin_tools.workspace import Workspace, can_confine
from toolyard.catalog.listing_contents import validate_listing
from toolyard.net import OutboundHttp
from toolyard.protocol.constants import LATEST_MODERN_VERSION
from toolyard.transports.memory import MemoryTransport
from toolyard.types.catalog import Catalogue, RawListing
from toolyard.types.server import NATIVE_SERVER_ID, ProtocolEra, Server, StdioSpec, Timeouts

__all__ = ["NativeServerSetup", "build_native_server"]

log = logging.getLogger("toolyard.native")

_CATALOGUE_TTL_SECONDS = 10 * 365 * 86400.0


@dataclass(frozen=True, slots=True)
class NativeServerSetup:
    """The definition, what the server has, which never changes, and a way to it for each connection."""

    server: Server
    catalogue: Catalogue
    transport: Callable[[], MemoryTransport]
    tools: NativeTools

    async def close(self) -> None:
        """After the connections."""
        self.tools.close()


def build_native_server(
    workspace_root: Path | None, data_dir: Path | None, net: OutboundHttp, max_characters: int
) -> NativeServerSetup:
    """The server of native tools. Without a workspace root it only fetches pages. The data directory is not
    read, wherever it lies. A result has at most so many ``characters``."""
    workspace = _make_workspace(workspace_root, data_dir)
    limits = NativeLimits(max_characters)
    tools = NativeTools(workspace, PageFetcher(net, seconds=limits.fetch_seconds), limits)
    listing = RawListing(
        tools=tuple(serialize_tool(tool) for tool in tools.definitions.values()),
        server_info=SERVER_INFO,
        capabilities=SERVER_CAPABILITIES,
        protocol_version=LATEST_MODERN_VERSION,
    )
    contents, _ = validate_listing(NATIVE_SERVER_ID, listing, None)
    return NativeServerSetup(
        # It is reached in this process; the command is none that anybody could run.
        Server(
            NATIVE_SERVER_ID,
            StdioSpec(NATIVE_SERVER_ID),
            label="Native tools",
            shared=True,
            protocol=ProtocolEra.MODERN,
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
        log.warning("workspace_root is set, but this system cannot keep tools inside a folder: they are off")
        return None
    return Workspace(workspace_root, data_dir)
