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
    from toolyard.web.services import Services

__all__ = ["GatewayNotices"]

log = logging.getLogger("toolyard.web")


class GatewayNotices:
    """Looks at what everyone has now who watches, one after the other, after word of a change. What is
    said while it looks is one word for the next time."""

    def __init__(self, site: Services) -> None:
        self._services = site
        self._changed_ids: set[str] = set()
        self._check_due = asyncio.Event()

    def request_check(self, changed_id: str) -> None:
        """A server of the registry or an instance changed, which has this id; any, where it is empty."""
        self._changed_ids.add(changed_id)
        self._check_due.set()

    def changed(self, principal: Principal | None, server_ids: Collection[str]) -> None:
        """The core knows other definitions of these servers now, of one principal or of everyone."""
        self._services.mcp.gateway.on_servers_changed(principal, server_ids)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._check_due.wait()
            self._check_due.clear()
            words, self._changed_ids = self._changed_ids, set()
            for principal in self._services.mcp.gateway.client_subscriptions.subscriber_principals():
                try:
                    # What else is different, the core finds out by this, and tells.
                    owned = await self._services.instance_sync.sync(principal)
                    about = [each for each in owned if words & {"", each[0].id, each[1].id}]
                    await self._check_instances(principal, [instance for instance, _ in about])
                except ToolyardError as error:
                    log.warning("what '%s' has cannot be looked at: %s", principal.id, error.cause)

    async def _check_instances(self, principal: Principal, instances: Collection[Instance]) -> None:
        """Some of these may have other tools though their definitions are the same: they were signed in to,
        or tools of theirs were accepted."""
        rosters = self._services.parts.tool_directory
        failures = rosters.known_listing(principal).failures
        usable = {
            instance.core_id
            for instance in instances
            if instance.state is InstanceState.READY
            and isinstance(failures.get(instance.core_id), SignInNeeded)
        }
        rosters.forget_servers(usable, principal)
        accepted = {
            each.core_id for each in instances if await self._refresh_quarantine(principal, each.core_id)
        }
        if usable or accepted:
            self.changed(principal, usable | accepted)

    async def _refresh_quarantine(self, principal: Principal, server_id: str) -> bool:
        """Whether other tools of an instance are set aside than this process believed."""
        parts = self._services.parts
        server = parts.manager.find(server_id, principal)
        catalogue = parts.tool_directory.known_listing(principal).catalogues.get(server_id)
        if server is None or catalogue is None:
            return False
        before = dict(parts.locks.quarantine_reasons(catalogue.contents))
        await parts.locks.check_listing(server, catalogue.contents)
        return before != parts.locks.quarantine_reasons(catalogue.contents)
