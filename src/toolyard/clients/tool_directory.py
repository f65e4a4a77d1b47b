"""Directory of the tools that each principal has, refreshed with as few connections as possible.

``ToolFetcher`` fetches a server's tools for the catalogue cache.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from toolyard.catalog.cache import CatalogueCache
from toolyard.catalog.exposed_names import NameAssigner
from toolyard.catalog.tool_listing import ToolListing
from toolyard.clients.deferred_listings import DeferredListings
from toolyard.clients.manager import ConnectionManager
from toolyard.concurrency.lru_cache import LruCache
from toolyard.errors import ServerError, SignInNeeded, Unreachable
from toolyard.types.account import Principal
from toolyard.types.server import Server, State
from toolyard.types.tool import CacheScope, Catalogue, Definition, RawListing

__all__ = ["ToolDirectory", "ToolFetcher"]


_MAX_PARALLEL_LISTINGS = 16
_CALL_RECHECK_SECONDS = 1.0
"""Seconds for which calls to a server use the known definition of a tool without checking the cache again."""
_THREAD_MIN_TOOLS = 1_000
"""Number of tools from which new names are assigned in a thread."""
_MAX_PRINCIPALS = 512
"""Maximum number of principals in memory. Others are loaded again, from stored catalogues where possible."""


@dataclass(slots=True)
class _PrincipalTools:
    """Known tools of one principal."""

    listing: ToolListing
    recheck_at: dict[str, float] = field(default_factory=dict[str, float])
    """By server id, the time (monotonic) until which a call need not check its tool's definition again."""


