"""Cache of prompts, resources and templates of servers, for the lifetime that the servers declare."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from toolyard.clients import ConnectionManager
from toolyard.clients.deferred_listings import wait_until_deadline
from toolyard.clients.pagination import PagedList
from toolyard.concurrency.lru_cache import LruCache
from toolyard.errors import Unreachable
from toolyard.gateway.surface.list_repair import repair_list
from toolyard.types.account import Principal
from toolyard.types.server import Server

__all__ = ["ListingCache"]

_ListingKey: TypeAlias = tuple[str, str, str]
"""Server id, principal id and method."""
_MAX_CACHED_LISTINGS = 1024
_RESULT_KEYS = {
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
_INVALIDATED_METHODS = {
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
}


_CHANGE_NOTIFICATIONS = {method: note for note, methods in _INVALIDATED_METHODS.items() for method in methods}


@dataclass(slots=True)
class _CacheEntry:
    server: Server
    listing: PagedList
    expires_at: float


@dataclass(slots=True, eq=False)
class _ListingFetch:
    task: asyncio.Task[PagedList]
    started_at: float
    previous: PagedList | None
    has_missed_deadline: bool = False
    """Whether a list was returned without this listing."""
    is_outdated: bool = False
    """Whether the server has reported a change since the fetch began."""


class ListingCache:
    """Listings by server and principal; concurrent requests share one fetch."""

    def __init__(
        self,
        manager: ConnectionManager,
        on_notification: Callable[[str, str, str, Mapping[str, Any]], None],
        *,
        list_deadline: float,
    ) -> None:
        """``on_notification`` is called as if the server had sent ``list_changed`` when a listing arrives
        after ``list_deadline`` seconds."""
        self._manager = manager
        self._list_deadline = list_deadline
        self._on_notification = on_notification
        self._entries: LruCache[_ListingKey, _CacheEntry] = LruCache(_MAX_CACHED_LISTINGS)
        self._fetches: dict[_ListingKey, _ListingFetch] = {}
        """Fetches in progress that new requests may share."""
        self._running_tasks: set[asyncio.Task[PagedList]] = set()

    def __len__(self) -> int:
        return len(self._entries)

    async def get(self, server: Server, method: str, principal: Principal, *, wait: bool = True) -> PagedList:
        """Return the whole list. Raises ServerError.

        Without ``wait``, returns the previous list, or raises Unreachable, when fetching takes long.
        """
        key = (server.id, principal.id, method)
        shelf = self._entries.get(key)
        if shelf is not None and shelf.server is server and time.monotonic() < shelf.expires_at:
            return shelf.listing
        before = None if shelf is None or shelf.server is not server else shelf.listing
        flight = self._fetches.get(key) or self._start_fetch(key, server, principal, before)
        if not wait and not await wait_until_deadline(flight.task, flight.started_at, self._list_deadline):
            flight.has_missed_deadline = True
            if flight.previous is None:
                raise Unreachable("has not answered yet", server=server.id)
            return flight.previous
        return await asyncio.shield(flight.task)

    def pending_server_ids(self, principal_id: str, method: str | None = None) -> set[str]:
        """Return the servers whose first listing is still being fetched, for one method or any."""
        return {
            key[0]
            for key, flight in self._fetches.items()
            if key[1] == principal_id and method in (None, key[2]) and flight.previous is None
        }

    def _start_fetch(
        self, key: _ListingKey, server: Server, principal: Principal, before: PagedList | None
    ) -> _ListingFetch:
        loop = asyncio.get_running_loop()
        began = time.monotonic()
        task = loop.create_task(self._fetch_listing(server, key[2], principal))
        flight = self._fetches[key] = _ListingFetch(task, loop.time(), before)
        self._running_tasks.add(task)
        task.add_done_callback(lambda _: self._on_fetch_done(key, flight, server, began))
        return flight

    def _on_fetch_done(self, key: _ListingKey, flight: _ListingFetch, server: Server, began: float) -> None:
        self._running_tasks.discard(flight.task)
        # Another fetch may have taken the place of an outdated one.
        if self._fetches.get(key) is flight:
            del self._fetches[key]
        if flight.task.cancelled() or flight.task.exception() is not None:
            return
        listing = flight.task.result()
        if not flight.is_outdated:
            ttl = server.cache_ttl if not listing.ttl_ms else min(listing.ttl_ms / 1000, server.cache_ttl)
            self._entries[key] = _CacheEntry(server, listing, began + ttl)
        if not flight.has_missed_deadline:
            return
        if flight.previous is None or flight.previous.items != listing.items:
            self._on_notification(key[0], key[1], _CHANGE_NOTIFICATIONS[key[2]], {})

    async def _fetch_listing(self, server: Server, method: str, principal: Principal) -> PagedList:
        found = await self._manager.list_all(server.id, method, _RESULT_KEYS[method], principal=principal)
        # In a thread, because the items of a server may hold a million values.
        return replace(found, items=await asyncio.to_thread(repair_list, method, found.items))

    def forget_servers(self, server_ids: Collection[str]) -> None:
        """Drop the listings of removed servers."""
        self._drop(lambda key: key[0] in server_ids)

    def invalidate(self, server_id: str, notification: str) -> None:
        """Drop the listings that a server reports as changed, by the method of its notification."""
        methods = _INVALIDATED_METHODS.get(notification, ())
        self._drop(lambda key: key[0] == server_id and key[2] in methods)

    def _drop(self, matches: Callable[[_ListingKey], bool]) -> None:
        for key in [key for key in self._entries if matches(key)]:
            del self._entries[key]
        # A listing that is being fetched may be older than the change. Those that wait for it get it, but it
        # is not stored, and later requests fetch another one.
        for key in [key for key in self._fetches if matches(key)]:
            self._fetches.pop(key).is_outdated = True
