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
from toolyard.catalog.listing_contents import body_hash, judge_body, judge_listing
from toolyard.catalog.single_flight import Flights
from toolyard.catalog.storage import CatalogueStorage, Key, Stored
from toolyard.catalog.tool_validation import Inspect
from toolyard.errors import ServerError
from toolyard.types.catalog import Catalogue, Contents, Listing, Scope
from toolyard.types.principal import Principal
from toolyard.types.server import Server, Trust
from toolyard.types.tool import JsonObject

__all__ = ["Catalogues", "Check", "Fetch", "Met"]

_CAPACITY = 1024
_LARGE = 200
"""Tools. From here on judging a listing takes more than a millisecond or two and leaves the event loop."""
_LARGE_BODY = 128 * 1024
_PUBLIC = "public"
_SHARED = "shared"

_log = logging.getLogger("toolyard.catalog.cache")
_T = TypeVar("_T")


class Fetch(Protocol):
    """Asks a server what it has, connecting to it if need be."""

    async def __call__(self, server_id: str, principal: Principal, chat: str | None = None) -> Listing:
        """The complete listing, all pages; over a chat's own connection, where it has one. Raises
        ServerError."""
        ...


class Check(Protocol):
    """A further check of a tool that depends on its server, e.g. on its transport."""

    def __call__(self, server: Server, input_schema: JsonObject) -> str | None:
        """The reason to quarantine the tool, or None. Must not raise."""
        ...


class Met(Protocol):
    """Hears of each listing before anybody is given it."""

    async def __call__(self, server: Server, contents: Contents) -> None:
        """Raises what keeps it from being given out."""
        ...


class _Era(NamedTuple):
    """Counts what happened to a server's catalogue, so that work begun earlier can tell."""

    changes: int = 0
    """The list changed: what was fetched before is old news."""
    losses: int = 0
    """Copies were dropped: what was fetched before must not come back."""