class ToolDirectory:
    """Tools of all servers for each principal: from the catalogue cache, and from servers where that is not
    enough.

    A listing contains only servers that exist for its principal. The directory may be refreshed by several
    tasks at once; every method that replaces a listing therefore reads the current one, merges and stores it
    without awaiting in between, or a concurrent refresh of another server would be lost.
    """

    def __init__(
        self,
        manager: ConnectionManager,
        catalogues: CatalogueCache,
        name_assigner: NameAssigner,
        built_in_catalogues: Mapping[str, Catalogue] | None = None,
        *,
        list_deadline: float,
        max_principals: int = _MAX_PRINCIPALS,
        recheck_seconds: float = _CALL_RECHECK_SECONDS,
    ) -> None:
        """``built_in_catalogues`` are those of Toolyard's own servers: part of every listing, never
        fetched. ``list_deadline`` is the time in seconds for which a listing of many servers waits for each
        of them."""
        self._manager = manager
        self._catalogues = catalogues
        self._name_assigner = name_assigner
        self._built_in_catalogues = built_in_catalogues or {}
        self._by_principal: LruCache[str, _PrincipalTools] = LruCache(max_principals)
        self._recheck_seconds = recheck_seconds
        self._empty_listing = ToolListing.build(name_assigner, self._built_in_catalogues, {})
        self.deferred = DeferredListings(list_deadline)
        """Refreshes that continue after the caller's deadline."""
        self._closed = False

    def close(self) -> None:
        """Refuse further refreshes. Tasks that still wait for a server must not reopen the storage."""
        self._closed = True

    def known_listing(self, principal: Principal) -> ToolListing:
        """Return the tools known so far, without any I/O."""
        entry = self._by_principal.peek(principal.id)
        return self._empty_listing if entry is None else entry.listing

    async def named_listing(self, principal: Principal) -> ToolListing:
        """Return the tools known so far, with their names assigned without delaying other tasks."""
        listing = self.known_listing(principal)
        await listing.assign_names(_THREAD_MIN_TOOLS)
        return listing

    def forget_servers(self, server_ids: Collection[str], principal: Principal | None = None) -> None:
        """Remove changed or deleted servers from the listings, of all principals or of one."""
        for principal_id, entry in self._by_principal.items():
            if principal is not None and principal_id != principal.id:
                continue
            before = entry.listing
            if (before.catalogues.keys() | before.failures.keys()).isdisjoint(server_ids):
                continue
            catalogues = {id: one for id, one in before.catalogues.items() if id not in server_ids}
            failures = {id: one for id, one in before.failures.items() if id not in server_ids}
            self._rebuild_listing(entry, catalogues, failures)
        self.require_recheck(server_ids)

    def forget_principal(self, principal_id: str) -> None:
        """Drop all that is known for a principal."""
        self._by_principal.pop(principal_id, None)

    def require_recheck(self, server_ids: Collection[str]) -> None:
        """Make the next call to each of these servers check its tool's definition, after a list change."""
        for entry in self._by_principal.values():
            for server_id in server_ids:
                entry.recheck_at.pop(server_id, None)

    async def load_stored(self, principal: Principal) -> ToolListing:
        """Load the cached catalogues of all servers, including disabled ones. Connects to nothing."""
        self._check_open()
        servers = list(self._manager.visible_servers(principal).values())
        cached = await asyncio.gather(*(self._catalogues.peek(server, principal) for server in servers))
        catalogues = {
            server.id: catalogue
            for server, catalogue in zip(servers, cached, strict=True)
            if catalogue is not None
        }
        # Servers with a TTL of 0 are never cached. Their last listing is kept: it suffices to map names.
        before = self.known_listing(principal).catalogues
        uncached = {server.id for server in servers if server.cache_ttl <= 0}
        last = {id: catalogue for id, catalogue in before.items() if id in uncached}
        self._store_listing(principal, {**catalogues, **last}, {})
        return await self.named_listing(principal)

    async def refresh(
        self,
        principal: Principal,
        *,
        fresh: bool = False,
        retry: bool | None = None,
        only: Iterable[str] | None = None,
        chat: str | None = None,
    ) -> ToolListing:
        """Return the tools of every enabled server, or of those in ``only``.

        A server without a cached catalogue is connected. One with a stale catalogue is listed again only if
        it is connected anyway. ``fresh`` lists all of them. ``retry``, by default ``fresh``, also tries
        servers that timed out within the last minute. With ``chat``, instances are listed over that
        chat's dedicated connections. Failures of servers are stored in the listing, not raised.
        """
        await self._refresh_catalogues(
            principal, None if only is None else set(only), fresh=fresh, retry=retry, chat=chat
        )
        return await self.named_listing(principal)

    async def _refresh_catalogues(
        self,
        principal: Principal,
        selected: set[str] | None,
        *,
        fresh: bool = False,
        retry: bool | None = None,
        chat: str | None,
    ) -> ToolListing:
        """Do what ``refresh`` promises, but leave the names to the next reader of the listing."""
        servers = [
            server for server in self._enabled_servers(principal) if selected is None or server.id in selected
        ]
        semaphore = asyncio.Semaphore(_MAX_PARALLEL_LISTINGS)

        async def refresh_one(server: Server) -> tuple[Catalogue | None, ServerError | None]:
            cached: Catalogue | None = None
            try:
                self._check_open()
                ready = self._manager.state(server.id, principal) is State.READY
                cached = await self._catalogues.peek(server, principal)
                if cached is not None and not fresh and not (ready and cached.stale):
                    return cached, None
                if not (fresh if retry is None else retry) and not ready:
                    failure = await self._catalogues.recent_failure(server, principal)
                    if failure is not None:
                        return cached, failure
                # Cached catalogues are returned without a slot; only listings that may start a process or
                # connect need one.
                async with semaphore:
                    self._check_open()
                    return await self._catalogues.get(
                        server, principal, connected=ready, fresh=fresh, chat=chat
                    ), None
            except ServerError as error:
                return cached, error

        outcomes = await asyncio.gather(*(refresh_one(server) for server in servers))
        # No await from here on: other tasks may have stored other servers' catalogues in the meantime.
        before = self.known_listing(principal)
        catalogues = (
            dict(before.catalogues) if selected is not None else self._disabled_catalogues(before, principal)
        )
        failures = dict(before.failures) if selected is not None else {}
        for server, (catalogue, failure) in zip(servers, outcomes, strict=True):
            failures.pop(server.id, None)
            if failure is not None:
                failures[server.id] = failure
                # A server that is down keeps its known tools: calling one reports the reason.
                catalogue = before.catalogues.get(server.id) or catalogue
            if catalogue is not None:
                catalogues[server.id] = catalogue
        return self._store_listing(principal, catalogues, failures)

    async def refresh_within_deadline(
        self, principal: Principal, *, only: Iterable[str] | None = None, chat: str | None = None
    ) -> ToolListing:
        """Refresh, but wait for no server longer than the list deadline.

        The listing of a slower server continues in the background (see ``deferred``); until then its cached
        catalogue is used. ``missing_servers`` names the servers without one.
        """
        self._check_open()
        selected = None if only is None else set(only)
        servers = [
            server for server in self._enabled_servers(principal) if selected is None or server.id in selected
        ]
        peeked = await asyncio.gather(*(self._catalogues.peek(server, principal) for server in servers))
        cached = {
            server.id: catalogue
            for server, catalogue in zip(servers, peeked, strict=True)
            if catalogue is not None
        }
        outdated = {server.id: server for server in servers if self._needs_refresh(server, principal, cached)}
        before = self.known_listing(principal)
        up_to_date = cached.keys() - outdated.keys()
        failures = {id: failure for id, failure in before.failures.items() if id not in up_to_date}
        # Stored before the wait, so that callers see the cached catalogues of slow servers when the deadline
        # passes.
        self._store_listing(principal, {**before.catalogues, **cached}, failures)
        # Only instances have connections per chat. All chats share the refresh of other servers.
        chats = {id: chat if server.instance is not None else None for id, server in outdated.items()}
        await self.deferred.wait(
            {
                (principal.id, id, chat_id): partial(self._refresh_server, id, principal, chat_id)
                for id, chat_id in chats.items()
            }
        )
        return await self.named_listing(principal)

    async def refresh_with_short_retries(
        self, principal: Principal, *, chat: str | None = None
    ) -> ToolListing:
        """Refresh, but wait for servers that failed last time only until the list deadline: a dead server
        costs its whole timeout once, not on every refresh."""
        await self._load_failures(principal)
        before = self.known_listing(principal)
        # A missing sign-in fails at once; after the sign-in, the full timeout is appropriate.
        failed = {id for id, why in before.failures.items() if not isinstance(why, SignInNeeded)}
        if not failed:
            return await self.refresh(principal, chat=chat)
        rest = [server.id for server in self._enabled_servers(principal) if server.id not in failed]
        await asyncio.gather(
            self.refresh(principal, only=rest, chat=chat),
            self.refresh_within_deadline(principal, only=failed, chat=chat),
        )
        return self.known_listing(principal)

    async def _load_failures(self, principal: Principal) -> None:
        """Add the stored failures of servers that this process has not tried."""
        unknown = [server_id for server_id, why in self.missing_servers(principal).items() if why is None]
        servers = [server for server in self._enabled_servers(principal) if server.id in unknown]
        stored = await asyncio.gather(*(self._catalogues.last_failure(each, principal) for each in servers))
        before = self.known_listing(principal)
        failures = {
            server.id: failure
            for server, failure in zip(servers, stored, strict=True)
            if failure is not None and server.id not in before.catalogues
        }
        if failures:
            self._store_listing(principal, before.catalogues, {**failures, **before.failures})

    def _needs_refresh(self, server: Server, principal: Principal, cached: Mapping[str, Catalogue]) -> bool:
        """Return True if the cached catalogue of a server is missing, or stale while it is connected."""
        catalogue = cached.get(server.id)
        return catalogue is None or (
            catalogue.stale and self._manager.state(server.id, principal) is State.READY
        )

    async def _refresh_server(self, server_id: str, principal: Principal, chat: str | None) -> bool:
        """List one server. Return True if its tools differ from the known ones."""
        before = self.known_listing(principal).catalogues.get(server_id)
        listing = await self._refresh_catalogues(principal, {server_id}, chat=chat)
        after = listing.catalogues.get(server_id)
        return after is not None and (before is None or after.contents is not before.contents)

    def missing_servers(self, principal: Principal) -> dict[str, ServerError | None]:
        """Return the enabled servers without known tools, each with its failure, or None if it has not
        answered yet."""
        listing = self.known_listing(principal)
        return {
            server.id: listing.failures.get(server.id)
            for server in self._enabled_servers(principal)
            if server.id not in listing.catalogues
        }

    async def locate_tool(
        self, name: str, principal: Principal, chat: str | None = None
    ) -> tuple[Server, Definition] | None:
        """Return the server and definition of a tool by its exposed name, connecting to as few servers as
        possible. Return None if there is no such tool. Raise a ServerError."""
        if (built_in := self._empty_listing.tools.get(name)) is not None:
            server = self._manager.find(built_in.server_id, principal)
            return None if server is None else (server, built_in)
        # Marked as used by the check of the definition, once a second.
        entry = self._by_principal.peek(principal.id)
        definition = None if entry is None else entry.listing.tools.get(name)
        fresh = False
        if entry is None or definition is None:
            definition, fresh = await self._search_by_name(name, principal, chat)
            entry = self._by_principal.get(principal.id)
        if entry is None or definition is None:
            return None
        server = self._manager.find(definition.server_id, principal)
        if server is None:
            return None
        # Between list changes the known definition is trusted for a second: calls in quick succession need no
        # cache lookup each.
        if fresh or (time.monotonic() < entry.recheck_at.get(server.id, 0.0) and server.cache_ttl > 0):
            return server, definition
        self._check_open()
        catalogue = await self._catalogue_for_call(server, principal, chat)
        definition = self._update_listing(principal, server, catalogue).tools.get(name)
        # The server may have been replaced or removed during the await.
        server = self._manager.find(server.id, principal)
        return None if server is None or definition is None else (server, definition)

    def _update_listing(self, principal: Principal, server: Server, catalogue: Catalogue) -> ToolListing:
        """Merge one server's catalogue into the listing. Must not await (see the class)."""
        listing = self.known_listing(principal)
        before = listing.catalogues.get(server.id)
        if before is None or catalogue.contents is not before.contents:
            failures = {id: failure for id, failure in listing.failures.items() if id != server.id}
            listing = self._store_listing(principal, {**listing.catalogues, server.id: catalogue}, failures)
        entry = self._by_principal.get(principal.id)
        if entry is not None:
            entry.recheck_at[server.id] = time.monotonic() + self._recheck_seconds
        return listing

    async def _catalogue_for_call(self, server: Server, principal: Principal, chat: str | None) -> Catalogue:
        """Return the catalogue to check a call against. A server that declares a TTL of 0 (the default of a
        widely used library) is not listed for every call, but as often as ``cache_ttl`` says."""
        cached = await self._catalogues.peek(server, principal)
        if cached is not None and (
            not cached.stale or (cached.listing.ttl == 0 and cached.age < server.cache_ttl)
        ):
            return cached
        connected = self._manager.state(server.id, principal) is State.READY
        return await self._catalogues.get(server, principal, connected=connected, chat=chat)

    async def _search_by_name(
        self, name: str, principal: Principal, chat: str | None
    ) -> tuple[Definition | None, bool]:
        """Return the tool of this exposed name, and True if its server was listed just now.

        Starting servers is expensive, so they are tried in order of likelihood: stored catalogues first, then
        servers whose prefix matches the name. No others: a misspelt name must not wait for all of them.
        """
        listing = await self.load_stored(principal)
        if (definition := listing.tools.get(name)) is not None:
            return definition, False
        enabled = self._enabled_servers(principal)
        likely = [server for server in enabled if self.is_likely_owner(server.id, name)]
        unlisted = [server.id for server in likely if self._is_worth_listing(server, listing, principal)]
        stale = [server.id for server in likely if _has_stale_catalogue(server.id, listing)]
        if stale:
            # The catalogue is from an earlier process: the server may have this tool by now.
            listing = await self.refresh(principal, only=stale, fresh=True, chat=chat)
            if (definition := listing.tools.get(name)) is not None:
                return definition, True
        if unlisted:
            listing = await self.refresh(principal, only=unlisted, retry=True, chat=chat)
            if (definition := listing.tools.get(name)) is not None:
                return definition, True
        return None, False

    def _is_worth_listing(self, server: Server, listing: ToolListing, principal: Principal) -> bool:
        """Return True if a server was never listed, must not be cached, or is connected with a stale
        catalogue."""
        catalogue = listing.catalogues.get(server.id)
        if catalogue is None or server.cache_ttl <= 0:
            return True
        return catalogue.stale and self._manager.state(server.id, principal) is State.READY

    def is_likely_owner(self, server_id: str, name: str) -> bool:
        """Return True if an exposed name has this server's prefix. A hint only."""
        return self.guess_tool_name(server_id, name) is not None

    def guess_tool_name(self, server_id: str, name: str) -> str | None:
        """Return the probable own name of a tool with this exposed name, or None if the prefix does not
        match. A guess, for tools that are not listed."""
        prefix = self.name_prefix(server_id)
        return name.removeprefix(prefix) if name.startswith(prefix) else None

    def name_prefix(self, server_id: str) -> str:
        """Return the prefix of the exposed names of a server's tools."""
        server = self._manager.servers.get(server_id)
        if server is None or server.instance is None:
            return self._name_assigner.prefix(server_id)
        return self._name_assigner.prefix(server.instance.slug, instance=True)

    def _check_open(self) -> None:
        if self._closed:
            raise Unreachable("Toolyard is closed")

    def _disabled_catalogues(self, listing: ToolListing, principal: Principal) -> dict[str, Catalogue]:
        """Return the known catalogues of disabled servers: hidden from callers, but needed to explain why."""
        servers = self._manager.visible_servers(principal)
        return {
            server_id: catalogue
            for server_id, catalogue in listing.catalogues.items()
            if server_id in servers and not servers[server_id].enabled
        }

    def _enabled_servers(self, principal: Principal) -> list[Server]:
        return [server for server in self._manager.visible_servers(principal).values() if server.enabled]

    def _store_listing(
        self, principal: Principal, catalogues: Mapping[str, Catalogue], failures: Mapping[str, ServerError]
    ) -> ToolListing:
        # A server may have been removed while it was being listed.
        visible = self._manager.visible_servers(principal)
        catalogues = {id: catalogue for id, catalogue in catalogues.items() if id in visible}
        failures = {id: failure for id, failure in failures.items() if id in visible}
        entry = self._by_principal.get(principal.id) or _PrincipalTools(self._empty_listing)
        self._by_principal[principal.id] = entry
        return self._rebuild_listing(entry, catalogues, failures)

    def _find_slugs(self, server_ids: Iterable[str]) -> dict[str, str]:
        return {
            id: server.instance.slug
            for id in server_ids
            if (server := self._manager.servers.get(id)) is not None and server.instance is not None
        }

    def _rebuild_listing(
        self,
        principal_tools: _PrincipalTools,
        catalogues: Mapping[str, Catalogue],
        failures: Mapping[str, ServerError],
    ) -> ToolListing:
        before = principal_tools.listing.catalogues
        # Unchanged contents keep the old object: exposed names and policy decisions are cached by identity.
        catalogues = {
            id: _reuse_equal_contents(one, before.get(id))
            for id, one in {**catalogues, **self._built_in_catalogues}.items()
        }
        principal_tools.listing = principal_tools.listing.with_catalogues(
            self._name_assigner, catalogues, failures, self._find_slugs(catalogues)
        )
        return principal_tools.listing


