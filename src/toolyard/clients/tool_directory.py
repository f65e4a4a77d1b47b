"""Keeping the roster of each principal as fresh as is needed, starting as little as possible."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from toolyard.catalog.cache import CatalogueCache
from toolyard.catalog.exposed_names import NameAssigner
from toolyard.catalog.tool_listing import ToolListing
from toolyard.clients.deferred_listings import DeferredListings
from toolyard.clients.manager import ConnectionManager
from toolyard.errors import ServerError, SignInNeeded, Unreachable
from toolyard.types.catalog import Catalogue
from toolyard.types.principal import Principal
from toolyard.types.server import Server
from toolyard.types.status import State
from toolyard.types.tool import Definition

__all__ = ["ToolDirectory"]

_MAX_PARALLEL_LISTINGS = 16
_CALL_RECHECK_SECONDS = 1.0
"""Seconds for which a call need not look again whether the kept definition of its tool still counts."""
_MAX_PRINCIPALS = 512
"""Rosters that stay in memory. Who comes back after that is listed anew, from catalogues where there are."""


@dataclass(slots=True)
class _PrincipalTools:
    """What is known for one principal."""

    listing: ToolListing
    recheck_at: dict[str, float] = field(default_factory=dict[str, float])
    """Until when a call to each server need not look again."""


class ToolDirectory:
    """What tools there are for each principal: from what is kept, from servers where that is not enough.

    A roster has only servers that exist for its principal.
    """

    def __init__(
        self,
        manager: ConnectionManager,
        catalogues: CatalogueCache,
        name_assigner: NameAssigner,
        built_in_catalogues: Mapping[str, Catalogue] | None = None,
    ) -> None:
        """``built_in`` has what our own servers have: it is in every roster and needs no listing."""
        self._manager = manager
        self._catalogues = catalogues
        self._name_assigner = name_assigner
        self._built_in_catalogues = built_in_catalogues or {}
        self._by_principal: OrderedDict[str, _PrincipalTools] = OrderedDict()
        self._empty_listing = ToolListing.build(name_assigner, self._built_in_catalogues, {})
        self.deferred = DeferredListings()
        """The servers that are being listed for those who do not wait for them."""
        self._closed = False

    def close(self) -> None:
        """Ask nobody from now on, not even storage: who still waits for a server must not open it again."""
        self._closed = True

    def known_listing(self, principal: Principal) -> ToolListing:
        """What was learned so far. Asks nobody."""
        kept = self._by_principal.get(principal.id)
        return self._empty_listing if kept is None else kept.listing

    def forget_servers(self, server_ids: Collection[str], principal: Principal | None = None) -> None:
        """These servers changed or are gone, for everyone or for one: learn of them anew."""
        for principal_id, kept in self._by_principal.items():
            if principal is not None and principal_id != principal.id:
                continue
            before = kept.listing
            if (before.catalogues.keys() | before.failures.keys()).isdisjoint(server_ids):
                continue
            found = {id: one for id, one in before.catalogues.items() if id not in server_ids}
            failures = {id: one for id, one in before.failures.items() if id not in server_ids}
            self._rebuild_listing(kept, found, failures)
        self.require_recheck(server_ids)

    def forget_principal(self, principal_id: str) -> None:
        """Forget what is known for a principal."""
        self._by_principal.pop(principal_id, None)

    def require_recheck(self, server_ids: Collection[str]) -> None:
        """The lists of these changed: the next call looks whether its tool is still what it was."""
        for kept in self._by_principal.values():
            for server_id in server_ids:
                kept.recheck_at.pop(server_id, None)

    async def load_stored(self, principal: Principal) -> ToolListing:
        """What is kept from earlier, of every server, disabled ones too. Starts nothing."""
        self._check_open()
        servers = list(self._manager.visible_servers(principal).values())
        kept = await asyncio.gather(*(self._catalogues.peek(server, principal) for server in servers))
        found = {server.id: one for server, one in zip(servers, kept, strict=True) if one is not None}
        # Of servers that nothing may be kept of, there is what was listed last: enough to name their tools.
        before = self.known_listing(principal).catalogues
        unkept = {server.id for server in servers if server.cache_ttl <= 0}
        last = {id: catalogue for id, catalogue in before.items() if id in unkept}
        return self._store_listing(principal, {**found, **last}, {})

    async def refresh(
        self,
        principal: Principal,
        *,
        fresh: bool = False,
        only: Iterable[str] | None = None,
        chat: str | None = None,
    ) -> ToolListing:
        """What every enabled server has now. One that was never listed is connected to; one that was is
        asked again only while it is connected and its copy is old. ``fresh`` asks all of them. ``chat`` is
        the one that asks: it asks instances over its own connections."""
        wanted = None if only is None else set(only)
        servers = [
            server for server in self._enabled_servers(principal) if wanted is None or server.id in wanted
        ]
        gate = asyncio.Semaphore(_MAX_PARALLEL_LISTINGS)

        async def refresh_one(server: Server) -> tuple[Catalogue | None, ServerError | None]:
            held: Catalogue | None = None
            try:
                self._check_open()
                ready = self._manager.state(server.id, principal) is State.READY
                held = await self._catalogues.peek(server, principal)
                if held is not None and not fresh and not (ready and held.stale):
                    return held, None
                async with gate:
                    self._check_open()
                    return await self._catalogues.get(
                        server, principal, connected=ready, fresh=fresh, chat=chat
                    ), None
            except ServerError as error:
                return held, error

        outcomes = await asyncio.gather(*(refresh_one(server) for server in servers))
        # Nothing is awaited from here on: another caller may be learning of other servers.
        before = self.known_listing(principal)
        found = (
            dict(before.catalogues) if wanted is not None else self._disabled_catalogues(before, principal)
        )
        failures = dict(before.failures) if wanted is not None else {}
        for server, (catalogue, failure) in zip(servers, outcomes, strict=True):
            failures.pop(server.id, None)
            if failure is not None:
                failures[server.id] = failure
                # A server that is down keeps the tools it was known to have: calling one tells why.
                catalogue = before.catalogues.get(server.id) or catalogue
            if catalogue is not None:
                found[server.id] = catalogue
        return self._store_listing(principal, found, failures)

    async def refresh_within_deadline(
        self, principal: Principal, *, only: Iterable[str] | None = None, chat: str | None = None
    ) -> ToolListing:
        """As ``current``, but no server is waited for longer than PATIENCE: one that takes longer goes on
        being listed, and until then there is what was kept of it. ``missing`` names those without that."""
        self._check_open()
        wanted = None if only is None else set(only)
        servers = [
            server for server in self._enabled_servers(principal) if wanted is None or server.id in wanted
        ]
        kept = await asyncio.gather(*(self._catalogues.peek(server, principal) for server in servers))
        found = {server.id: held for server, held in zip(servers, kept, strict=True) if held is not None}
        asked = {server.id: server for server in servers if self._needs_refresh(server, principal, found)}
        before = self.known_listing(principal)
        settled = found.keys() - asked.keys()
        failures = {id: failure for id, failure in before.failures.items() if id not in settled}
        self._store_listing(principal, {**before.catalogues, **found}, failures)
        # Chats share what they all get over the usual connection.
        lanes = {id: chat if server.instance is not None else None for id, server in asked.items()}
        await self.deferred.wait(
            {
                (principal.id, id, lane): partial(self._refresh_server, id, principal, lane)
                for id, lane in lanes.items()
            }
        )
        return self.known_listing(principal)

    async def again(self, principal: Principal, *, chat: str | None = None) -> ToolListing:
        """As ``current``, but a server that could not be listed the last time is waited for as in ``soon``:
        one that is dead costs its whole limit once, not each time that somebody asks."""
        before = self.known_listing(principal)
        # Where a sign-in is missing, it is told at once; after it there is something to wait for.
        failed = {id for id, why in before.failures.items() if not isinstance(why, SignInNeeded)}
        if not failed:
            return await self.refresh(principal, chat=chat)
        rest = [server.id for server in self._enabled_servers(principal) if server.id not in failed]
        await asyncio.gather(
            self.refresh(principal, only=rest, chat=chat),
            self.refresh_within_deadline(principal, only=failed, chat=chat),
        )
        return self.known_listing(principal)

    def _needs_refresh(self, server: Server, principal: Principal, found: Mapping[str, Catalogue]) -> bool:
        """Whether what is kept of a server is not enough."""
        held = found.get(server.id)
        return held is None or (held.stale and self._manager.state(server.id, principal) is State.READY)

    async def _refresh_server(self, server_id: str, principal: Principal, chat: str | None) -> bool:
        """Whether a server has other tools than were known."""
        before = self.known_listing(principal).catalogues.get(server_id)
        roster = await self.refresh(principal, only=(server_id,), chat=chat)
        after = roster.catalogues.get(server_id)
        return after is not None and (before is None or after.contents is not before.contents)

    def missing_servers(self, principal: Principal) -> dict[str, ServerError | None]:
        """The enabled servers of which nothing is known, each with the reason; None where none is known
        either, since it has not answered yet."""
        roster = self.known_listing(principal)
        return {
            server.id: roster.failures.get(server.id)
            for server in self._enabled_servers(principal)
            if server.id not in roster.catalogues
        }

    async def locate_tool(
        self, name: str, principal: Principal, chat: str | None = None
    ) -> tuple[Server, Definition] | None:
        """The server and the tool of an exposed name, connecting to no more servers than that takes."""
        if (own := self._empty_listing.tools.get(name)) is not None:
            server = self._manager.find(own.server_id, principal)
            return None if server is None else (server, own)
        kept = self._by_principal.get(principal.id)
        definition = None if kept is None else kept.listing.tools.get(name)
        fresh = False
        if kept is None or definition is None:
            definition, fresh = await self._search_by_name(name, principal, chat)
            kept = self._by_principal.get(principal.id)
        if kept is None or definition is None:
            return None
        server = self._manager.find(definition.server_id, principal)
        if server is None:
            return None
        self._check_open()
        if fresh or (time.monotonic() < kept.recheck_at.get(server.id, 0.0) and server.cache_ttl > 0):
            return server, definition
        now = await self._catalogue_for_call(server, principal, chat)
        definition = self._update_listing(principal, server, now).tools.get(name)
        # It may have been replaced or taken away while it was asked.
        server = self._manager.find(server.id, principal)
        return None if server is None or definition is None else (server, definition)

    def _update_listing(self, principal: Principal, server: Server, now: Catalogue) -> ToolListing:
        """The roster with what a server has now. Awaits nothing: others learn at the same time."""
        roster = self.known_listing(principal)
        before = roster.catalogues.get(server.id)
        if before is None or now.contents is not before.contents:
            failures = {id: failure for id, failure in roster.failures.items() if id != server.id}
            roster = self._store_listing(principal, {**roster.catalogues, server.id: now}, failures)
        kept = self._by_principal.get(principal.id)
        if kept is not None:
            kept.recheck_at[server.id] = time.monotonic() + _CALL_RECHECK_SECONDS
            self._by_principal.move_to_end(principal.id)
        return roster

    async def _catalogue_for_call(self, server: Server, principal: Principal, chat: str | None) -> Catalogue:
        """The catalogue that a call goes by. Servers that say that a listing is stale at once (many do,
        because it is the default of a library) are not listed for every call, but as often as configured."""
        held = await self._catalogues.peek(server, principal)
        if held is not None and (not held.stale or (held.listing.ttl == 0 and held.age < server.cache_ttl)):
            return held
        connected = self._manager.state(server.id, principal) is State.READY
        return await self._catalogues.get(server, principal, connected=connected, chat=chat)

    async def _search_by_name(
        self, name: str, principal: Principal, chat: str | None
    ) -> tuple[Definition | None, bool]:
        """The tool of this name, and whether its server listed it just now."""
        roster = await self.load_stored(principal)
        if (found := roster.tools.get(name)) is not None:
            return found, False
        enabled = self._enabled_servers(principal)
        likely = {server.id for server in enabled if self.is_likely_owner(server.id, name)}
        unlisted = [
            server.id
            for server in enabled
            if self._is_worth_listing(server, roster, principal, server.id in likely)
        ]
        old = [
            server.id for server in enabled if server.id in likely and _has_stale_catalogue(server.id, roster)
        ]
        if old:
            # Another process listed it long ago: it may well have this tool by now.
            roster = await self.refresh(principal, only=old, fresh=True, chat=chat)
            if (found := roster.tools.get(name)) is not None:
                return found, True
        first = [server_id for server_id in unlisted if server_id in likely]
        for batch in (first, [server_id for server_id in unlisted if server_id not in likely]):
            if batch:
                roster = await self.refresh(principal, only=batch, chat=chat)
                if (found := roster.tools.get(name)) is not None:
                    return found, True
            if any(server_id in roster.failures for server_id in first):
                # Its server is most likely the one that is down: others need not start for nothing.
                return None, False
        return None, False

    def _is_worth_listing(
        self, server: Server, roster: ToolListing, principal: Principal, likely: bool
    ) -> bool:
        """Never listed; or connected, with a copy that no longer counts; or nothing may be kept of it."""
        held = roster.catalogues.get(server.id)
        if held is None or (server.cache_ttl <= 0 and likely):
            return True
        return held.stale and self._manager.state(server.id, principal) is State.READY

    def is_likely_owner(self, server_id: str, name: str) -> bool:
        """Whether a name looks like one of this server's, for a first guess and no more."""
        return self.guess_tool_name(server_id, name) is not None

    def guess_tool_name(self, server_id: str, name: str) -> str | None:
        """What the server itself may call a tool of this exposed name; None where it looks like no tool of
        its. A guess, for tools that are not known."""
        prefix = self.name_prefix(server_id)
        return name.removeprefix(prefix) if name.startswith(prefix) else None

    def name_prefix(self, server_id: str) -> str:
        """With what the exposed names of a server's tools begin."""
        server = self._manager.servers.get(server_id)
        if server is None or server.instance is None:
            return self._name_assigner.prefix(server_id)
        return self._name_assigner.prefix(server.instance.slug, instance=True)

    def _check_open(self) -> None:
        if self._closed:
            raise Unreachable("the yard is closed")

    def _disabled_catalogues(self, roster: ToolListing, principal: Principal) -> dict[str, Catalogue]:
        """What is known of servers that are switched off: nobody sees it, but it can be explained."""
        servers = self._manager.visible_servers(principal)
        return {
            server_id: catalogue
            for server_id, catalogue in roster.catalogues.items()
            if server_id in servers and not servers[server_id].enabled
        }

    def _enabled_servers(self, principal: Principal) -> list[Server]:
        return [server for server in self._manager.visible_servers(principal).values() if server.enabled]

    def _store_listing(
        self, principal: Principal, found: Mapping[str, Catalogue], failures: Mapping[str, ServerError]
    ) -> ToolListing:
        # A server may have been taken away while it was asked.
        there = self._manager.visible_servers(principal)
        found = {id: catalogue for id, catalogue in found.items() if id in there}
        failures = {id: failure for id, failure in failures.items() if id in there}
        kept = self._by_principal.get(principal.id)
        if kept is None:
            kept = self._by_principal[principal.id] = _PrincipalTools(self._empty_listing)
        self._by_principal.move_to_end(principal.id)
        while len(self._by_principal) > _MAX_PRINCIPALS:
            self._by_principal.popitem(last=False)
        return self._rebuild_listing(kept, found, failures)

    def _rebuild_listing(
        self,
        principal_tools: _PrincipalTools,
        found: Mapping[str, Catalogue],
        failures: Mapping[str, ServerError],
    ) -> ToolListing:
        before = principal_tools.listing.catalogues
        # A list that was fetched again and is still the same keeps its names and what was decided of it.
        found = {
            id: _reuse_equal_contents(one, before.get(id))
            for id, one in {**found, **self._built_in_catalogues}.items()
        }
        slugs = {
            id: server.instance.slug
            for id in found
            if (server := self._manager.servers.get(id)) is not None and server.instance is not None
        }
        principal_tools.listing = principal_tools.listing.with_catalogues(
            self._name_assigner, found, failures, slugs
        )
        return principal_tools.listing


def _reuse_equal_contents(now: Catalogue, before: Catalogue | None) -> Catalogue:
    if before is None or now.contents is before.contents or now.content_hash != before.content_hash:
        return now
    return replace(now, contents=before.contents)


def _has_stale_catalogue(server_id: str, roster: ToolListing) -> bool:
    held = roster.catalogues.get(server_id)
    return held is not None and held.stale
