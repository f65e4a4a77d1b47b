"""The catalogue of each server, kept as long as it is fresh and no longer than it is useful."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeVar
from weakref import WeakValueDictionary

from toolyard.catalog.cache_hints import effective_ttl
from toolyard.catalog.hashes import entry_hash
from toolyard.catalog.listing_codec import body_hash, parse_stored_listing, validate_listing
from toolyard.catalog.single_flight import SingleFlight
from toolyard.catalog.storage import CatalogueStorage, ListingKey, StoredListing
from toolyard.catalog.tool_validation import SchemaCheck
from toolyard.errors import ServerError
from toolyard.types.catalog import CacheScope, Catalogue, RawListing, ValidatedListing
from toolyard.types.principal import Principal
from toolyard.types.server import Server, Trust
from toolyard.types.tool import JsonObject

__all__ = ["CatalogueCache", "ListingFetcher", "ListingObserver", "ServerSchemaCheck"]

_MAX_CATALOGUES = 1024
_THREAD_MIN_TOOLS = 200
"""Tools. From here on judging a listing takes more than a millisecond or two and leaves the event loop."""
_THREAD_MIN_BODY_BYTES = 128 * 1024
_PUBLIC_SCOPE = "public"
_SHARED_SCOPE = "shared"

_log = logging.getLogger("toolyard.catalog.cache")
_T = TypeVar("_T")


class ListingFetcher(Protocol):
    """Asks a server what it has, connecting to it if need be."""

    async def __call__(self, server_id: str, principal: Principal, chat: str | None = None) -> RawListing:
        """The complete listing, all pages; over a chat's own connection, where it has one. Raises
        ServerError."""
        ...


class ServerSchemaCheck(Protocol):
    """A further check of a tool that depends on its server, e.g. on its transport."""

    def __call__(self, server: Server, input_schema: JsonObject) -> str | None:
        """The reason to quarantine the tool, or None. Must not raise."""
        ...


class ListingObserver(Protocol):
    """Hears of each listing before anybody is given it."""

    async def __call__(self, server: Server, contents: ValidatedListing) -> None:
        """Raises what keeps it from being given out."""
        ...


class _Generation(NamedTuple):
    """Counts what happened to a server's catalogue, so that work begun earlier can tell."""

    changes: int = 0
    """The list changed: what was fetched before is old news."""
    removals: int = 0
    """Copies were dropped: what was fetched before must not come back."""


