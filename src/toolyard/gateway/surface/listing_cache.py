"""What servers list besides tools: prompts, resources and templates, kept for as long as they say."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from toolyard.clients import ClientManager
from toolyard.clients.deferred_listings import in_time
from toolyard.clients.pagination import Listing
from toolyard.errors import Unreachable
from toolyard.gateway.surface.list_repair import listed
from toolyard.types.principal import Principal
from toolyard.types.server import Server

__all__ = ["Shelves"]

_Key: TypeAlias = tuple[str, str, str]
"""The server's and the principal's id, and the method."""
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


_TELLS = {method: note for note, methods in _EMPTIED_BY.items() for method in methods}


@dataclass(slots=True)
class _Shelf:
    server: Server
    listing: Listing
    until: float


@dataclass(slots=True, eq=False)
class _Flight:
    task: asyncio.Task[Listing]
    began: float
    before: Listing | None
    late: bool = False
    """Somebody had a list without it."""


class Shelves:
    """Lists of servers, each fetched once for everyone who waits for it. Kept by principal."""

    def __init__(
        self, manager: ClientManager, told: Callable[[str, str, str, Mapping[str, Any]], None]
    ) -> None:
        """``told`` hears, as if the server had said it, that a list came which somebody did without."""
        self._manager = manager
        self._told = told
        self._shelves: OrderedDict[_Key, _Shelf] = OrderedDict()
        self._fetching: dict[_Key, _Flight] = {}

    async def get(
        self, server: Server, method: str, principal: Principal, *, patient: bool = True
    ) -> Listing:
        """The whole list. Raises a ServerError. One who is not patient gets the last one that there was, or
        Unreachable, where it is long in coming."""
        key = (server.id, principal.id, method)
        shelf = self._shelves.get(key)
        if shelf is not None and shelf.server is server and time.monotonic() < shelf.until:
            return shelf.listing
        before = None if shelf is None or shelf.server is not server else shelf.listing
        flight = self._fetching.get(key) or self._take_off(key, server, principal, before)
        if not patient and not await in_time(flight.task, flight.began):
            flight.late = True
            if flight.before is None:
                raise Unreachable("has not answered yet", server=server.id)
            return flight.before
        return await asyncio.shield(flight.task)

    def waiting(self, principal_id: str, method: str | None = None) -> set[str]:
        """The servers of which nothing is known yet, while they are asked for a principal's list, or for
        any."""
        return {
            key[0]
            for key, flight in self._fetching.items()
            if key[1] == principal_id and method in (None, key[2]) and flight.before is None
        }

    def _take_off(self, key: _Key, server: Server, principal: Principal, before: Listing | None) -> _Flight:
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._fetch(server, key[2], principal))
        flight = self._fetching[key] = _Flight(task, loop.time(), before)
        task.add_done_callback(lambda _: self._landed(key, flight))
        return flight

    def _landed(self, key: _Key, flight: _Flight) -> None:
        del self._fetching[key]
        if flight.task.cancelled() or flight.task.exception() is not None or not flight.late:
            return
        if flight.before is None or flight.before.items != flight.task.result().items:
            self._told(key[0], key[1], _TELLS[key[2]], {})

    async def _fetch(self, server: Server, method: str, principal: Principal) -> Listing:
        began = time.monotonic()
        found = await self._manager.list_all(server.id, method, _KEYS[method], principal=principal)
        listing = replace(found, items=listed(method, found.items))
        ttl = server.cache_ttl if not listing.ttl_ms else min(listing.ttl_ms / 1000, server.cache_ttl)
        self._shelves[server.id, principal.id, method] = _Shelf(server, listing, began + ttl)
        while len(self._shelves) > _KEPT:
            self._shelves.popitem(last=False)
        return listing

    def forget(self, server_ids: Collection[str]) -> None:
        """These servers are gone."""
        for key in [key for key in self._shelves if key[0] in server_ids]:
            del self._shelves[key]

    def heard(self, server_id: str, principal_id: str, method: str, params: Mapping[str, Any]) -> None:
        """A server says that a list of its changed."""
        for emptied in _EMPTIED_BY.get(method, ()):
            for key in [key for key in self._shelves if key[0] == server_id and key[2] == emptied]:
                del self._shelves[key]
