"""Cache of the servers' catalogues, in memory and in a ``ListingStorage``.

Cache hints of a server say how long a listing may be cached, and for which principals.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NamedTuple, TypeAlias
from weakref import WeakValueDictionary

from toolyard.catalog.hashes import entry_hash
from toolyard.catalog.listing_codec import body_hash, parse_stored_listing, validate_listing
from toolyard.catalog.listing_storage import (
    FailureStorage,
    ListingKey,
    ListingStorage,
    MemoryFailureStorage,
    StoredFailure,
    StoredListing,
)
from toolyard.catalog.tool_validation import SchemaCheck
from toolyard.concurrency.lru_cache import LruCache
from toolyard.concurrency.tasks import SingleFlight
from toolyard.errors import ServerError, SignInNeeded, Unreachable
from toolyard.types.account import Principal
from toolyard.types.server import Server, Trust
from toolyard.types.tool import CacheScope, Catalogue, JsonObject, RawListing, ValidatedListing

__all__ = [
    "MAX_TTL_SECONDS",
    "CatalogueCache",
    "InputSchemaCheck",
    "ListingFetcher",
    "ListingObserver",
    "effective_ttl",
]


MAX_TTL_SECONDS = 86_400.0
"""Maximum ttl that a server's hint can set: one day, in seconds."""


def effective_ttl(configured: float, hinted: float | None) -> float:
    """Return the seconds for which a listing is fresh.

    A configured 0 overrides the server's hint; otherwise the hint, if any, overrides the configured value.
    """
    if configured <= 0:
        return 0.0
    return configured if hinted is None else min(max(hinted, 0.0), MAX_TTL_SECONDS)


_MAX_CATALOGUES = 1024
_THREAD_MIN_BODY_BYTES = 128 * 1024
"""Size from which a stored listing is parsed in a thread."""
_PUBLIC_SCOPE = "public"
_SHARED_SCOPE = "shared"

_log = logging.getLogger("toolyard.catalog.cache")

_FAILURE_MEMORY_SECONDS = 60.0
"""Seconds for which listings do not try a server again that has timed out."""
_SLOW_FAILURE_SECONDS = 5.0
"""Duration from which a failed fetch is remembered; less if the server's connect timeout is shorter."""


ListingFetcher: TypeAlias = Callable[[str, Principal, str | None], Awaitable[RawListing]]
"""Returns the complete listing of a server, all pages, and connects to it if necessary; raises ServerError.

The last argument is a chat: its dedicated connection is used, if it has one."""
InputSchemaCheck: TypeAlias = Callable[[Server, JsonObject], str | None]
"""Additional check of a tool's input schema that depends on its server, e.g. on its transport. Returns the
reason to quarantine the tool, or None. Must not raise."""
ListingObserver: TypeAlias = Callable[[Server, ValidatedListing], Awaitable[None]]
"""Callback for each listing, awaited before the listing is returned to any caller. An exception is raised to
the caller, who then does not get the listing."""


class _Generation(NamedTuple):
    """Counters of events that invalidate a server's catalogue.

    A fetch remembers the counters from its start and compares them at its end, because the cache may be
    invalidated while the fetch is running.
    """

    changes: int = 0
    """Number of ``list_changed`` events. A listing fetched before the last one is stale."""
    removals: int = 0
    """Number of ``forget`` calls. A listing fetched before the last one must not be stored."""


class _CachedCatalogue(NamedTuple):
    catalogue: Catalogue
    changes: int
    """Value of ``_Generation.changes`` at the start of the fetch that produced it."""


