"""Our own server, ready to be one of those that a manager has."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from toolyard.agents.builtin_tools.dispatch import NativeLimits, NativeTools
from toolyard.agents.builtin_tools.server import CAPABILITIES, INFO, NativeServer
from toolyard.agents.builtin_tools.tool_definitions import as_listed
from toolyard.agents.builtin_tools.web_fetch import Fetching
from toolyard.agents.builtin_tools.workspace import Workspace, can_confine
from toolyard.catalog.listing_contents import judge_listing
from toolyard.net import Net
from toolyard.protocol.constants import MODERN_LATEST
from toolyard.transports.memory import MemoryTransport
from toolyard.types.catalog import Catalogue, Listing
from toolyard.types.server import NATIVE, Protocol, Server, StdioSpec, Timeouts

__all__ = ["Native", "native_server"]

log = logging.getLogger("toolyard.native")

_FOR_EVER = 10 * 365 * 86400.0


@dataclass(frozen=True, slots=True)
class Native:
    """The definition, what the server has, which never changes, and a way to it for each connection."""

    server: Server
    catalogue: Catalogue
    transport: Callable[[], MemoryTransport]
    tools: NativeTools

    async def close(self) -> None:
        """After the connections."""
        self.tools.close()


def native_server(root: Path | None, data_dir: Path | None, net: Net, characters: int) -> Native:
    """The server of native tools. Without a workspace root it only fetches pages. The data directory is not
    read, wherever it lies. A result has at most so many ``characters``."""
    workspace = _workspace(root, data_dir)
    limits = NativeLimits(characters)
    tools = NativeTools(workspace, Fetching(net, seconds=limits.fetching), limits)
    listing = Listing(
        tools=tuple(as_listed(tool) for tool in tools.definitions.values()),
        server_info=INFO,
        capabilities=CAPABILITIES,
        protocol_version=MODERN_LATEST,
    )
    contents, _ = judge_listing(NATIVE, listing, None)
    return Native(
        # It is reached in this process; the command is none that anybody could run.
        Server(
            NATIVE,
            StdioSpec(NATIVE),
            label="Native tools",
            shared=True,
            protocol=Protocol.MODERN,
            timeouts=Timeouts(connect=10.0, silence=60.0, call=60.0),
        ),
        Catalogue(contents, time.time(), _FOR_EVER),
        lambda: MemoryTransport(NativeServer(tools)),
        tools,
    )


def _workspace(root: Path | None, data_dir: Path | None) -> Workspace | None:
    if root is None:
        return None
    if not can_confine():
        log.warning("workspace_root is set, but this system cannot keep tools inside a folder: they are off")
        return None
    return Workspace(root, data_dir)
