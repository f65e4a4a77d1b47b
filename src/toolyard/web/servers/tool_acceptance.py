"""Review and acceptance of tool changes, shared by the pages and the API.

Admins accept changes of configured and registry servers for everyone. The owner of an instance accepts
changes for that instance only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from toolyard.catalog.lock import Change, build_pins
from toolyard.catalog.lock.combined_locks import CombinedLocks
from toolyard.catalog.lock.registry_lock import RegistryLock
from toolyard.catalog.lock.storage import PinKey
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.core.audit import AuditRecorder
from toolyard.core.current_config import ChangeNotifier, CurrentConfig
from toolyard.errors import ServerError
from toolyard.store.repositories.listings import SqlPinStorage
from toolyard.types.account import RequestUser
from toolyard.types.registry import Instance, RegistryServer
from toolyard.types.server import Server
from toolyard.types.tool import RawListing, ValidatedListing
from toolyard.web.servers.previews import ServerPreview

__all__ = ["ReviewedServer", "ToolAcceptance"]

ReviewedServer: TypeAlias = Server | RegistryServer | Instance
"""A configured server, a registry server with all its instances, or one instance only."""


@dataclass(frozen=True, slots=True)
class ToolAcceptance:
    """Finds and accepts changes of tools."""

    _locks: CombinedLocks
    _tool_directory: ToolDirectory
    _pins: SqlPinStorage
    _config: CurrentConfig
    _notifier: ChangeNotifier
    _audit: AuditRecorder

    async def find_changes(self, request_user: RequestUser, reviewed: ReviewedServer) -> list[Change]:
        """Return the changes that are not accepted.

        For a configured server, these are the changes in the user's current listing; for a registry server,
        those seen in any user's listing; for an instance, those in its last listing. Raises LockBroken,
        StoreError, or ServerError if a configured server was never listed and cannot be listed now.
        """
        if not isinstance(reviewed, Server):
            return await self._find_stored_changes(reviewed)
        if not self._locks.has_lock(reviewed):
            return []
        return await self._locks.changes(reviewed, await self._fetch_contents(request_user, reviewed))

    async def _find_stored_changes(self, reviewed: RegistryServer | Instance) -> list[Change]:
        return await self._get_registry_lock().list_unaccepted_changes(*_find_pins(reviewed))

    async def find_known_file_changes(self, request_user: RequestUser, server: Server) -> list[Change]:
        """Return the unaccepted changes in the cached listing, without contacting the server.

        Returns nothing if the lock file is broken, because each tool reports that already.
        """
        locks, listing = self._locks, self._tool_directory.known_listing(request_user.principal)
        catalogue = listing.catalogues.get(server.id)
        if catalogue is None or (locks.file is not None and locks.file.problem is not None):
            return []
        return await locks.changes(server, catalogue.contents)

    async def accept_changes(
        self, request_user: RequestUser, reviewed: ReviewedServer, keys: Collection[str]
    ) -> list[Change]:
        """Accept and return the changes with these keys: of an instance for its owner, else for everyone.

        Clients are notified that the tool list changed. Raises Outdated, LockUnwritable, and the errors of
        ``find_changes``.
        """
        if isinstance(reviewed, Server):
            contents = await self._fetch_contents(request_user, reviewed)
            accepted = await self._locks.accept(reviewed, contents, keys)
            name = reviewed.label or reviewed.id
        else:
            accepted = await self._get_registry_lock().accept(*_find_pins(reviewed), keys)
            name = reviewed.slug if isinstance(reviewed, Instance) else reviewed.name
        tools = [change.tool or change.kind.value for change in accepted]
        await self._audit.record_change(
            request_user, "lock.accept", reviewed.id, name=name, accepted=tools[:100], count=len(accepted)
        )
        self._notifier.notify_tools_changed()
        return accepted

    async def _fetch_contents(self, request_user: RequestUser, server: Server) -> ValidatedListing:
        listing = await self._tool_directory.refresh(request_user.principal, only=[server.id])
        catalogue = listing.catalogues.get(server.id)
        if catalogue is None:
            error = listing.failures.get(server.id)
            raise error or ServerError(
                "the tools of this server have not been listed yet",
                hint="check that the server is enabled",
                server=server.id,
            )
        return catalogue.contents

    async def count_unaccepted_tools(self, servers: Iterable[RegistryServer]) -> dict[str, int]:
        """Return the number of unaccepted tools by server id, without zeros. Raises StoreError."""
        changed_ids = set(await self._pins.servers_with_unaccepted_listings())
        counts = {
            server.id: sum(change.blocks for change in await self._find_stored_changes(server))
            for server in servers
            if server.id in changed_ids
        }
        return {server_id: number for server_id, number in counts.items() if number}

    def count_unaccepted_file_tools(self, request_user: RequestUser) -> dict[str, int]:
        """Return the number of unaccepted tools by id of a configured server, from cached listings."""
        catalogues = self._tool_directory.known_listing(request_user.principal).catalogues
        listed = {
            id: catalogues[id].contents for id in self._config.configuration.servers if id in catalogues
        }
        counts = {id: len(self._locks.quarantine_reasons(contents)) for id, contents in listed.items()}
        return {id: number for id, number in counts.items() if number}

    async def count_quarantined_tools(
        self, request_user: RequestUser, instances: Iterable[tuple[Instance, RegistryServer]]
    ) -> dict[str, int]:
        """Return the number of the user's quarantined tools, without zeros. Raises StoreError.

        Keys are ids of configured servers, and core ids of these instances.
        """
        counts = self.count_unaccepted_file_tools(request_user)
        changed_ids = set(await self._pins.servers_with_unaccepted_listings())
        for instance, server in instances:
            if server.id not in changed_ids:
                continue
            if number := sum(change.blocks for change in await self._find_stored_changes(instance)):
                counts[instance.core_id] = number
        return counts

    async def record_previewed_tools(self, server: RegistryServer, preview: ServerPreview) -> dict[str, str]:
        """Record the tools of a preview and return those not accepted, with reasons. Raises StoreError."""
        definitions = tuple(definition for definition, _ in preview.tools)
        if preview.error is not None or not definitions:
            return {}
        listing = ValidatedListing(server.id, "", RawListing(instructions=preview.instructions), definitions)
        # In a thread, because the server may list thousands of tools.
        previewed = await asyncio.to_thread(build_pins, listing)
        return dict(await self._get_registry_lock().compare_preview(server.id, previewed))

    def _get_registry_lock(self) -> RegistryLock:
        lock = self._locks.registry
        assert lock is not None, "services with a database have a registry lock"
        return lock


def _find_pins(reviewed: RegistryServer | Instance) -> tuple[PinKey, str]:
    """Return the key of the accepted definitions, and the name of the server in errors about them."""
    if isinstance(reviewed, Instance):
        return PinKey(reviewed.server_id, reviewed.id), reviewed.core_id
    return PinKey(reviewed.id), reviewed.name
