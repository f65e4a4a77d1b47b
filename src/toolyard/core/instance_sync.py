"""Synchronisation of users' instances: definitions from the database to the core, states back."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from toolyard.auth.storage import AuthStorage
from toolyard.clients import ConnectionManager
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.concurrency.lru_cache import LruCache
from toolyard.core.server_updates import ServerUpdates
from toolyard.policy.rules import scope_covers_server
from toolyard.registry import Registry
from toolyard.registry.errors import NotFound
from toolyard.types.account import Principal, RequestUser, TokenScope
from toolyard.types.registry import Instance, InstanceState, RegistryServer
from toolyard.types.server import Server, State

__all__ = ["InstanceSync", "InstanceWithServer"]

InstanceWithServer: TypeAlias = tuple[Instance, RegistryServer]
"""An instance and its registry server."""

_STORED_STATES = frozenset({State.READY, State.FAILED, State.NEEDS_AUTH})
"""Connection states that are stored as the state of the instance."""
_MAX_REMEMBERED_INSTANCES = 20_000
_MAX_RECENT_READS = 1_000
_MAX_READ_AGE_SECONDS = 10.0
"""Bounds the effect of a lost notification about a change."""


@dataclass(frozen=True, slots=True)
class _RecentRead:
    """A person's instances, which the core has."""

    revision: object | None
    """Revision of the registry before the read."""
    valid_until: float
    """On the monotonic clock."""
    instances: Sequence[InstanceWithServer]


