"""Keeping the roster of each principal as fresh as is needed, starting as little as possible."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping

from toolyard.catalog.cache import Catalogues
from toolyard.catalog.names import Naming
from toolyard.catalog.roster import Roster
from toolyard.clients.manager import ClientManager
from toolyard.errors import ServerError, Unreachable
from toolyard.model.catalog import Catalogue
from toolyard.model.principal import Principal
from toolyard.model.server import Server
from toolyard.model.status import State
from toolyard.model.tool import Definition

__all__ = ["Rosters"]

_PARALLEL = 16
_RECHECK = 1.0
"""Seconds for which a call need not look again whether the kept definition of its tool still counts."""


class Rosters:
    """What tools there are for each principal: from what is kept, from servers where that is not enough."""

    def __init__(self, manager: ClientManager, catalogues: Catalogues, naming: Naming) -> None:
        self._manager = manager
        self._catalogues = catalogues
        self._naming = naming
        self._kept: dict[str, Roster] = {}
        self._checked: dict[tuple[str, str], float] = {}
        self._closed = False

    def close(self) -> None:
        """Ask nobody from now on, not even storage: who still waits for a server must not open it again."""
        self._closed = True

    def known(self, principal: Principal) -> Roster:
        """What was learned so far. Asks nobody."""
        return self._kept.get(principal.id) or Roster.of(self._naming, {}, {})

    def forget(self) -> None:
        """The servers changed: learn anew."""
        self._kept.clear()
        self._checked.clear()

    def recheck(self) -> None:
        """Some server's list changed: the next call looks whether its tool is still what it was."""
        self._checked.clear()

    async def stored(self, principal: Principal) -> Roster:
        """What is kept from earlier, of every server, disabled ones too. Starts nothing."""
        self._check()
        servers = list(self._manager.servers.values())
        kept = await asyncio.gather(*(self._catalogues.peek(server, principal) for server in servers))
        found = {server.id: one for server, one in zip(servers, kept, strict=True) if one is not None}
        return self._keep(principal, found, {})

    async def current(
        self, principal: Principal, *, fresh: bool = False, only: Iterable[str] | None = None
    ) -> Roster:
        """What every enabled server has now. One that was never listed is connected to; one that was is
        asked again only while it is connected and its copy is old. ``fresh`` asks all of them."""
        wanted = None if only is None else set(only)
        servers = [server for server in self._enabled() if wanted is None or server.id in wanted]
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
                    return await self._catalogues.get(server, principal, connected=ready, fresh=fresh), None
            except ServerError as error:
                return held, error

        outcomes = await asyncio.gather(*(one(server) for server in servers))
        # Nothing is awaited from here on: another caller may be learning of other servers.
        before = self.known(principal)
        found = dict(before.catalogues) if wanted is not None else self._disabled(before)
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

    async def locate(self, name: str, principal: Principal) -> tuple[str, Definition] | None:
        """The server and the tool of an exposed name, connecting to no more servers than that takes."""
        definition = self.known(principal).tools.get(name)
        if definition is None:
            definition = await self._search(name, principal)
        if definition is None:
            return None
        server = self._manager.servers.get(definition.server_id)
        if server is None:
            return None
        self._check()
        checked = (principal.id, server.id)
        if time.monotonic() < self._checked.get(checked, 0.0) and server.cache_ttl > 0:
            return server.id, definition
        before = self.known(principal).catalogues.get(server.id)
        now = await self._for_call(server, principal)
        self._checked[checked] = time.monotonic() + _RECHECK
        if before is None or now.contents is not before.contents:
            roster = self.known(principal)
            self._keep(principal, {**roster.catalogues, server.id: now}, roster.failures)
            definition = self.known(principal).tools.get(name)
        return None if definition is None else (server.id, definition)

    async def _for_call(self, server: Server, principal: Principal) -> Catalogue:
        """The catalogue that a call goes by. Servers that say that a listing is stale at once (many do,
        because it is the default of a library) are not listed for every call, but as often as configured."""
        held = await self._catalogues.peek(server, principal)
        if held is not None and (not held.stale or (held.listing.ttl == 0 and held.age < server.cache_ttl)):
            return held
        connected = self._manager.state(server.id, principal) is State.READY
        return await self._catalogues.get(server, principal, connected=connected)

    async def _search(self, name: str, principal: Principal) -> Definition | None:
        roster = await self.stored(principal)
        if (found := roster.tools.get(name)) is not None:
            return found
        unlisted = [server.id for server in self._enabled() if self._worth_asking(server, roster, principal)]
        likely = [server_id for server_id in unlisted if self.may_own(server_id, name)]
        old = [
            server.id
            for server in self._enabled()
            if self.may_own(server.id, name) and _is_old(server.id, roster)
        ]
        if old:
            # Another process listed it long ago: it may well have this tool by now.
            roster = await self.current(principal, only=old, fresh=True)
            if (found := roster.tools.get(name)) is not None:
                return found
        for batch in (likely, [server_id for server_id in unlisted if server_id not in likely]):
            if batch:
                roster = await self.current(principal, only=batch)
                if (found := roster.tools.get(name)) is not None:
                    return found
            if likely and any(server_id in roster.failures for server_id in likely):
                # Its server is most likely the one that is down: others need not start for nothing.
                return None
        return None

    def _worth_asking(self, server: Server, roster: Roster, principal: Principal) -> bool:
        """Never listed; or connected, with a copy that no longer counts."""
        held = roster.catalogues.get(server.id)
        return held is None or (held.stale and self._manager.state(server.id, principal) is State.READY)

    def may_own(self, server_id: str, name: str) -> bool:
        """Whether a name looks like one of this server's, for a first guess and no more."""
        return self.own_name(server_id, name) is not None

    def own_name(self, server_id: str, name: str) -> str | None:
        """What the server itself may call a tool of this exposed name; None where it looks like no tool of
        its. A guess, for tools that are not known."""
        prefix = self._naming.prefix(server_id)
        return name.removeprefix(prefix) if name.startswith(prefix) else None

    def _check(self) -> None:
        if self._closed:
            raise Unreachable("the yard is closed")

    def _disabled(self, roster: Roster) -> dict[str, Catalogue]:
        """What is known of servers that are switched off: nobody sees it, but it can be explained."""
        servers = self._manager.servers
        return {
            server_id: catalogue
            for server_id, catalogue in roster.catalogues.items()
            if server_id in servers and not servers[server_id].enabled
        }

    def _enabled(self) -> list[Server]:
        return [server for server in self._manager.servers.values() if server.enabled]

    def _keep(
        self, principal: Principal, found: Mapping[str, Catalogue], failures: Mapping[str, ServerError]
    ) -> Roster:
        roster = self.known(principal).updated(self._naming, found, failures)
        self._kept[principal.id] = roster
        return roster


def _is_old(server_id: str, roster: Roster) -> bool:
    held = roster.catalogues.get(server_id)
    return held is not None and held.stale