class Catalogues:
    """The catalogues of all servers, per principal.

    What is fresh is answered from memory, what is not is fetched: once for all who ask at the same time.
    A private listing serves only the principal who fetched it; one that a trusted server declares public, or
    that came over a connection shared by configuration, serves everyone. A failed fetch is not remembered.
    A server whose ``cache_ttl`` is 0 is asked each time, and nothing about it is kept.
    """

    def __init__(
        self,
        fetch: Fetch,
        storage: CatalogueStorage,
        *,
        check: Check | None = None,
        met: Met | None = None,
        recheck: Met | None = None,
        clock: Callable[[], float] = time.time,
        capacity: int = _CAPACITY,
        key: Callable[[], bytes] = bytes,
    ) -> None:
        """``clock`` is in seconds since the epoch; ``capacity`` is how many catalogues stay in memory.
        ``recheck`` is told of a listing each time that a copy in memory is used. ``key`` gives the key of
        the hashes that stand for entries in ``storage``."""
        self._fetch = fetch
        self._storage = storage
        self._check = check
        self._met = met
        self._recheck = recheck
        self._clock = clock
        self._capacity = capacity
        self._key = key
        self._held: OrderedDict[Key, Catalogue] = OrderedDict()
        self._began: dict[Key, int] = {}
        """How often a server's list had changed when what is held of it was asked for."""
        self._contents: WeakValueDictionary[tuple[str, str], Contents] = WeakValueDictionary()
        self._fetches: Flights[tuple[Key, _Era, str | None], Catalogue] = Flights()
        self._loads: Flights[tuple[Key, _Era, float], Catalogue | None] = Flights()
        self._eras: dict[str, _Era] = {}
        self._entries: dict[str, tuple[Server, str]] = {}

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
                newer = await self._load(server, principal, newer_than=kept.fetched_at)
                return kept if newer is None else self._shown(newer)
        try:
            return await self._fetched(server, principal, chat)
        except ServerError as error:
            if kept is None or fresh:
                raise
            return replace(kept, failure=error.cause)

    async def peek(self, server: Server, principal: Principal) -> Catalogue | None:
        """What is kept, however old, without asking the server; from memory, if it is there."""
        if server.cache_ttl <= 0:
            return None
        held = self._newest(self._readable(server, principal))
        if held is None:
            held = await self._load(server, principal)
        elif self._recheck is not None:
            await self._recheck(server, held.contents)
        return None if held is None else self._shown(held)

    async def list_changed(self, server_id: str) -> None:
        """The server says that what it has is no longer what it had: nothing kept counts as fresh now."""
        era = self._era(server_id)
        self._eras[server_id] = era._replace(changes=era.changes + 1)
        for key, held in self._held.items():
            if key.server_id == server_id:
                self._held[key] = replace(held, ttl=0.0)
        await self._storage.expire(server_id)

    async def forget(self, server_id: str, principal: Principal | None = None) -> None:
        """Drop what is kept: all of it, or what one principal fetched with credentials that changed."""
        scope = None if principal is None else _private(principal)
        if scope is None and not self._under_way(server_id):
            # Nobody is left who could bring it back, so there is nothing to remember either.
            self._eras.pop(server_id, None)
        else:
            era = self._era(server_id)
            self._eras[server_id] = era._replace(losses=era.losses + 1)
        self._entries.pop(server_id, None)
        for key in [key for key in self._held if key.server_id == server_id and scope in (None, key.scope)]:
            del self._held[key]
            self._began.pop(key, None)
        await self._storage.forget(server_id, scope)

    async def close(self) -> None:
        """Cancel the fetches that are under way and wait for their end."""
        await self._fetches.close()
        await self._loads.close()

    async def _fetched(self, server: Server, principal: Principal, chat: str | None = None) -> Catalogue:
        era = self._era(server.id)
        key = self._readable(server, principal)[0]
        # Chats share what they all get over the usual connection.
        chat = chat if server.instance is not None else None
        return await self._fetches.join(
            (key, era, chat), lambda: self._fetch_now(server, principal, era, chat)
        )

    async def _fetch_now(
        self, server: Server, principal: Principal, began: _Era, chat: str | None
    ) -> Catalogue:
        listing = await self._fetch(server.id, principal, chat)
        now = self._clock()
        inspect = self._inspect(server)
        contents, body = await _off_loop(
            len(listing.tools) >= _LARGE, lambda: judge_listing(server.id, listing, inspect)
        )
        if self._met is not None:
            await self._met(server, contents)
        if server.cache_ttl <= 0:
            return Catalogue(contents, now, 0.0)
        key = self._writable(server, principal, listing)
        contents = self._contents.setdefault((key.entry_hash, contents.content_hash), contents)
        catalogue = Catalogue(contents, now, effective_ttl(server.cache_ttl, listing.ttl))
        held = self._hold(key, catalogue, began)
        if body is None:
            _log.warning("the listing of server '%s' cannot be written as JSON: not stored", server.id)
        elif held is not None:
            await self._storage.save(Stored(key, contents.content_hash, now, held.ttl, body))
        return catalogue

    async def _load(
        self, server: Server, principal: Principal, *, newer_than: float = 0.0
    ) -> Catalogue | None:
        era = self._era(server.id)
        keys = self._readable(server, principal)
        return await self._loads.join(
            (keys[0], era, newer_than), lambda: self._load_now(server, keys, newer_than, era)
        )

    async def _load_now(
        self, server: Server, keys: tuple[Key, ...], newer_than: float, began: _Era
    ) -> Catalogue | None:
        stored = await self._storage.load(keys, newer_than=newer_than)
        if stored is None:
            return None
        named = (stored.key.entry_hash, stored.content_hash)
        contents = self._contents.get(named)
        if contents is None:
            inspect = self._inspect(server)
            try:
                contents = await _off_loop(
                    len(stored.body) >= _LARGE_BODY, lambda: _verified(server.id, stored, inspect)
                )
            except ValueError as error:
                _log.warning("the stored catalogue of server '%s' is dropped: %s", server.id, error)
                await self._storage.forget(server.id, stored.key.scope)
                return None
            contents = self._contents.setdefault(named, contents)
        if self._met is not None:
            await self._met(server, contents)
        newest = self._newest(keys)
        if newest is not None and newest.fetched_at >= stored.fetched_at:
            return newest
        return self._hold(stored.key, Catalogue(contents, stored.fetched_at, stored.ttl), began)

    def _hold(self, key: Key, catalogue: Catalogue, began: _Era) -> Catalogue | None:
        """Take it into memory as what it has become meanwhile; None where it must not be kept."""
        era = self._era(key.server_id)
        if era.losses != began.losses:
            return None
        if era.changes != began.changes:
            if key in self._held and self._began.get(key, 0) > began.changes:
                return None  # A fetch that began later has ended earlier, and knows more.
            catalogue = replace(catalogue, ttl=0.0)
        self._held[key] = catalogue
        self._began[key] = began.changes
        self._held.move_to_end(key)
        while len(self._held) > self._capacity:
            self._began.pop(self._held.popitem(last=False)[0], None)
        return catalogue

    def _newest(self, keys: tuple[Key, ...]) -> Catalogue | None:
        newest: Catalogue | None = None
        for key in keys:
            held = self._held.get(key)
            if held is not None:
                self._held.move_to_end(key)
                if newest is None or held.fetched_at > newest.fetched_at:
                    newest = held
        return newest

    def _shown(self, held: Catalogue) -> Catalogue:
        age = self._clock() - held.fetched_at
        # A copy from the future means that a clock was set back: nothing is known about its age.
        stale = not 0 <= age < held.ttl
        # Not by replace(), which costs more than the rest of a look into memory, and every call looks.
        return Catalogue(held.contents, held.fetched_at, held.ttl, max(0.0, age), stale, held.failure)

    def _readable(self, server: Server, principal: Principal) -> tuple[Key, ...]:
        """Where a copy for this caller may lie; the first is the caller's own place."""
        entry = self._entry(server)
        if server.shared:
            return (Key(server.id, entry, _SHARED),)
        own = Key(server.id, entry, _private(principal))
        # Whose listing is the same for everyone is a claim, and an untrusted server's claims do not count.
        return (own,) if server.trust is Trust.UNTRUSTED else (own, Key(server.id, entry, _PUBLIC))

    def _writable(self, server: Server, principal: Principal, listing: Listing) -> Key:
        places = self._readable(server, principal)
        return places[-1] if listing.scope is Scope.PUBLIC else places[0]

    def _under_way(self, server_id: str) -> bool:
        fetches = self._fetches.any(lambda key: key[0].server_id == server_id)
        return fetches or self._loads.any(lambda key: key[0].server_id == server_id)

    def _era(self, server_id: str) -> _Era:
        return self._eras.get(server_id, _Era())

    def _entry(self, server: Server) -> str:
        known = self._entries.get(server.id)
        if known is None or known[0] is not server:
            known = self._entries[server.id] = (server, entry_hash(server, self._key()))
        return known[1]

    def _inspect(self, server: Server) -> Inspect | None:
        check = self._check
        return None if check is None else lambda schema: check(server, schema)


def _private(principal: Principal) -> str:
    return f"principal:{principal.id}"


def _verified(server_id: str, stored: Stored, inspect: Inspect | None) -> Contents:
    if body_hash(stored.body) != stored.content_hash:
        raise ValueError("its bytes are not those that were stored")
    return judge_body(server_id, stored.body, inspect)


async def _off_loop(large: bool, work: Callable[[], _T]) -> _T:
    return await asyncio.to_thread(work) if large else work()
