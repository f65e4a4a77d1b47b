"""Background tasks that invalidate caches and notify gateway clients after changes by any replica."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from contextlib import aclosing, suppress

from toolyard.catalog.lock.combined_locks import CombinedLocks
from toolyard.clients import ConnectionManager
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.core.current_config import ChangeNotifier
from toolyard.core.instance_sync import InstanceSync
from toolyard.core.server_updates import ServerUpdates
from toolyard.errors import SignInNeeded, ToolyardError
from toolyard.gateway.gateway import Gateway
from toolyard.store.change_feed.signals import (
    AGENTS_CHANNEL,
    REGISTRY_CHANNEL,
    REMOVED_CREDENTIALS_CHANNEL,
    REVOKED_ACCESS_CHANNEL,
    Signals,
)
from toolyard.store.errors import StoreError
from toolyard.store.repositories.agents import SqlAgentStorage
from toolyard.types.account import Principal
from toolyard.types.registry import Instance, InstanceState
from toolyard.web.gateway_mount import GatewayMount
from toolyard.web.servers.status import StatusUpdates

__all__ = [
    "GatewayInstanceSync",
    "handle_agent_changes",
    "handle_credential_changes",
    "handle_server_changes",
    "handle_token_changes",
    "recheck_listeners_periodically",
]

log = logging.getLogger("toolyard.web")

_RECHECK_INTERVAL_SECONDS = 60.0
"""Interval between checks of listening clients for expired credentials, in seconds."""


async def handle_token_changes(signals: Signals, mount: GatewayMount) -> None:
    """Clear the admission cache and re-authorize listening clients when access is revoked."""
    async with aclosing(signals.listen(REVOKED_ACCESS_CHANNEL)) as listening:
        async for _ in listening:
            mount.clear_admissions()
            await mount.http_gateway.listeners.reauthorize()


async def handle_credential_changes(signals: Signals, updates: ServerUpdates) -> None:
    """Close a user's connections when any process deletes their stored credentials."""
    async with aclosing(signals.listen(REMOVED_CREDENTIALS_CHANNEL)) as listening:
        async for user_id in listening:
            await updates.forget_principal(user_id)


async def handle_server_changes(
    signals: Signals, mount: GatewayMount, live_updates: StatusUpdates, gateway_instances: GatewayInstanceSync
) -> None:
    """Refresh admissions, pages and gateway clients when a registry server or an instance changes."""
    async with aclosing(signals.listen(REGISTRY_CHANNEL)) as listening:
        async for changed_id in listening:
            mount.clear_admissions()
            live_updates.request_poll()
            gateway_instances.request_check(changed_id)


async def handle_agent_changes(
    signals: Signals, agents: SqlAgentStorage, mount: GatewayMount, notifier: ChangeNotifier
) -> None:
    """Refresh admissions and gateway clients when any process changes a stored agent."""
    known: frozenset[tuple[str, int]] | None = None
    async with aclosing(signals.listen(AGENTS_CHANNEL)) as listening:
        async for changed_id in listening:
            if changed_id:
                # Before the versions are read: the next call may come at once.
                mount.clear_admissions()
            # With SQLite, every write of another process may be one to the agents.
            with suppress(StoreError):
                former, known = known, await agents.read_versions()
                # The first message comes before any change, so it only records the versions.
                if former is not None and former != known:
                    mount.clear_admissions()
                    await mount.http_gateway.listeners.reauthorize()
                    notifier.notify_tools_changed()


async def recheck_listeners_periodically(
    mount: GatewayMount, interval_seconds: float = _RECHECK_INTERVAL_SECONDS
) -> None:
    """Re-authorize listening clients regularly: the expiry of a token or session sends no signal."""
    while True:
        await asyncio.sleep(interval_seconds)
        await mount.http_gateway.listeners.reauthorize()


class GatewayInstanceSync:
    """Re-synchronises the instances of all principals with gateway clients after a change.

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
