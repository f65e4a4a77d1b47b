"""Keeping the roster of each principal as fresh as is needed, starting as little as possible."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from toolyard.catalog.cache import Catalogues
from toolyard.catalog.exposed_names import Naming
from toolyard.catalog.tool_listing import Roster
from toolyard.clients.deferred_listings import Latecomers
from toolyard.clients.manager import ClientManager
from toolyard.errors import ServerError, SignInNeeded, Unreachable
from toolyard.types.catalog import Catalogue
from toolyard.types.principal import Principal
from toolyard.types.server import Server
from toolyard.types.status import State
from toolyard.types.tool import Definition

__all__ = ["Rosters"]

_PARALLEL = 16
_RECHECK = 1.0
"""Seconds for which a call need not look again whether the kept definition of its tool still counts."""
_PRINCIPALS = 512
"""Rosters that stay in memory. Who comes back after that is listed anew, from catalogues where there are."""


@dataclass(slots=True)
class _Kept:
    """What is known for one principal."""

    roster: Roster
    checked: dict[str, float] = field(default_factory=dict[str, float])
    """Until when a call to each server need not look again."""


class Rosters:
    """What tools there are for each principal: from what is kept, from servers where that is not enough.

    A roster has only servers that exist for its principal.
    """

    def __init__(
        self,
        manager: ClientManager,
        catalogues: Catalogues,
        naming: Naming,
        built_in: Mapping[str, Catalogue] | None = None,
    ) -> None:
        """``built_in`` has what our own servers have: it is in every roster and needs no listing."""
        self._manager = manager
        self._catalogues = catalogues
        self._naming = naming
        self._built_in = built_in or {}
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._empty = Roster.of(naming, self._built_in, {})
        self.late = Latecomers()
        """The servers that are being listed for those who do not wait for them."""
        self._closed = False

    def close(self) -> None:
        """Ask nobody from now on, not even storage: who still waits for a server must not open it again."""
        self._closed = True

    def known(self, principal: Principal) -> Roster:
        """What was learned so far. Asks nobody."""
        kept = self._kept.get(principal.id)
        return self._empty if kept is None else kept.roster

    def forget(self, server_ids: Collection[str], principal: Principal | None = None) -> None:
        """These servers changed or are gone, for everyone or for one: learn of them anew."""
        for principal_id, kept in self._kept.items():
            if principal is not None and principal_id != principal.id:
                continue
            before = kept.roster
            if (before.catalogues.keys() | before.failures.keys()).isdisjoint(server_ids):
                continue
            found = {id: one for id, one in before.catalogues.items() if id not in server_ids}
            failures = {id: one for id, one in before.failures.items() if id not in server_ids}
            self._renew(kept, found, failures)
        self.recheck(server_ids)

    def leave(self, principal_id: str) -> None:
        """Forget what is known for a principal."""
        self._kept.pop(principal_id, None)

    def recheck(self, server_ids: Collection[str]) -> None:
        """The lists of these changed: the next call looks whether its tool is still what it was."""
        for kept in self._kept.values():
            for server_id in server_ids:
                kept.checked.pop(server_id, None)

    async def stored(self, principal: Principal) -> Roster:
        """What is kept from earlier, of every server, disabled ones too. Starts nothing."""
        self._check()
        servers = list(self._manager.visible(principal).values())
        kept = await asyncio.gather(*(self._catalogues.peek(server, principal) for server in servers))
        found = {server.id: one for server, one in zip(servers, kept, strict=True) if one is not None}
        # Of servers that nothing may be kept of, there is what was listed last: enough to name their tools.
        before = self.known(principal).catalogues
        unkept = {server.id for server in servers if server.cache_ttl <= 0}
        last = {id: catalogue for id, catalogue in before.items() if id in unkept}
        return self._keep(principal, {**found, **last}, {})

    async def current(
        self,
        principal: Principal,
        *,
        fresh: bool = False,
        only: Iterable[str] | None = None,
        chat: str | None = None,
    ) -> Roster:
        """What every enabled server has now. One that was never listed is connected to; one that was is
        asked again only while it is connected and its copy is old. ``fresh`` asks all of them. ``chat`` is
        the one that asks: it asks instances over its own connections."""
        wanted = None if only is None else set(only)
        servers = [server for server in self._enabled(principal) if wanted is None or server.id in wanted]
        gate = asyncio.Semaphore(_PARALLEL)

        async def one(server: Server) -> tuple[Catalogue | None, ServerError | None]:
            held: Catalogue | None = None
            try:
                self._check()
                ready = self._manager.state(server.id, principal) is State.READY
                held = await self._catalogues.peek(server, principal)
                if held is not None and not fresh and not (ready and held.stale):
                    return held, None
                async with gate:
                    self._check()
                    return await self._catalogues.get(
                        server, principal, connected=ready, fresh=fresh, chat=chat
                    ), None
            except ServerError as error:
                return held, error

        outcomes = await asyncio.gather(*(one(server) for server in servers))
        # Nothing is awaited from here on: another caller may be learning of other servers.
        before = self.known(principal)
        found = dict(before.catalogues) if wanted is not None else self._disabled(before, principal)
        failures = dict(before.failures) if wanted is not None else {}
        for server, (catalogue, failure) in zip(servers, outcomes, strict=True):
            failures.pop(server.id, None)
            if failure is not None:
                failures[server.id] = failure
                # A server that is down keeps the tools it was known to have: calling one tells why.
                catalogue = before.catalogues.get(server.id) or catalogue
            if catalogue is not None:
                found[server.id] = catalogue
        return self._keep(principal, found, failures)

    async def soon(
        self, principal: Principal, *, only: Iterable[str] | None = None, chat: str | None = None
    ) -> Roster:
        """As ``current``, but no server is waited for longer than PATIENCE: one that takes longer goes on
        being listed, and until then there is what was kept of it. ``missing`` names those without that."""
        self._check()
        wanted = None if only is None else set(only)
        servers = [server for server in self._enabled(principal) if wanted is None or server.id in wanted]
        kept = await asyncio.gather(*(self._catalogues.peek(server, principal) for server in servers))
        found = {server.id: held for server, held in zip(servers, kept, strict=True) if held is not None}
        asked = {server.id: server for server in servers if self._is_asked(server, principal, found)}
        before = self.known(principal)
        settled = found.keys() - asked.keys()
        failures = {id: failure for id, failure in before.failures.items() if id not in settled}
        self._keep(principal, {**before.catalogues, **found}, failures)
        # Chats share what they all get over the usual connection.
        lanes = {id: chat if server.instance is not None else None for id, server in asked.items()}
        await self.late.wait(
            {
                (principal.id, id, lane): partial(self._learn, id, principal, lane)
                for id, lane in lanes.items()
            }
        )
        return self.known(principal)

    async def again(self, principal: Principal, *, chat: str | None = None) -> Roster:
        """As ``current``, but a server that could not be listed the last time is waited for as in ``soon``:
        one that is dead costs its whole limit once, not each time that somebody asks."""
        before = self.known(principal)
        # Where a sign-in is missing, it is told at once; after it there is something to wait for.
        failed = {id for id, why in before.failures.items() if not isinstance(why, SignInNeeded)}
        if not failed:
            return await self.current(principal, chat=chat)
        rest = [server.id for server in self._enabled(principal) if server.id not in failed]
        await asyncio.gather(
            self.current(principal, only=rest, chat=chat), self.soon(principal, only=failed, chat=chat)
        )
        return self.known(principal)

    def _is_asked(self, server: Server, principal: Principal, found: Mapping[str, Catalogue]) -> bool:
        """Whether what is kept of a server is not enough."""
        held = found.get(server.id)
        return held is None or (held.stale and self._manager.state(server.id, principal) is State.READY)

    async def _learn(self, server_id: str, principal: Principal, chat: str | None) -> bool:
        """Whether a server has other tools than were known."""
        before = self.known(principal).catalogues.get(server_id)
        roster = await self.current(principal, only=(server_id,), chat=chat)
        after = roster.catalogues.get(server_id)
        return after is not None and (before is None or after.contents is not before.contents)

    def missing(self, principal: Principal) -> dict[str, ServerError | None]:
        """The enabled servers of which nothing is known, each with the reason; None where none is known
        either, since it has not answered yet."""
        roster = self.known(principal)
        return {
            server.id: roster.failures.get(server.id)
            for server in self._enabled(principal)
            if server.id not in roster.catalogues
        }

    async def locate(
        self, name: str, principal: Principal, chat: str | None = None
    ) -> tuple[Server, Definition] | None:
        """The server and the tool of an exposed name, connecting to no more servers than that takes."""
        if (own := self._empty.tools.get(name)) is not None:
            server = self._manager.find(own.server_id, principal)
            return None if server is None else (server, own)
        kept = self._kept.get(principal.id)
        definition = None if kept is None else kept.roster.tools.get(name)
        fresh = False
        if kept is None or definition is None:
            definition, fresh = await self._search(name, principal, chat)
            kept = self._kept.get(principal.id)
        if kept is None or definition is None:
            return None
        server = self._manager.find(definition.server_id, principal)
        if server is None:
            return None
        self._check()
        if fresh or (time.monotonic() < kept.checked.get(server.id, 0.0) and server.cache_ttl > 0):
            return server, definition
        now = await self._for_call(server, principal, chat)
        definition = self._learned(principal, server, now).tools.get(name)
        # It may have been replaced or taken away while it was asked.
        server = self._manager.find(server.id, principal)
        return None if server is None or definition is None else (server, definition)

    def _learned(self, principal: Principal, server: Server, now: Catalogue) -> Roster:
        """The roster with what a server has now. Awaits nothing: others learn at the same time."""
        roster = self.known(principal)
        before = roster.catalogues.get(server.id)
        if before is None or now.contents is not before.contents:
            failures = {id: failure for id, failure in roster.failures.items() if id != server.id}
            roster = self._keep(principal, {**roster.catalogues, server.id: now}, failures)
        kept = self._kept.get(principal.id)
        if kept is not None:
            kept.checked[server.id] = time.monotonic() + _RECHECK
            self._kept.move_to_end(principal.id)
        return roster

    async def _for_call(self, server: Server, principal: Principal, chat: str | None) -> Catalogue:
        """The catalogue that a call goes by. Servers that say that a listing is stale at once (many do,
        because it is the default of a library) are not listed for every call, but as often as configured."""
        held = await self._catalogues.peek(server, principal)
        if held is not None and (not held.stale or (held.listing.ttl == 0 and held.age < server.cache_ttl)):
            return held
        connected = self._manager.state(server.id, principal) is State.READY
        return await self._catalogues.get(server, principal, connected=connected, chat=chat)

    async def _search(
        self, name: str, principal: Principal, chat: str | None
    ) -> tuple[Definition | None, bool]:
        """The tool of this name, and whether its server listed it just now."""
        roster = await self.stored(principal)
        if (found := roster.tools.get(name)) is not None:
            return found, False
        enabled = self._enabled(principal)
        likely = {server.id for server in enabled if self.may_own(server.id, name)}
        unlisted = [
            server.id
            for server in enabled
            if self._worth_asking(server, roster, principal, server.id in likely)
        ]
        old = [server.id for server in enabled if server.id in likely and _is_old(server.id, roster)]
        if old:
            # Another process listed it long ago: it may well have this tool by now.
            roster = await self.current(principal, only=old, fresh=True, chat=chat)
            if (found := roster.tools.get(name)) is not None:
                return found, True
        first = [server_id for server_id in unlisted if server_id in likely]
        for batch in (first, [server_id for server_id in unlisted if server_id not in likely]):
            if batch:
                roster = await self.current(principal, only=batch, chat=chat)
                if (found := roster.tools.get(name)) is not None:
                    return found, True
            if any(server_id in roster.failures for server_id in first):
                # Its server is most likely the one that is down: others need not start for nothing.
                return None, False
        return None, False

    def _worth_asking(self, server: Server, roster: Roster, principal: Principal, likely: bool) -> bool:
        """Never listed; or connected, with a copy that no longer counts; or nothing may be kept of it."""
        held = roster.catalogues.get(server.id)
        if held is None or (server.cache_ttl <= 0 and likely):
            return True
        return held.stale and self._manager.state(server.id, principal) is State.READY

    def may_own(self, server_id: str, name: str) -> bool:
        """Whether a name looks like one of this server's, for a first guess and no more."""
        return self.own_name(server_id, name) is not None

    def own_name(self, server_id: str, name: str) -> str | None:
        """What the server itself may call a tool of this exposed name; None where it looks like no tool of
        its. A guess, for tools that are not known."""
        prefix = self.prefix(server_id)
        return name.removeprefix(prefix) if name.startswith(prefix) else None

    def prefix(self, server_id: str) -> str:
        """With what the exposed names of a server's tools begin."""
        server = self._manager.servers.get(server_id)
        if server is None or server.instance is None:
            return self._naming.prefix(server_id)
        return self._naming.prefix(server.instance.slug, instance=True)

    def _check(self) -> None:
        if self._closed:
            raise Unreachable("the yard is closed")

    def _disabled(self, roster: Roster, principal: Principal) -> dict[str, Catalogue]:
        """What is known of servers that are switched off: nobody sees it, but it can be explained."""
        servers = self._manager.visible(principal)
        return {
            server_id: catalogue
            for server_id, catalogue in roster.catalogues.items()
            if server_id in servers and not servers[server_id].enabled
        }

    def _enabled(self, principal: Principal) -> list[Server]:
        return [server for server in self._manager.visible(principal).values() if server.enabled]

    def _keep(
        self, principal: Principal, found: Mapping[str, Catalogue], failures: Mapping[str, ServerError]
    ) -> Roster:
        # A server may have been taken away while it was asked.
        there = self._manager.visible(principal)
        found = {id: catalogue for id, catalogue in found.items() if id in there}
        failures = {id: failure for id, failure in failures.items() if id in there}
        kept = self._kept.get(principal.id)
        if kept is None:
            kept = self._kept[principal.id] = _Kept(self._empty)
        self._kept.move_to_end(principal.id)
        while len(self._kept) > _PRINCIPALS:
            self._kept.popitem(last=False)
        return self._renew(kept, found, failures)

    def _renew(
        self, kept: _Kept, found: Mapping[str, Catalogue], failures: Mapping[str, ServerError]
    ) -> Roster:
        before = kept.roster.catalogues
        # A list that was fetched again and is still the same keeps its names and what was decided of it.
        found = {id: _as_before(one, before.get(id)) for id, one in {**found, **self._built_in}.items()}
        slugs = {
            id: server.instance.slug
            for id in found
            if (server := self._manager.servers.get(id)) is not None and server.instance is not None
        }
        kept.roster = kept.roster.updated(self._naming, found, failures, slugs)
        return kept.roster


def _as_before(now: Catalogue, before: Catalogue | None) -> Catalogue:
    if before is None or now.contents is before.contents or now.content_hash != before.content_hash:
        return now
    return replace(now, contents=before.contents)


def _is_old(server_id: str, roster: Roster) -> bool:
    held = roster.catalogues.get(server_id)
    return held is not None and held.stale
