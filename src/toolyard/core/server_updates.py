"""Changes of servers, instances and credentials, applied to the connections and caches of a process."""

from __future__ import annotations

from collections.abc import Iterable

from toolyard.catalog.cache import CatalogueCache
from toolyard.clients import ConnectionManager
from toolyard.clients.call_path import CallPath
from toolyard.clients.connection import initial_status
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.concurrency.tasks import BackgroundTasks
from toolyard.meta_tools import MetaTools
from toolyard.types.account import Principal
from toolyard.types.server import Configuration, Server, Status

__all__ = ["ServerUpdates"]


class ServerUpdates:
    """Applies changes. Connections and caches of servers that did not change are kept."""

    def __init__(
        self,
        manager: ConnectionManager,
        catalogues: CatalogueCache,
        tool_directory: ToolDirectory,
        call_path: CallPath,
        meta_tools: MetaTools,
    ) -> None:
        self._manager = manager
        self._catalogues = catalogues
        self._tool_directory = tool_directory
        self._call_path = call_path
        self._meta_tools = meta_tools
        self._tasks = BackgroundTasks()
        self._is_closed = False
        self.pending_list_changes: dict[str, bool] = {}
        """Servers whose list_changed notification is being handled; True if another one arrived meanwhile.
        Notifications are merged, so that a server that sends them in a loop cannot pile up work."""

    async def update_configuration(self, configuration: Configuration) -> set[str]:
        """Apply a changed configuration and return the ids of the servers that differ."""
        changed_ids = await self._manager.update(configuration.servers.values())
        self._call_path.invalidate_servers(changed_ids)
        return changed_ids

    async def sync_instances(self, owner: str, servers: Iterable[Server]) -> set[str]:
        """Replace the instances of one owner and return the ids of those that differ.

        Raises ValueError for a server that is not an instance of this owner.
        """
        ids_before = set(self._manager.servers)
        changed_ids = await self._manager.sync_instances(owner, servers)
        if changed_ids:
            self._call_path.invalidate_servers(changed_ids)
        # New instances have no cached listing in this process, so only former ones need to be dropped.
        for server_id in changed_ids & ids_before:
            await self._catalogues.forget(server_id)
        return changed_ids

    async def forget_principal(self, principal_id: str) -> None:
        """Close the connections of a principal, and drop their instances and cached data."""
        await self.sync_instances(principal_id, ())
        await self._manager.close_principal(principal_id)
        self._call_path.forget_principal(principal_id)
        self._meta_tools.forget_principal(principal_id)

    async def reconnect(self, server_id: str, principal: Principal) -> None:
        """Close the connection after a change of credentials, and drop everything fetched with the old ones.

        The next use connects again. Raises Unreachable if the principal has no such server.
        """
        await self._manager.restart(server_id, principal)
        server = self._manager.find(server_id, principal)
        # A shared server has one connection and one listing for all principals (None).
        affected = None if server is not None and server.shared else principal
        self._tool_directory.forget_servers((server_id,), affected)
        await self._catalogues.forget(server_id, affected)

    def on_list_changed(self, server_id: str) -> None:
        """Refresh a server's listing in the background. Notifications that arrive meanwhile are merged."""
        if self._is_closed:
            return
        # While one is being handled, only note that another arrived: handle_list_changed then repeats.
        is_pending = server_id in self.pending_list_changes
        self.pending_list_changes[server_id] = is_pending
        if not is_pending:
            self._tasks.spawn(self.handle_list_changed(server_id))

    async def close(self) -> None:
        """End the refreshes of listings; further notifications have no effect."""
        # Marked first: a server may notify while its connection is being closed.
        self._is_closed = True
        await self._tasks.close()

    async def handle_list_changed(self, server_id: str) -> None:
        """Refresh a server's listing after list_changed; repeat if another notification arrived meanwhile."""
        try:
            while True:
                self.pending_list_changes[server_id] = False
                await self._catalogues.list_changed(server_id)
                self._tool_directory.require_recheck((server_id,))
                if not self.pending_list_changes.get(server_id):
                    return
        finally:
            self.pending_list_changes.pop(server_id, None)

    def get_status(self, server: Server, principal: Principal) -> Status:
        """Return the status of a server for a principal, with secrets redacted."""
        if self._manager.find(server.id, principal) is None:
            return initial_status(server, principal)
        return self._call_path.redact_status(self._manager.status(server.id, principal=principal))
