"""Fresh listing of one server's tools, for the pages that show it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from toolyard.catalog.tool_listing import ToolListing
from toolyard.clients.call_path import CallPath
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.errors import ServerError, Unreachable
from toolyard.types.catalog import Catalogue
from toolyard.types.principal import Principal
from toolyard.types.server import Server

__all__ = ["ServerListing", "fetch_server_listing"]


@dataclass(frozen=True, slots=True)
class ServerListing:
    """Result of a listing: a catalogue or an error."""

    tool_listing: ToolListing
    catalogue: Catalogue | None
    error: ServerError | None
    seconds: float


async def fetch_server_listing(
    tool_directory: ToolDirectory, call_path: CallPath, principal: Principal, server: Server
) -> ServerListing:
    """Connect if necessary and list the tools. A ServerError is returned in ``error``, not raised."""
    began = time.perf_counter()
    if not server.enabled:
        cause = server.disabled_reason or "the server is disabled in its entry"
        return ServerListing(
            tool_directory.known_listing(principal),
            None,
            Unreachable(cause, server=server.id),
            0.0,
        )
    tool_listing = await tool_directory.refresh(principal, fresh=True, only=[server.id])
    error = tool_listing.failures.get(server.id)
    if error is not None:
        # Errors may quote headers or URLs with credentials of the server.
        call_path.redact_error(error)
    catalogue = None if error is not None else tool_listing.catalogues.get(server.id)
    return ServerListing(tool_listing, catalogue, error, time.perf_counter() - began)
