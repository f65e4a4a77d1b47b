"""Signing out: what was kept is forgotten at once, and given back to who gave it as soon as that goes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from toolyard.auth.errors import RegistrationFailed
from toolyard.auth.records import Grant
from toolyard.auth.revocation import revoke
from toolyard.auth.sign_in_target import Target
from toolyard.auth.storage import AuthStorage
from toolyard.errors import ToolyardError
from toolyard.net import Net
from toolyard.registry.credentials import config_key, config_target
from toolyard.registry.server_builder import oauth_spec
from toolyard.registry.service import Registry
from toolyard.types.principal import Principal
from toolyard.types.registry import Instance, InstanceState, RegistryServer, grant_key
from toolyard.types.server import HttpSpec, OAuthSpec, Server

__all__ = ["SignOuts"]

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], object]
"""Runs something beside everything else."""
Held: TypeAlias = Mapping[str, tuple[Grant, Target]]
"""Sign-ins by their keys, each with what it is for."""

log = logging.getLogger("toolyard.auth")

_AT_ONCE = 8
_LONGEST = 60.0
"""Seconds in which as many sign-ins are given back as can be."""
_SIGNED_OUT = "its sign-in was given back when the account was disabled"


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
            kept = (await self._storage.grants((key,))).get(key)
            await self._storage.drop_grant(key)
        if kept is not None and isinstance(server.transport, HttpSpec):
            self.give_back({key: (kept, _target(server, server.transport))})
        return kept is not None

    async def delete_instance(self, registry: Registry, user_id: str, instance_id: str) -> Instance:
        """Delete an instance, with its sign-in. Raises NotFound."""
        instance, server = await registry.instance(user_id, instance_id)
        held = await self._held({instance.grant_key: _target_of(instance.choice_id, server)})
        await registry.delete_instance(user_id, instance_id)
        self.give_back(held)
        return instance

    async def delete_server(self, registry: Registry, server_id: str) -> RegistryServer:
        """Delete a server of the registry, with everybody's instances and their sign-ins. Raises NotFound."""
        server = await registry.server(server_id)
        used = await registry.storage.used_choices(server_id)
        held = await self._held({grant_key(id): _target_of(choice, server) for id, choice in used.items()})
        await registry.delete_server(server_id)
        self.give_back(held)
        return server

    async def held_by(self, registry: Registry, principal: Principal, files: Iterable[Server]) -> Held:
        """All that somebody is signed in to with, for whoever deletes their account and then gives it back.
        ``files`` are the servers of the files. Empty where it cannot be read."""
        wanted: dict[str, Target] = {}
        for server in files:
            # What is shared is not theirs.
            if isinstance(server.transport, HttpSpec) and not server.shared:
                wanted[config_key(server, principal)] = _target(server, server.transport)
        try:
            for instance, registered in await registry.instances(principal.id):
                wanted[instance.grant_key] = _target_of(instance.choice_id, registered)
        except ToolyardError as error:
            log.warning("the instances of a user cannot be read, so not all is given back: %s", error.cause)
        return await self._held(wanted)

    async def sign_out_user(self, registry: Registry, principal: Principal, files: Iterable[Server]) -> None:
        """Sign somebody out of everything; their instances stay."""
        held = await self.held_by(registry, principal, files)
        for key in held:
            await self._storage.drop_grant(key)
        for instance, _ in await registry.instances(principal.id):
            if instance.grant_key in held:
                await registry.storage.set_state(instance.id, InstanceState.NEEDS_REAUTH, _SIGNED_OUT)
        self.give_back(held)

    async def _held(self, wanted: Mapping[str, Target]) -> Held:
        try:
            found = await self._storage.grants(list(wanted))
        except ToolyardError as error:
            # Whoever deletes something does so all the same.
            log.warning("sign-ins cannot be read, so they are not given back: %s", error.cause)
            return {}
        return {key: (grant, wanted[key]) for key, grant in found.items()}

    def give_back(self, held: Held) -> None:
        """Give tokens back, some at a time, for as long as a minute."""
        some = asyncio.Semaphore(_AT_ONCE)

        async def one(grant: Grant, target: Target) -> None:
            async with some:
                await revoke(self._net, grant, target)

        async def work() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST):
                    await asyncio.gather(*(one(grant, target) for grant, target in held.values()))

        if held:
            self._spawn(work())


def _target(server: Server, spec: HttpSpec) -> Target:
    try:
        return config_target(server, spec)
    except RegistrationFailed:
        # Without its key file we cannot say who we are; some authorization servers do not ask.
        return Target(spec.url, server.oauth or OAuthSpec(), server.private_addresses)


def _target_of(choice_id: str, server: RegistryServer) -> Target:
    choice = server.choice(choice_id)
    oauth = OAuthSpec() if choice is None else oauth_spec(choice)
    return Target(server.url, oauth, server.private_addresses)
