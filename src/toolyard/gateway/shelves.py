"""What servers list besides tools: prompts, resources and templates, kept for as long as they say."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolyard.clients import ClientManager
from toolyard.clients.listing import Listing
from toolyard.model.principal import Principal
from toolyard.model.server import Server

__all__ = ["Shelves"]

_KEPT = 1024
_KEYS = {
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
_EMPTIED_BY = {
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
}


@dataclass(slots=True)
class _Shelf:
    server: Server
    listing: Listing
    until: float


class Shelves:
    """Lists of servers, each fetched once for everyone who waits for it. Kept by principal."""

    def __init__(self, manager: ClientManager) -> None:
        self._manager = manager
        self._shelves: OrderedDict[tuple[str, str, str], _Shelf] = OrderedDict()
        self._fetching: dict[tuple[str, str, str], asyncio.Task[Listing]] = {}

    async def get(self, server: Server, method: str, principal: Principal) -> Listing:
        """The whole list. Raises a ServerError."""
        key = (server.id, principal.id, method)
        shelf = self._shelves.get(key)
        if shelf is not None and shelf.server is server and time.monotonic() < shelf.until:
            return shelf.listing
        flight = self._fetching.get(key)
        if flight is None:
            flight = self._fetching[key] = asyncio.ensure_future(self._fetch(server, method, principal))
            flight.add_done_callback(lambda _: self._fetching.pop(key, None))
            flight.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(flight)

    async def _fetch(self, server: Server, method: str, principal: Principal) -> Listing:
        began = time.monotonic()
        listing = await self._manager.list_all(server.id, method, _KEYS[method], principal=principal)
        ttl = server.cache_ttl if not listing.ttl_ms else min(listing.ttl_ms / 1000, server.cache_ttl)
        self._shelves[server.id, principal.id, method] = _Shelf(server, listing, began + ttl)
        while len(self._shelves) > _KEPT:
            self._shelves.popitem(last=False)
        return listing

    def heard(self, server_id: str, principal_id: str, method: str, params: Mapping[str, Any]) -> None:
        """A server says that a list of its changed."""
        for emptied in _EMPTIED_BY.get(method, ()):
            for key in [key for key in self._shelves if key[0] == server_id and key[2] == emptied]:
                del self._shelves[key]
