"""Clients of the gateway that watch hear what is different for them, whichever replica changed it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from toolyard.errors import SignInNeeded, ToolyardError
from toolyard.types.principal import Principal
from toolyard.types.registry import Instance, InstanceState

if TYPE_CHECKING:
    from toolyard.web.services import Site

__all__ = ["Watchers"]

log = logging.getLogger("toolyard.web")


class Watchers:
    """Looks at what everyone has now who watches, one after the other, after word of a change. What is
    said while it looks is one word for the next time."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._words: set[str] = set()
        self._due = asyncio.Event()

    def hurry(self, what: str) -> None:
        """A server of the registry or an instance changed, which has this id; any, where it is empty."""
        self._words.add(what)
        self._due.set()

    def changed(self, principal: Principal | None, server_ids: Collection[str]) -> None:
        """The core knows other definitions of these servers now, of one principal or of everyone."""
        self._site.mcp.gateway.servers_changed(principal, server_ids)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._due.wait()
            self._due.clear()
            words, self._words = self._words, set()
            for principal in self._site.mcp.gateway.hub.watching():
                try:
                    # What else is different, the core finds out by this, and tells.
                    owned = await self._site.holdings.of(principal)
                    about = [each for each in owned if words & {"", each[0].id, each[1].id}]
                    await self._look(principal, [instance for instance, _ in about])
                except ToolyardError as error:
                    log.warning("what '%s' has cannot be looked at: %s", principal.id, error.cause)

    async def _look(self, principal: Principal, instances: Collection[Instance]) -> None:
        """Some of these may have other tools though their definitions are the same: they were signed in to,
        or tools of theirs were accepted."""
        rosters = self._site.parts.rosters
        failures = rosters.known(principal).failures
        usable = {
            instance.core_id
            for instance in instances
            if instance.state is InstanceState.READY
            and isinstance(failures.get(instance.core_id), SignInNeeded)
        }
        rosters.forget(usable, principal)
        accepted = {each.core_id for each in instances if await self._accepted(principal, each.core_id)}
        if usable or accepted:
            self.changed(principal, usable | accepted)

    async def _accepted(self, principal: Principal, server_id: str) -> bool:
        """Whether other tools of an instance are set aside than this process believed."""
        parts = self._site.parts
        server = parts.manager.find(server_id, principal)
        catalogue = parts.rosters.known(principal).catalogues.get(server_id)
        if server is None or catalogue is None:
            return False
        before = dict(parts.locks.reasons(catalogue.contents))
        await parts.locks.met(server, catalogue.contents)
        return before != parts.locks.reasons(catalogue.contents)
