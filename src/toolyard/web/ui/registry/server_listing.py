"""Asking one server now what it has: for the page that shows it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from toolyard.catalog.tool_listing import ToolListing
from toolyard.errors import ServerError, Unreachable
from toolyard.types.catalog import Catalogue
from toolyard.types.principal import Principal
from toolyard.types.server import Server
from toolyard.web.services import Services

__all__ = ["ServerListing", "fetch_server_listing"]


@dataclass(frozen=True, slots=True)
class ServerListing:
    """What came of it: a catalogue, or why there is none."""

    tool_listing: ToolListing
    catalogue: Catalogue | None
    error: ServerError | None
    seconds: float


async def fetch_server_listing(site: Services, principal: Principal, server: Server) -> ServerListing:
    """Connect where needed and list the tools. Never raises a ServerError."""
    began = time.perf_counter()
    if not server.enabled:
        cause = server.disabled_reason or "the server is disabled in its entry"
        return ServerListing(
            site.parts.tool_directory.known_listing(principal),
            None,
            Unreachable(cause, server=server.id),
            0.0,
        )
    roster = await site.parts.tool_directory.refresh(principal, fresh=True, only=[server.id])
    error = roster.failures.get(server.id)
    if error is not None:
        site.parts.call_path.redact_error(error)
    catalogue = None if error is not None else roster.catalogues.get(server.id)
    return ServerListing(roster, catalogue, error, time.perf_counter() - began)
