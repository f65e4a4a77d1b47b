"""Signing out: what was kept is forgotten at once, and given back to who gave it as soon as that goes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from toolyard.auth.errors import RegistrationFailed
from toolyard.auth.records import OAuthGrant
from toolyard.auth.revocation import revoke_grant
from toolyard.auth.sign_in_target import SignInTarget
from toolyard.auth.storage import AuthStorage
from toolyard.errors import ToolyardError
from toolyard.net import OutboundHttp
from toolyard.registry.credentials import build_config_target, config_grant_key
from toolyard.registry.server_builder import build_oauth_spec
from toolyard.registry.service import Registry
from toolyard.types.principal import Principal
from toolyard.types.registry import Instance, InstanceState, RegistryServer, grant_key
from toolyard.types.server import HttpSpec, OAuthSpec, Server

__all__ = ["SignOuts"]

TaskSpawner: TypeAlias = Callable[[Coroutine[Any, Any, None]], object]
"""Runs something beside everything else."""
RevocableGrants: TypeAlias = Mapping[str, tuple[OAuthGrant, SignInTarget]]
"""Sign-ins by their keys, each with what it is for."""

log = logging.getLogger("toolyard.auth")

_MAX_CONCURRENT_REVOCATIONS = 8
_REVOCATION_DEADLINE_SECONDS = 60.0
"""Seconds in which as many sign-ins are given back as can be."""
_SIGNED_OUT_REASON = "its sign-in was given back when the account was disabled"


class SignOuts:
    """Nobody waits for an authorization server here: what it is told is told by ``spawn``."""

    def __init__(self, storage: AuthStorage, net: OutboundHttp, spawn: TaskSpawner) -> None:
        self._storage = storage
        self._net = net
        self._spawn = spawn

    async def sign_out_of_server(self, server: Server, principal: Principal) -> bool:
        """Sign somebody out of a server of the files; whether they were signed in."""
        key = config_grant_key(server, principal)
        # Not while somebody refreshes: what comes of that would be known to nobody.
        async with self._storage.refresh_lock(key):
            kept = (await self._storage.get_grants((key,))).get(key)
            await self._storage.drop_grant(key)
        if kept is not None and isinstance(server.transport, HttpSpec):
            self.revoke_in_background({key: (kept, _config_target_or_default(server, server.transport))})
        return kept is not None

    async def delete_instance(self, registry: Registry, user_id: str, instance_id: str) -> Instance:
        """Delete an instance, with its sign-in. Raises NotFound."""
        instance, server = await registry.instance(user_id, instance_id)
        held = await self._collect_grants(
            {instance.grant_key: _build_registry_target(instance.choice_id, server)}
        )
        await registry.delete_instance(user_id, instance_id)
        self.revoke_in_background(held)
        return instance

    async def delete_server(self, registry: Registry, server_id: str) -> RegistryServer:
        """Delete a server of the registry, with everybody's instances and their sign-ins. Raises NotFound."""
        server = await registry.server(server_id)
        used = await registry.storage.list_instance_choices(server_id)
        held = await self._collect_grants(
            {grant_key(id): _build_registry_target(choice, server) for id, choice in used.items()}
        )
        await registry.delete_server(server_id)
        self.revoke_in_background(held)
        return server

    async def collect_user_grants(
        self, registry: Registry, principal: Principal, config_servers: Iterable[Server]
    ) -> RevocableGrants:
        """All that somebody is signed in to with, for whoever deletes their account and then gives it back.
        ``files`` are the servers of the files. Empty where it cannot be read."""
        wanted: dict[str, SignInTarget] = {}
        for server in config_servers:
            # What is shared is not theirs.
            if isinstance(server.transport, HttpSpec) and not server.shared:
                wanted[config_grant_key(server, principal)] = _config_target_or_default(
                    server, server.transport
                )
        try:
            for instance, registered in await registry.instances(principal.id):
                wanted[instance.grant_key] = _build_registry_target(instance.choice_id, registered)
        except ToolyardError as error:
            log.warning("the instances of a user cannot be read, so not all is given back: %s", error.cause)
        return await self._collect_grants(wanted)

    async def sign_out_user(
        self, registry: Registry, principal: Principal, config_servers: Iterable[Server]
    ) -> None:
        """Sign somebody out of everything; their instances stay."""
        held = await self.collect_user_grants(registry, principal, config_servers)
        for key in held:
            await self._storage.drop_grant(key)
        for instance, _ in await registry.instances(principal.id):
            if instance.grant_key in held:
                await registry.storage.set_instance_state(
                    instance.id, InstanceState.NEEDS_REAUTH, _SIGNED_OUT_REASON
                )
        self.revoke_in_background(held)

    async def _collect_grants(self, targets: Mapping[str, SignInTarget]) -> RevocableGrants:
        try:
            found = await self._storage.get_grants(list(targets))
        except ToolyardError as error:
            # Whoever deletes something does so all the same.
            log.warning("sign-ins cannot be read, so they are not given back: %s", error.cause)
            return {}
        return {key: (grant, targets[key]) for key, grant in found.items()}

    def revoke_in_background(self, grants: RevocableGrants) -> None:
        """Give tokens back, some at a time, for as long as a minute."""
        some = asyncio.Semaphore(_MAX_CONCURRENT_REVOCATIONS)

        async def revoke_one(grant: OAuthGrant, target: SignInTarget) -> None:
            async with some:
                await revoke_grant(self._net, grant, target)

        async def revoke_all() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_REVOCATION_DEADLINE_SECONDS):
                    await asyncio.gather(*(revoke_one(grant, target) for grant, target in grants.values()))

        if grants:
            self._spawn(revoke_all())


def _config_target_or_default(server: Server, spec: HttpSpec) -> SignInTarget:
    try:
        return build_config_target(server, spec)
    except RegistrationFailed:
        # Without its key file we cannot say who we are; some authorization servers do not ask.
        return SignInTarget(spec.url, server.oauth or OAuthSpec(), server.private_addresses)


def _build_registry_target(choice_id: str, server: RegistryServer) -> SignInTarget:
    choice = server.choice(choice_id)
    oauth = OAuthSpec() if choice is None else build_oauth_spec(choice)
    return SignInTarget(server.url, oauth, server.private_addresses)