class InstanceSync:
    """Keeps the core of one replica in step with the database that all replicas share."""

    def __init__(
        self,
        registry: Registry,
        manager: ConnectionManager,
        tool_directory: ToolDirectory,
        updates: ServerUpdates,
        auth_storage: AuthStorage | None = None,
        on_servers_changed: Callable[[Principal, Collection[str]], None] | None = None,
        get_revision: Callable[[], object | None] = lambda: None,
        max_read_age_seconds: float = _MAX_READ_AGE_SECONDS,
    ) -> None:
        """Create the synchroniser.

        ``auth_storage`` holds the sign-ins of instances. ``on_servers_changed`` is called with a principal
        and the ids of their instances whose definitions changed. ``get_revision`` returns a value that
        differs after each change of the registry by any replica, or None while changes may be missed.
        """
        self._registry = registry
        self._manager = manager
        self._tool_directory = tool_directory
        self._updates = updates
        self._auth_storage = auth_storage
        self._on_servers_changed = on_servers_changed
        self._get_revision = get_revision
        self.max_read_age_seconds = max_read_age_seconds
        """Time for which instances are not read again unless a change is reported."""
        self._recent_reads: LruCache[str, _RecentRead] = LruCache(_MAX_RECENT_READS)
        """By user id."""
        self._read_numbers = itertools.count(1)
        self._synced_read_by_user: dict[str, int] = {}
        """By user id: number of the read whose result the core has."""
        self._stored_since_by_server: dict[str, float] = {}
        """By core id of an instance: start time of the connection state that was stored last."""

    async def sync(self, principal: Principal) -> Sequence[InstanceWithServer]:
        """Make the core use the principal's current instances, and return them with fresh states."""
        recent, revision = self._recent_reads.peek(principal.id), self._get_revision()
        if (
            recent is not None
            and revision is not None
            and recent.revision == revision
            and time.monotonic() < recent.valid_until
            # The core forgets the instances of a principal whose credentials were removed.
            and (not recent.instances or self._manager.has_instances(principal.id))
        ):
            instances = recent.instances
        else:
            instances = await self._refresh_core_instances(principal)
        # Stored states are part of the instances, so they are read again after a change.
        if instances and await self._store_connection_states(instances, principal):
            return await self._refresh_core_instances(principal)
        return instances

    async def sync_covered(
        self, principal: Principal, scope: TokenScope | None
    ) -> Sequence[InstanceWithServer]:
        """Synchronise, and return the instances that a token covers."""
        instances = await self.sync(principal)
        if scope is None or scope.servers is None:
            return instances
        return [each for each in instances if scope_covers_server(scope, self.get_server(*each))]

    async def find(self, request_user: RequestUser, instance_id: str) -> InstanceWithServer:
        """Return one of the user's instances. Raises NotFound, also if their token does not cover it."""
        for each in await self.sync_covered(request_user.principal, request_user.scope):
            if each[0].id == instance_id:
                return each
        raise NotFound("instance not found", hint="it may have been deleted")

    async def reconnect(self, principal: Principal, instance: Instance, registered: RegistryServer) -> None:
        """Reconnect an instance, list its tools and store the resulting state."""
        server = self.get_server(instance, registered)
        if server.enabled:
            await self._updates.reconnect(server.id, principal)
            await self._tool_directory.refresh(principal, fresh=True, only=[server.id])
            await self.sync(principal)

    def get_server(self, instance: Instance, registered: RegistryServer) -> Server:
        """Return the server definition that the core uses for an instance."""
        server = self._manager.servers.get(instance.core_id)
        return server or self._registry.build_instance_server(instance, registered)

    async def _refresh_core_instances(self, principal: Principal) -> Sequence[InstanceWithServer]:
        """Read the instances and pass them to the core.

        Reads may overlap. The one that began last has the newest data, so an older one, even if it
        completes later, must not overwrite its result.
        """
        number, revision = next(self._read_numbers), self._get_revision()
        instances = await self._registry.list_instances(principal.id)
        if number > self._synced_read_by_user.get(principal.id, 0):
            self._synced_read_by_user[principal.id] = number
            if instances or self._manager.has_instances(principal.id):
                await self._update_core(principal, instances)
            # Only now, when the core has them.
            if number == self._synced_read_by_user[principal.id]:
                valid_until = time.monotonic() + self.max_read_age_seconds
                self._recent_reads[principal.id] = _RecentRead(revision, valid_until, instances)
        return instances

    async def _update_core(self, principal: Principal, instances: Iterable[InstanceWithServer]) -> None:
        servers = [self._registry.build_instance_server(*each) for each in instances]
        touched = await self._updates.sync_instances(principal.id, servers)
        for removed_id in touched - {server.id for server in servers}:
            self._stored_since_by_server.pop(removed_id, None)
        if touched and self._on_servers_changed is not None:
            self._on_servers_changed(principal, touched)

    async def _store_connection_states(
        self, instances: Iterable[InstanceWithServer], principal: Principal
    ) -> bool:
        """Store the connection states of this replica as instance states; return True if any was stored.

        Each state change is stored only once, because another replica may have stored a newer state since.
        """
        any_stored = False
        if len(self._stored_since_by_server) > _MAX_REMEMBERED_INSTANCES:
            # Harmless: current states are stored once more.
            self._stored_since_by_server.clear()
        for instance, registered in instances:
            if self._manager.state(instance.core_id, principal) not in _STORED_STATES:
                continue
            status = self._updates.get_status(self.get_server(instance, registered), principal)
            if self._stored_since_by_server.get(instance.core_id) != status.since:
                # Noted before the await, so that two pages that are loaded at the same time do not store a
                # state twice.
                self._stored_since_by_server[instance.core_id] = status.since
                if status.state is State.READY and await self._lacks_scopes(instance):
                    continue
                await self._registry.record_status(instance.id, status)
                any_stored = True
        return any_stored

    async def _lacks_scopes(self, instance: Instance) -> bool:
        """Return True if an instance needs a new sign-in because scopes are missing.

        Such an instance connects, and some of its tools work, but it must not be reported as ready.
        """
        if self._auth_storage is None or instance.state is not InstanceState.NEEDS_REAUTH:
            return False
        grant = await self._auth_storage.get_grant(instance.grant_key)
        return grant is not None and grant.needs_unrequested_scopes
