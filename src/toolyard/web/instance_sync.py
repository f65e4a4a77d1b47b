"""The instances that somebody has: from the database to the core, and what it learns back again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeAlias

from toolyard.auth.storage import AuthStorage
from toolyard.core.composition import Parts
from toolyard.policy.rules.token_scope import scope_covers_server
from toolyard.registry import Registry
from toolyard.registry.errors import NotFound
from toolyard.types.account import TokenScope
from toolyard.types.principal import Principal
from toolyard.types.registry import Instance, InstanceState, RegistryServer
from toolyard.types.server import Server
from toolyard.types.status import State

__all__ = ["InstanceSync", "InstanceWithServer"]

InstanceWithServer: TypeAlias = tuple[Instance, RegistryServer]
"""An instance, and the server that it is of."""

_STORED_STATES = frozenset({State.READY, State.FAILED, State.NEEDS_AUTH})
"""States of a connection that say something about its instance."""
_MAX_REMEMBERED_INSTANCES = 20_000


class InstanceSync:
    """Every replica has its own; what they have in common is the database."""

    def __init__(
        self,
        registry: Registry,
        parts: Parts,
        auth_storage: AuthStorage | None = None,
        on_servers_changed: Callable[[Principal, Collection[str]], None] | None = None,
    ) -> None:
        """``sign_ins`` is where those of instances are kept. ``changed`` is told which of somebody's
        instances the core knows otherwise than before."""
        self._registry = registry
        self._parts = parts
        self._auth_storage = auth_storage
        self._on_servers_changed = on_servers_changed
        self._read_numbers = itertools.count(1)
        self._synced_read_by_user: dict[str, int] = {}
        """By user, the read that the core knows of."""
        self._stored_since_by_server: dict[str, float] = {}
        """By instance, named as in the core: since when its connection has been in the state that was stored
        last."""

    async def sync(self, principal: Principal) -> Sequence[InstanceWithServer]:
        """All instances that somebody has now; the core knows them after this."""
        found = await self._read_instances(principal)
        return (
            await self._read_instances(principal)
            if await self._store_connection_states(found, principal)
            else found
        )

    async def sync_covered(
        self, principal: Principal, scope: TokenScope | None
    ) -> Sequence[InstanceWithServer]:
        """Those that a token reaches."""
        found = await self.sync(principal)
        if scope is None or scope.servers is None:
            return found
        return [each for each in found if scope_covers_server(scope, self.server(*each))]

    async def find(
        self, principal: Principal, scope: TokenScope | None, instance_id: str
    ) -> InstanceWithServer:
        """One of them. Raises NotFound."""
        for each in await self.sync_covered(principal, scope):
            if each[0].id == instance_id:
                return each
        raise NotFound("there is no such instance", hint="it may have been deleted")

    def server(self, instance: Instance, registered: RegistryServer) -> Server:
        """An instance as the core knows it."""
        known = self._parts.manager.servers.get(instance.core_id)
        return known or self._registry.build_instance_server(instance, registered)

    async def _read_instances(self, principal: Principal) -> Sequence[InstanceWithServer]:
        """Of several reads at once, the one that began last knows best: an older one must not undo it."""
        number = next(self._read_numbers)
        found = await self._registry.instances(principal.id)
        if number > self._synced_read_by_user.get(principal.id, 0):
            self._synced_read_by_user[principal.id] = number
            servers = [self._registry.build_instance_server(*each) for each in found]
            touched = await self._parts.sync_instances(principal.id, servers)
            for gone in touched - {server.id for server in servers}:
                self._stored_since_by_server.pop(gone, None)
            if touched and self._on_servers_changed is not None:
                self._on_servers_changed(principal, touched)
        return found

    async def _store_connection_states(
        self, found: Iterable[InstanceWithServer], principal: Principal
    ) -> bool:
        """Store what connections here found out about instances, once for each time that they did: another
        replica may know better by now."""
        manager, learned = self._parts.manager, False
        if len(self._stored_since_by_server) > _MAX_REMEMBERED_INSTANCES:
            self._stored_since_by_server.clear()
        for instance, _ in found:
            if manager.state(instance.core_id, principal) not in _STORED_STATES:
                continue
            status = self._parts.call_path.redact_status(
                manager.status(instance.core_id, principal=principal)
            )
            if self._stored_since_by_server.get(instance.core_id) != status.since:
                self._stored_since_by_server[instance.core_id] = status.since
                if status.state is State.READY and await self._lacks_scopes(instance):
                    continue
                await self._registry.record_status(instance.id, status)
                learned = True
        return learned

    async def _lacks_scopes(self, instance: Instance) -> bool:
        """Whether one that must be signed in to again is so for want of scopes: then some tools work, and it
        is not ready all the same."""
        if self._auth_storage is None or instance.state is not InstanceState.NEEDS_REAUTH:
            return False
        kept = await self._auth_storage.grant(instance.grant_key)
        return kept is not None and kept.lacks_scopes