class CatalogueCache:
    """The catalogues of all servers, per principal.

    What is fresh is answered from memory, what is not is fetched: once for all who ask at the same time.
    A private listing serves only the principal who fetched it; one that a trusted server declares public, or
    that came over a connection shared by configuration, serves everyone. A failed fetch is not remembered.
    A server whose ``cache_ttl`` is 0 is asked each time, and nothing about it is kept.
    """

    def __init__(
        self,
        fetch: ListingFetcher,
        storage: CatalogueStorage,
        *,
        schema_check: ServerSchemaCheck | None = None,
        on_listing: ListingObserver | None = None,
        on_cache_hit: ListingObserver | None = None,
        clock: Callable[[], float] = time.time,
        capacity: int = _MAX_CATALOGUES,
        key: Callable[[], bytes] = bytes,
    ) -> None:
        """``clock`` is in seconds since the epoch; ``capacity`` is how many catalogues stay in memory.
        ``recheck`` is told of a listing each time that a copy in memory is used. ``key`` gives the key of
        the hashes that stand for entries in ``storage``."""
        self._fetch = fetch
        self._storage = storage
        self._schema_check = schema_check
        self._on_listing = on_listing
        self._on_cache_hit = on_cache_hit
        self._clock = clock
        self._capacity = capacity
        self._key = key
        self._catalogues: OrderedDict[ListingKey, Catalogue] = OrderedDict()
        self._change_counts: dict[ListingKey, int] = {}
        """How often a server's list had changed when what is held of it was asked for."""
        self._contents: WeakValueDictionary[tuple[str, str], ValidatedListing] = WeakValueDictionary()
        self._fetches: SingleFlight[tuple[ListingKey, _Generation, str | None], Catalogue] = SingleFlight()
        self._loads: SingleFlight[tuple[ListingKey, _Generation, float], Catalogue | None] = SingleFlight()
        self._generations: dict[str, _Generation] = {}
        self._entry_hashes: dict[str, tuple[Server, str]] = {}

    async def get(
        self,
        server: Server,
        principal: Principal,
        *,
        connected: bool = False,
        fresh: bool = False,
        chat: str | None = None,
    ) -> Catalogue:
        """The catalogue, as fresh as it can be had without connecting for nothing.

        Past its ttl a kept copy still serves, marked as stale, while the server is not connected; of a
        connected server it is fetched again. ``fresh`` fetches in any case, connecting if need be. ``chat``
        is the one that wants it, over whose connection it is fetched.

        Raises ServerError where a fetch fails and no copy is kept, or ``fresh`` forbids to show one.
        """
        kept = await self.peek(server, principal)
        if kept is not None and not fresh:
            if not kept.stale:
                return kept
            if not connected:
                # Another process may have fetched since.
                newer = await self._load_once(server, principal, newer_than=kept.fetched_at)
                return kept if newer is None else self._with_current_age(newer)
        try:
            return await self._fetch_once(server, principal, chat)
        except ServerError as error:
            if kept is None or fresh:
                raise
            return replace(kept, failure=error.cause)

    async def peek(self, server: Server, principal: Principal) -> Catalogue | None:
        """What is kept, however old, without asking the server; from memory, if it is there."""
        if server.cache_ttl <= 0:
            return None
        held = self._newest_in_memory(self._readable_keys(server, principal))
        if held is None:
            held = await self._load_once(server, principal)
        elif self._on_cache_hit is not None:
            await self._on_cache_hit(server, held.contents)
        return None if held is None else self._with_current_age(held)

    async def list_changed(self, server_id: str) -> None:
        """The server says that what it has is no longer what it had: nothing kept counts as fresh now."""
        era = self._current_generation(server_id)
        self._generations[server_id] = era._replace(changes=era.changes + 1)
        for key, held in self._catalogues.items():
            if key.server_id == server_id:
                self._catalogues[key] = replace(held, ttl=0.0)
        await self._storage.expire(server_id)

    async def forget(self, server_id: str, principal: Principal | None = None) -> None:
        """Drop what is kept: all of it, or what one principal fetched with credentials that changed."""
        scope = None if principal is None else _private_scope(principal)
        if scope is None and not self._has_pending_work(server_id):
            # Nobody is left who could bring it back, so there is nothing to remember either.
            self._generations.pop(server_id, None)
        else:
            era = self._current_generation(server_id)
            self._generations[server_id] = era._replace(removals=era.removals + 1)
        self._entry_hashes.pop(server_id, None)
        for key in [
            key for key in self._catalogues if key.server_id == server_id and scope in (None, key.scope)
        ]:
            del self._catalogues[key]
            self._change_counts.pop(key, None)
        await self._storage.forget(server_id, scope)

    async def close(self) -> None:
        """Cancel the fetches that are under way and wait for their end."""
        await self._fetches.close()
        await self._loads.close()

    async def _fetch_once(self, server: Server, principal: Principal, chat: str | None = None) -> Catalogue:
        era = self._current_generation(server.id)
        key = self._readable_keys(server, principal)[0]
        # Chats share what they all get over the usual connection.
        chat = chat if server.instance is not None else None
        return await self._fetches.run(
            (key, era, chat), lambda: self._fetch_and_store(server, principal, era, chat)
        )

    async def _fetch_and_store(
        self, server: Server, principal: Principal, began: _Generation, chat: str | None
    ) -> Catalogue:
        listing = await self._fetch(server.id, principal, chat)
        now = self._clock()
        inspect = self._schema_check_for(server)
        contents, body = await _run_off_loop(
            len(listing.tools) >= _THREAD_MIN_TOOLS, lambda: validate_listing(server.id, listing, inspect)
        )
        if self._on_listing is not None:
            await self._on_listing(server, contents)
        if server.cache_ttl <= 0:
            return Catalogue(contents, now, 0.0)
        key = self._key_to_write(server, principal, listing)
        contents = self._contents.setdefault((key.entry_hash, contents.content_hash), contents)
        catalogue = Catalogue(contents, now, effective_ttl(server.cache_ttl, listing.ttl))
        held = self._store_in_memory(key, catalogue, began)
        if body is None:
            _log.warning("the listing of server '%s' cannot be written as JSON: not stored", server.id)
        elif held is not None:
            await self._storage.save(StoredListing(key, contents.content_hash, now, held.ttl, body))
        return catalogue

    async def _load_once(
        self, server: Server, principal: Principal, *, newer_than: float = 0.0
    ) -> Catalogue | None:
        era = self._current_generation(server.id)
        keys = self._readable_keys(server, principal)
        return await self._loads.run(
            (keys[0], era, newer_than), lambda: self._load_from_storage(server, keys, newer_than, era)
        )

    async def _load_from_storage(
        self, server: Server, keys: tuple[ListingKey, ...], newer_than: float, began: _Generation
    ) -> Catalogue | None:
        stored = await self._storage.load(keys, newer_than=newer_than)
        if stored is None:
            return None
        named = (stored.key.entry_hash, stored.content_hash)
        contents = self._contents.get(named)
        if contents is None:
            inspect = self._schema_check_for(server)
            try:
                contents = await _run_off_loop(
                    len(stored.body) >= _THREAD_MIN_BODY_BYTES,
                    lambda: _verify_and_parse(server.id, stored, inspect),
                )
            except ValueError as error:
                _log.warning("the stored catalogue of server '%s' is dropped: %s", server.id, error)
                await self._storage.forget(server.id, stored.key.scope)
                return None
            contents = self._contents.setdefault(named, contents)
        if self._on_listing is not None:
            await self._on_listing(server, contents)
        newest = self._newest_in_memory(keys)
        if newest is not None and newest.fetched_at >= stored.fetched_at:
            return newest
        return self._store_in_memory(stored.key, Catalogue(contents, stored.fetched_at, stored.ttl), began)

    def _store_in_memory(self, key: ListingKey, catalogue: Catalogue, began: _Generation) -> Catalogue | None:
        """Take it into memory as what it has become meanwhile; None where it must not be kept."""
        era = self._current_generation(key.server_id)
        if era.removals != began.removals:
            return None
        if era.changes != began.changes:
            if key in self._catalogues and self._change_counts.get(key, 0) > began.changes:
                return None  # A fetch that began later has ended earlier, and knows more.
            catalogue = replace(catalogue, ttl=0.0)
        self._catalogues[key] = catalogue
        self._change_counts[key] = began.changes
        self._catalogues.move_to_end(key)
        while len(self._catalogues) > self._capacity:
            self._change_counts.pop(self._catalogues.popitem(last=False)[0], None)
        return catalogue

    def _newest_in_memory(self, keys: tuple[ListingKey, ...]) -> Catalogue | None:
        newest: Catalogue | None = None
        for key in keys:
            held = self._catalogues.get(key)
            if held is not None:
                self._catalogues.move_to_end(key)
                if newest is None or held.fetched_at > newest.fetched_at:
                    newest = held
        return newest

    def _with_current_age(self, held: Catalogue) -> Catalogue:
        age = self._clock() - held.fetched_at
        # A copy from the future means that a clock was set back: nothing is known about its age.
        stale = not 0 <= age < held.ttl
        # Not by replace(), which costs more than the rest of a look into memory, and every call looks.
        return Catalogue(held.contents, held.fetched_at, held.ttl, max(0.0, age), stale, held.failure)

    def _readable_keys(self, server: Server, principal: Principal) -> tuple[ListingKey, ...]:
        """Where a copy for this caller may lie; the first is the caller's own place."""
        entry = self._entry_hash_of(server)
        if server.shared:
            return (ListingKey(server.id, entry, _SHARED_SCOPE),)
        own = ListingKey(server.id, entry, _private_scope(principal))
        # Whose listing is the same for everyone is a claim, and an untrusted server's claims do not count.
        return (
            (own,) if server.trust is Trust.UNTRUSTED else (own, ListingKey(server.id, entry, _PUBLIC_SCOPE))
        )

    def _key_to_write(self, server: Server, principal: Principal, listing: RawListing) -> ListingKey:
        places = self._readable_keys(server, principal)
        return places[-1] if listing.scope is CacheScope.PUBLIC else places[0]

    def _has_pending_work(self, server_id: str) -> bool:
        fetches = self._fetches.has_pending(lambda key: key[0].server_id == server_id)
        return fetches or self._loads.has_pending(lambda key: key[0].server_id == server_id)

    def _current_generation(self, server_id: str) -> _Generation:
        return self._generations.get(server_id, _Generation())

    def _entry_hash_of(self, server: Server) -> str:
        known = self._entry_hashes.get(server.id)
        if known is None or known[0] is not server:
            known = self._entry_hashes[server.id] = (server, entry_hash(server, self._key()))
        return known[1]

    def _schema_check_for(self, server: Server) -> SchemaCheck | None:
        check = self._schema_check
        return None if check is None else lambda schema: check(server, schema)


def _private_scope(principal: Principal) -> str:
    return f"principal:{principal.id}"


def _verify_and_parse(server_id: str, stored: StoredListing, inspect: SchemaCheck | None) -> ValidatedListing:
    if body_hash(stored.body) != stored.content_hash:
        raise ValueError("its bytes are not those that were stored")
    return parse_stored_listing(server_id, stored.body, inspect)


async def _run_off_loop(large: bool, work: Callable[[], _T]) -> _T:
    return await asyncio.to_thread(work) if large else work()
