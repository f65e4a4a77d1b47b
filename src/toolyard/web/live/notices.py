"""Notification of listening gateway clients about changes made by any replica."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from toolyard.catalog.lock.combined_locks import CombinedLocks
from toolyard.clients import ConnectionManager
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.core.instances import InstanceSync
from toolyard.errors import SignInNeeded, ToolyardError
from toolyard.gateway.gateway import Gateway
from toolyard.types.account import Principal
from toolyard.types.registry import Instance, InstanceState

__all__ = ["GatewayNotices"]

log = logging.getLogger("toolyard.web")


class GatewayNotices:
    """Re-synchronises the instances of all subscribed principals after a change.

    Changes reported during a run are collected and handled together in the next one.
    """

    def __init__(
        self,
        gateway: Gateway,
        instances: InstanceSync,
        manager: ConnectionManager,
        tool_directory: ToolDirectory,
        locks: CombinedLocks,
    ) -> None:
        self._gateway = gateway
        self._instances = instances
        self._manager = manager
        self._tool_directory = tool_directory
        self._locks = locks
        self._changed_ids: set[str] = set()
        self._check_due = asyncio.Event()

    def request_check(self, changed_id: str) -> None:
        """Schedule a check after a change of the registry server or instance with this id (empty: any)."""
        self._changed_ids.add(changed_id)
        self._check_due.set()

    async def run(self) -> None:
        """Process scheduled checks until cancelled."""
        while True:
            await self._check_due.wait()
            self._check_due.clear()
            changed_ids, self._changed_ids = self._changed_ids, set()
            for principal in self._gateway.client_subscriptions.subscriber_principals():
                try:
                    # This also passes changed definitions to the core, which notifies about them itself.
                    owned = await self._instances.sync(principal)
                    affected = [each for each in owned if changed_ids & {"", each[0].id, each[1].id}]
                    await self._check_instances(principal, [instance for instance, _ in affected])
                except ToolyardError as error:
                    log.warning("the instances of '%s' cannot be checked: %s", principal.id, error.cause)

    async def _check_instances(self, principal: Principal, instances: Collection[Instance]) -> None:
        """Notify about instances whose tools changed although their definitions did not.

        This happens after a sign-in, and after the acceptance of quarantined tools.
        """
        tool_directory = self._tool_directory
        failures = tool_directory.known_listing(principal).failures
        signed_in_ids = {
            instance.core_id
            for instance in instances
            if instance.state is InstanceState.READY
            and isinstance(failures.get(instance.core_id), SignInNeeded)
        }
        tool_directory.forget_servers(signed_in_ids, principal)
        accepted_ids = {
            each.core_id for each in instances if await self._refresh_quarantine(principal, each.core_id)
        }
        if signed_in_ids or accepted_ids:
            self._gateway.on_servers_changed(principal, signed_in_ids | accepted_ids)

    async def _refresh_quarantine(self, principal: Principal, server_id: str) -> bool:
        """Read the accepted tools again; return True if the set of quarantined tools changed."""
        server = self._manager.find(server_id, principal)
        catalogue = self._tool_directory.known_listing(principal).catalogues.get(server_id)
        if server is None or catalogue is None:
            return False
        before = dict(self._locks.quarantine_reasons(catalogue.contents))
        await self._locks.check_listing(server, catalogue.contents)
        return before != self._locks.quarantine_reasons(catalogue.contents)
