"""Asking one server now what it has: for the page that shows it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from toolyard.catalog.tool_listing import Roster
from toolyard.errors import ServerError, Unreachable
from toolyard.types.catalog import Catalogue
from toolyard.types.principal import Principal
from toolyard.types.server import Server
from toolyard.web.services import Site

__all__ = ["Asked", "ask_now"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What came of it: a catalogue, or why there is none."""

    roster: Roster
    catalogue: Catalogue | None
    error: ServerError | None
    seconds: float


async def ask_now(site: Site, principal: Principal, server: Server) -> Asked:
    """Connect where needed and list the tools. Never raises a ServerError."""
    began = time.perf_counter()
    if not server.enabled:
        cause = server.disabled_reason or "it is switched off in its entry"
        return Asked(site.parts.rosters.known(principal), None, Unreachable(cause, server=server.id), 0.0)
    roster = await site.parts.rosters.current(principal, fresh=True, only=[server.id])
    error = roster.failures.get(server.id)
    if error is not None:
        site.parts.calls.hush(error)
    catalogue = None if error is not None else roster.catalogues.get(server.id)
    return Asked(roster, catalogue, error, time.perf_counter() - began)