class CatalogueCache:
    """Catalogues of all servers, per principal.

    Fresh catalogues are returned from memory, others are fetched; concurrent callers share one fetch. A
    private listing is returned only to the principal who fetched it. A listing is returned to everyone if a
    trusted server declares it public, or if it came over a connection shared by configuration. A fetch that
    failed after a long wait can be looked up for a minute (``recent_failure``). Listings of a server with
    ``cache_ttl`` 0 are fetched each time and never stored.
    """

    def __init__(
        self,
        fetch: ListingFetcher,
        storage: ListingStorage,
        *,
        schema_check: InputSchemaCheck | None = None,
        on_listing: ListingObserver | None = None,
        on_cache_hit: ListingObserver | None = None,
        clock: Callable[[], float] = time.time,
        capacity: int = _MAX_CATALOGUES,
        key: Callable[[], bytes] = bytes,
        failures: FailureStorage | None = None,
    ) -> None:
        """Create an empty cache.

        ``on_listing`` is awaited for each listing that was fetched or loaded, ``on_cache_hit`` each time a
        copy in memory is used. ``clock`` returns seconds since the epoch; ``capacity`` is the maximum number
        of catalogues in memory. ``key`` returns the HMAC key for the entry hashes in ``storage``.
        """
        self._fetch = fetch
        self._storage = storage
        self._failures = failures or MemoryFailureStorage()
        self._schema_check = schema_check
        self._on_listing = on_listing
        self._on_cache_hit = on_cache_hit
        self._clock = clock
        self._key = key
        self._catalogues: LruCache[ListingKey, _CachedCatalogue] = LruCache(capacity)
        self._contents: WeakValueDictionary[tuple[str, str], ValidatedListing] = WeakValueDictionary()
        self._fetches: SingleFlight[tuple[ListingKey, _Generation, str | None], Catalogue] = SingleFlight(
            cancel_when_abandoned=True
        )
        self._loads: SingleFlight[tuple[ListingKey, _Generation, float], Catalogue | None] = SingleFlight(
            cancel_when_abandoned=True
        )
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
        """Return the catalogue of a server, without connecting only to refresh a stale copy.

        After its ttl, a copy is still returned, marked as stale, if the server is not connected; if it is
        connected, the listing is fetched again. ``fresh`` fetches in any case and connects if necessary.
        ``chat`` selects the dedicated connection to use.

        Raise ServerError if a fetch fails and there is no copy, or if it fails with ``fresh``.
        """
        cached = await self.peek(server, principal)
        if cached is not None and not fresh:
            if not cached.stale:
                return cached
            if not connected:
                # Another process that uses the same storage may have fetched since.
                newer = await self._load_once(server, principal, newer_than=cached.fetched_at)
                return cached if newer is None else self._with_current_age(newer)
        try:
            return await self._fetch_once(server, principal, chat)
        except ServerError as error:
            if cached is None or fresh:
                raise
            return replace(cached, failure=error.cause)

    async def peek(self, server: Server, principal: Principal) -> Catalogue | None:
        """Return the cached catalogue of any age, from memory or storage, without contacting the server."""
        if server.cache_ttl <= 0:
            return None
        cached = self._newest_in_memory(self._readable_keys(server, principal))
        if cached is None:
            cached = await self._load_once(server, principal)
        elif self._on_cache_hit is not None:
            await self._on_cache_hit(server, cached.contents)
        return None if cached is None else self._with_current_age(cached)

    async def recent_failure(self, server: Server, principal: Principal) -> ServerError | None:
        """Return the failure of a fetch that timed out within the last minute, so that listings need not wait
        for a server that hangs. An entry that changed since then has none."""
        failure = await self._load_failure(server, principal)
        age = math.inf if failure is None else self._clock() - failure.failed_at
        if failure is None or not 0 <= age < _FAILURE_MEMORY_SECONDS:
            return None
        wait = math.ceil(_FAILURE_MEMORY_SECONDS - age)
        retry = f"tried {math.ceil(age)} s ago; lists try again in {wait} s, and calls at once"
        hint = f"{failure.hint}; {retry}" if failure.hint else retry
        return Unreachable(failure.cause, server=server.id, hint=hint)

    async def last_failure(self, server: Server, principal: Principal) -> ServerError | None:
        """Return the failure of the last fetch, if it timed out, even if that was long ago."""
        failure = await self._load_failure(server, principal)
        return failure and Unreachable(failure.cause, server=server.id, hint=failure.hint)

    async def _load_failure(self, server: Server, principal: Principal) -> StoredFailure | None:
        if server.instance is not None:
            return None
        return await self._failures.load_failure(self._failure_key(server, principal))

    async def forget_failures(self, server_id: str) -> None:
        """Let the next listing try a server again."""
        await self._failures.forget_failures(server_id)

    def _failure_key(self, server: Server, principal: Principal) -> ListingKey:
        key = self._readable_keys(server, principal)[0]
        # Another timeout does not affect the tools, but the outcome.
        return key._replace(entry_hash=f"{key.entry_hash} {server.timeouts.connect:g}")

    async def _fetch_listing(self, server: Server, principal: Principal, chat: str | None) -> RawListing:
        started_at = time.monotonic()
        try:
            listing = await self._fetch(server.id, principal, chat)
        except ServerError as error:
            waited = time.monotonic() - started_at
            # A failure that takes no time can as well be found out again, and may be corrected by then.
            is_slow = waited >= min(_SLOW_FAILURE_SECONDS, server.timeouts.connect)
            if is_slow and server.instance is None and not isinstance(error, SignInNeeded):
                failure = StoredFailure(self._clock(), error.cause, error.hint)
                await self._failures.save_failure(self._failure_key(server, principal), failure)
            raise
        if server.instance is None:
            await self._failures.forget_failures(server.id)
        return listing

    async def list_changed(self, server_id: str) -> None:
        """Mark all copies of a server's catalogue as stale, after its ``list_changed`` notification."""
        generation = self._current_generation(server_id)
        self._generations[server_id] = generation._replace(changes=generation.changes + 1)
        for key in [key for key in self._catalogues if key.server_id == server_id]:
            catalogue, changes = self._catalogues[key]
            self._catalogues[key] = _CachedCatalogue(replace(catalogue, ttl=0.0), changes)
        # Memory first, without an await in between. A caller that comes while the storage is written must not
        # get the old copy as fresh.
        await self._storage.expire(server_id)

    async def forget(self, server_id: str, principal: Principal | None = None) -> None:
        """Delete all copies of a server's catalogue, or those of one principal whose credentials changed."""
        scope = None if principal is None else _private_scope(principal)
        if scope is None and not self._has_pending_work(server_id):
            # No fetch is running that could store the listing again, so the counters are not needed. Without
            # this, counters of removed servers would accumulate.
            self._generations.pop(server_id, None)
        else:
            generation = self._current_generation(server_id)
            self._generations[server_id] = generation._replace(removals=generation.removals + 1)
        self._entry_hashes.pop(server_id, None)
        for key in [
            key for key in self._catalogues if key.server_id == server_id and scope in (None, key.scope)
        ]:
            del self._catalogues[key]
        await self._storage.forget(server_id, scope)
        await self._failures.forget_failures(server_id)

    async def close(self) -> None:
        """Cancel the running fetches and wait until they have ended."""
        await self._fetches.close()
        await self._loads.close()

    async def _fetch_once(self, server: Server, principal: Principal, chat: str | None = None) -> Catalogue:
        generation = self._current_generation(server.id)
        key = self._readable_keys(server, principal)[0]
        # Only instances have connections dedicated to a chat; chats share the fetches of all other servers.
        chat = chat if server.instance is not None else None
        # The generation is part of the key: after a change, a caller must not share an older fetch.
        return await self._fetches.run(
            (key, generation, chat), lambda: self._fetch_and_store(server, principal, generation, chat)
        )

    async def _fetch_and_store(
        self, server: Server, principal: Principal, start_generation: _Generation, chat: str | None
    ) -> Catalogue:
        listing = await self._fetch_listing(server, principal, chat)
        now = self._clock()
        schema_check = self._schema_check_for(server)
        # In a thread, however few the tools: one may have tens of megabytes.
        contents, body = await asyncio.to_thread(validate_listing, server.id, listing, schema_check)
        rejected = f", and {len(contents.quarantined)} that cannot be used" if contents.quarantined else ""
        _log.info("server '%s' lists %d tools%s", server.id, len(contents.definitions), rejected)
        if self._on_listing is not None:
            await self._on_listing(server, contents)
        if server.cache_ttl <= 0:
            return Catalogue(contents, now, 0.0)
        keys = self._readable_keys(server, principal)
        key = keys[-1] if listing.scope is CacheScope.PUBLIC else keys[0]
        # Principals with equal listings share one object. Its identity also serves as cache key elsewhere.
        contents = self._contents.setdefault((key.entry_hash, contents.content_hash), contents)
        catalogue = Catalogue(contents, now, effective_ttl(server.cache_ttl, listing.ttl))
        stored = self._store_in_memory(key, catalogue, start_generation)
        if body is None:
            _log.warning(
                "the tool list of server '%s' is not JSON serializable, so it was not stored", server.id
            )
        elif stored is not None:
            await self._storage.save(StoredListing(key, contents.content_hash, now, stored.ttl, body))
        return catalogue

    async def _load_once(
        self, server: Server, principal: Principal, *, newer_than: float = 0.0
    ) -> Catalogue | None:
        generation = self._current_generation(server.id)
        keys = self._readable_keys(server, principal)
        return await self._loads.run(
            (keys[0], generation, newer_than),
            lambda: self._load_from_storage(server, keys, newer_than, generation),
        )

    async def _load_from_storage(
        self, server: Server, keys: tuple[ListingKey, ...], newer_than: float, start_generation: _Generation
    ) -> Catalogue | None:
        stored = await self._storage.load(keys, newer_than=newer_than)
        if stored is None:
            return None
        contents_key = (stored.key.entry_hash, stored.content_hash)
        contents = self._contents.get(contents_key)
        if contents is None:
            schema_check = self._schema_check_for(server)
            try:
                if len(stored.body) < _THREAD_MIN_BODY_BYTES:
                    contents = _verify_and_parse(server.id, stored, schema_check)
                else:
                    contents = await asyncio.to_thread(_verify_and_parse, server.id, stored, schema_check)
            except ValueError as error:
                _log.warning("the stored catalogue of server '%s' was dropped: %s", server.id, error)
                await self._storage.forget(server.id, stored.key.scope)
                return None
            contents = self._contents.setdefault(contents_key, contents)
        if self._on_listing is not None:
            await self._on_listing(server, contents)
        # A fetch may have completed while this was loading.
        newest = self._newest_in_memory(keys)
        if newest is not None and newest.fetched_at >= stored.fetched_at:
            return newest
        return self._store_in_memory(
            stored.key, Catalogue(contents, stored.fetched_at, stored.ttl), start_generation
        )

    def _store_in_memory(
        self, key: ListingKey, catalogue: Catalogue, start_generation: _Generation
    ) -> Catalogue | None:
        """Store a catalogue in memory unless it was invalidated since ``start_generation``.

        Return the stored catalogue, with a ttl of 0 if the list changed in the meantime, or None if it must
        not be stored.
        """
        generation = self._current_generation(key.server_id)
        if generation.removals != start_generation.removals:
            return None
        if generation.changes != start_generation.changes:
            if key in self._catalogues and self._catalogues[key].changes > start_generation.changes:
                return None  # A fetch that started later has already completed; its listing is newer.
            catalogue = replace(catalogue, ttl=0.0)
        self._catalogues[key] = _CachedCatalogue(catalogue, start_generation.changes)
        return catalogue

    def _newest_in_memory(self, keys: tuple[ListingKey, ...]) -> Catalogue | None:
        found = [cached.catalogue for key in keys if (cached := self._catalogues.get(key)) is not None]
        return max(found, key=lambda catalogue: catalogue.fetched_at, default=None)

    def _with_current_age(self, cached: Catalogue) -> Catalogue:
        age = self._clock() - cached.fetched_at
        # A time in the future means that the clock was set back; the real age is unknown.
        stale = not 0 <= age < cached.ttl
        # Every tool call comes through here, and replace() would cost more than the rest of the lookup.
        return Catalogue(cached.contents, cached.fetched_at, cached.ttl, max(0.0, age), stale, cached.failure)

    def _readable_keys(self, server: Server, principal: Principal) -> tuple[ListingKey, ...]:
        """Return the keys under which a copy for this principal may be stored, its own key first."""
        entry = self._entry_hash_of(server)
        if server.shared:
            return (ListingKey(server.id, entry, _SHARED_SCOPE),)
        own = ListingKey(server.id, entry, _private_scope(principal))
        # "public" is a claim of the server. An untrusted server could use it to show its listing to everyone.
        return (
            (own,) if server.trust is Trust.UNTRUSTED else (own, ListingKey(server.id, entry, _PUBLIC_SCOPE))
        )

    def _has_pending_work(self, server_id: str) -> bool:
        fetches = self._fetches.has_pending(lambda key: key[0].server_id == server_id)
        return fetches or self._loads.has_pending(lambda key: key[0].server_id == server_id)

    def _current_generation(self, server_id: str) -> _Generation:
        return self._generations.get(server_id, _Generation())

    def _entry_hash_of(self, server: Server) -> str:
        cached = self._entry_hashes.get(server.id)
        if cached is None or cached[0] is not server:
            cached = self._entry_hashes[server.id] = (server, entry_hash(server, self._key()))
        return cached[1]

    def _schema_check_for(self, server: Server) -> SchemaCheck | None:
        check = self._schema_check
        return None if check is None else lambda schema: check(server, schema)


def _private_scope(principal: Principal) -> str:
    return f"principal:{principal.id}"


def _verify_and_parse(
    server_id: str, stored: StoredListing, schema_check: SchemaCheck | None
) -> ValidatedListing:
    if body_hash(stored.body) != stored.content_hash:
        raise ValueError("the stored content does not match its hash")
    return parse_stored_listing(server_id, stored.body, schema_check)
