"""The state that all endpoints of one process share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from typing import Any

from toolyard.catalog.exposed_names import NameAssigner
from toolyard.catalog.lock.combined_locks import CombinedLocks
from toolyard.clients import ConnectionManager
from toolyard.clients.call_path import CallPath
from toolyard.clients.deferred_listings import DeferredListingKey
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.core.call_approvals import CallApprovals
from toolyard.gateway.incoming_request import SoleClient
from toolyard.gateway.input_required.remote_calls import Mailbox, RemoteCalls
from toolyard.gateway.input_required.request_state import RequestStateSealer
from toolyard.gateway.input_required.suspended_call import SuspendedCalls
from toolyard.gateway.subscriptions import ClientSubscriptions
from toolyard.gateway.surface.list_repair import repair_tool
from toolyard.gateway.surface.listing_cache import ListingCache
from toolyard.meta_tools import MetaTools
from toolyard.protocol.codec import JsonFragment, encode_fragment
from toolyard.protocol.eras import Era
from toolyard.types.account import Principal
from toolyard.types.tool import Definition
from toolyard.types.version import __version__

__all__ = ["SERVER_INFO", "Gateway"]

SERVER_INFO: Mapping[str, Any] = {"name": "toolyard", "title": "Toolyard", "version": __version__}
"""Our server info at addresses with more than one server."""

_MAX_ENCODED_TOOLS = 50_000
"""Maximum number of cached encoded tools."""


class Gateway:
    """Created once per process, before anything connects; ``close`` it before the core."""

    def __init__(
        self,
        manager: ConnectionManager,
        tool_directory: ToolDirectory,
        call_path: CallPath,
        meta_tools: MetaTools,
        name_assigner: NameAssigner,
        locks: CombinedLocks,
        *,
        sealer: RequestStateSealer | None = None,
        approvals: CallApprovals | None = None,
        mailbox: Mailbox | None = None,
        sole_client: SoleClient | None = None,
    ) -> None:
        """Build the gateway.

        ``approvals`` is the approver of the core's call path, where clients can be asked. ``mailbox`` reaches
        the other replicas, if there are any. ``sole_client`` is the only client of a gateway that has one;
        its callbacks are those of the manager.
        """
        self.manager = manager
        self.tool_directory = tool_directory
        self.call_path = call_path
        self.meta_tools = meta_tools
        self.name_assigner = name_assigner
        self.locks = locks
        self.approvals = approvals
        self.sole_client = sole_client
        self.sealer = sealer or RequestStateSealer()
        self.suspended_calls = SuspendedCalls()
        self.remote_calls = RemoteCalls(self.suspended_calls, mailbox, call_path.redact_error)
        self.tools_changed_at: dict[str, float] = {}
        """Time of the last ``list_changed`` per server, in seconds since the epoch."""
        # The cache is cleared before subscribers are notified, so that their next request gets the new list.
        self._unsubscribe_notifications = manager.subscribe(self._on_notification)
        self._unsubscribe_deferred_listings = tool_directory.deferred.subscribe(self._on_deferred_listing)
        self.client_subscriptions = ClientSubscriptions(manager)
        self.listing_cache = ListingCache(
            manager,
            self.client_subscriptions.on_notification,
            list_deadline=tool_directory.deferred.deadline_seconds,
        )
        self.shutdown = asyncio.Event()
        self._encoded_tools: dict[tuple[str, str, Era], tuple[Definition, JsonFragment]] = {}

    @property
    def cache_sizes(self) -> Mapping[str, int]:
        """Number of entries of each cache."""
        return {
            "listings": len(self.listing_cache),
            "encoded_tools": len(self._encoded_tools),
            "tools_changed_at": len(self.tools_changed_at),
        }

    def encode_tool(self, name: str, definition: Definition, era: Era) -> JsonFragment:
        """Return a tool as its server published it, except for its name and for parts that clients of this
        era cannot read. Encoded once for all clients."""
        key = (definition.server_id, name, era)
        known = self._encoded_tools.get(key)
        if known is None or known[0] is not definition:
            raw = repair_tool(definition.raw, era)
            known = (definition, encode_fragment(raw if raw.get("name") == name else {**raw, "name": name}))
            if len(self._encoded_tools) >= _MAX_ENCODED_TOOLS:
                self._encoded_tools.clear()
            self._encoded_tools[key] = known
        return known[1]

    def on_servers_changed(self, principal: Principal | None, server_ids: Collection[str]) -> None:
        """Notify subscribers of changed definitions, for one principal or for everyone, and drop data of
        removed servers."""
        gone = {id for id in server_ids if id not in self.manager.servers}
        if gone:
            self._forget_servers(gone)
        self.client_subscriptions.notify_servers_changed(principal, server_ids)

    def _forget_servers(self, server_ids: Collection[str]) -> None:
        for server_id in server_ids:
            self.tools_changed_at.pop(server_id, None)
        for key in [key for key in self._encoded_tools if key[0] in server_ids]:
            del self._encoded_tools[key]
        self.listing_cache.forget_servers(server_ids)

    def _on_notification(
        self, server_id: str, principal_id: str, method: str, params: Mapping[str, Any]
    ) -> None:
        self.listing_cache.invalidate(server_id, method)
        if method == "notifications/tools/list_changed" and server_id in self.manager.servers:
            self.tools_changed_at[server_id] = time.time()

    def _on_deferred_listing(self, key: DeferredListingKey) -> None:
        """Notify subscribers that a server was listed after a list had been returned without it."""
        principal_id, server_id, _ = key
        self.client_subscriptions.notify_servers_changed(Principal(principal_id), (server_id,))

    async def close(self) -> None:
        """End suspended calls and the streams of clients."""
        self.shutdown.set()
        await self.suspended_calls.close()
        await self.remote_calls.close()
        self._unsubscribe_deferred_listings()
        await self.client_subscriptions.close()
        self._unsubscribe_notifications()