def _reuse_equal_contents(now: Catalogue, before: Catalogue | None) -> Catalogue:
    if (
        before is None
        or now.contents is before.contents
        or now.contents.content_hash != before.contents.content_hash
    ):
        return now
    return replace(now, contents=before.contents)


def _has_stale_catalogue(server_id: str, listing: ToolListing) -> bool:
    catalogue = listing.catalogues.get(server_id)
    return catalogue is not None and catalogue.stale


class ToolFetcher:
    """Lists a server's tools over its connection; connects if needed."""

    def __init__(self, manager: ConnectionManager) -> None:
        self._manager = manager

    async def __call__(self, server_id: str, principal: Principal, chat: str | None = None) -> RawListing:
        """Fetch the complete listing. Raise a ServerError."""
        handshake = await self._manager.ensure_connected(server_id, principal=principal, chat=chat)
        if "tools" not in handshake.capabilities:
            tools, ttl_ms, scope = [], None, None
        else:
            pages = await self._manager.list_tools(server_id, principal=principal, chat=chat)
            tools, ttl_ms, scope = pages.items, pages.ttl_ms, CacheScope(pages.scope)
        return RawListing(
            tools=tuple(tools),
            server_info=handshake.info,
            capabilities=handshake.capabilities,
            protocol_version=handshake.version,
            instructions=handshake.instructions,
            ttl=None if ttl_ms is None else ttl_ms / 1000,
            scope=scope,
        )
