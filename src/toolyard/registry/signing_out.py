"""Signing out: what was kept is forgotten at once, and given back to who gave it as soon as that goes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from toolyard.auth.errors import RegistrationFailed
from toolyard.auth.records import Grant
from toolyard.auth.revoking import revoke
from toolyard.auth.storage import AuthStorage
from toolyard.auth.target import Target
from toolyard.model.principal import Principal
from toolyard.model.registry import Instance, RegistryServer
from toolyard.model.server import HttpSpec, OAuthSpec, Server
from toolyard.net import Net
from toolyard.registry.core import oauth_spec
from toolyard.registry.credentials import config_key, config_target
from toolyard.registry.registry import Registry

__all__ = ["SignOuts"]

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], object]
"""Runs something beside everything else."""


class SignOuts:
    """Nobody waits for an authorization server here: what it is told is told by ``spawn``."""

    def __init__(self, storage: AuthStorage, net: Net, spawn: Spawn) -> None:
        self._storage = storage
        self._net = net
        self._spawn = spawn

    async def of_server(self, server: Server, principal: Principal) -> bool:
        """Sign somebody out of a server of the files; whether they were signed in."""
        key = config_key(server, principal)
        # Not while somebody refreshes: what comes of that would be known to nobody.
        async with self._storage.refreshing(key):
            kept = await self._storage.grant(key)
            await self._storage.drop_grant(key)
        if kept is not None and isinstance(server.transport, HttpSpec):
            self._give_back(kept, _target(server, server.transport))
        return kept is not None

    async def delete_instance(self, registry: Registry, user_id: str, instance_id: str) -> Instance:
        """Delete an instance, with its sign-in. Raises NotFound."""
        instance, server = await registry.instance(user_id, instance_id)
        kept = await self._storage.grant(instance.grant_key)
        await registry.delete_instance(user_id, instance_id)
        if kept is not None:
            self._give_back(kept, _target_of(instance, server))
        return instance

    def _give_back(self, grant: Grant, target: Target) -> None:
        async def work() -> None:
            await revoke(self._net, grant, target)

        self._spawn(work())


def _target(server: Server, spec: HttpSpec) -> Target:
    try:
        return config_target(server, spec)
    except RegistrationFailed:
        # Without its key file we cannot say who we are; some authorization servers do not ask.
        return Target(spec.url, server.oauth or OAuthSpec(), server.private_addresses)


def _target_of(instance: Instance, server: RegistryServer) -> Target:
    choice = server.choice(instance.choice_id)
    oauth = OAuthSpec() if choice is None else oauth_spec(choice)
    return Target(server.url, oauth, server.private_addresses)
