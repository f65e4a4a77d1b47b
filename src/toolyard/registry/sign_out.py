"""Sign-out: grants are deleted at once, and their tokens are revoked in the background."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from toolyard.auth.errors import RegistrationFailed
from toolyard.auth.sign_in_target import SignInTarget
from toolyard.auth.storage import AuthStorage, OAuthGrant
from toolyard.auth.token_endpoint import revoke_grant
from toolyard.errors import ToolyardError
from toolyard.net import OutboundHttp
from toolyard.registry.auth_provider_factory import build_config_target, config_grant_key
from toolyard.registry.server_builder import build_oauth_spec
from toolyard.registry.service import Registry
from toolyard.types.account import Principal
from toolyard.types.registry import Instance, InstanceState, RegistryServer, grant_key
from toolyard.types.server import HttpSpec, OAuthSpec, Server

__all__ = ["SignOutService"]

TaskSpawner: TypeAlias = Callable[[Coroutine[Any, Any, None]], object]
"""Starts a coroutine as a background task."""
RevocableGrants: TypeAlias = Mapping[str, tuple[OAuthGrant, SignInTarget]]
"""Grants and their sign-in targets, by storage key."""

log = logging.getLogger("toolyard.auth")

_MAX_CONCURRENT_REVOCATIONS = 8
_REVOCATION_DEADLINE_SECONDS = 60.0
"""Time limit for revoking all grants of one sign-out; the remaining ones are not revoked."""
_SIGNED_OUT_REASON = "signed out because the account was disabled"


class SignOutService:
    """Signs users out and deletes instances and servers, without waiting for authorization servers.

    Tokens are revoked in tasks started with ``spawn``.
    """

    def __init__(self, storage: AuthStorage, net: OutboundHttp, spawn: TaskSpawner) -> None:
        self._storage = storage
        self._net = net
        self._spawn = spawn

    async def sign_out_of_server(self, server: Server, principal: Principal) -> bool:
        """Sign a user out of a server from a configuration file; return whether they were signed in."""
        key = config_grant_key(server, principal)
        # Wait for a refresh in progress: otherwise its new tokens would not be revoked.
        async with self._storage.refresh_lock(key):
            grant = (await self._storage.get_grants((key,))).get(key)
            await self._storage.drop_grant(key)
        if grant is not None and isinstance(server.transport, HttpSpec):
            self.revoke_in_background({key: (grant, _config_target_or_default(server, server.transport))})
        return grant is not None

    async def delete_instance(self, registry: Registry, user_id: str, instance_id: str) -> Instance:
        """Delete an instance with its sign-in. Raises NotFound."""
        instance, server = await registry.get_instance(user_id, instance_id)
        # Read the grant first: deleting the instance deletes it, and revocation needs its tokens.
        held = await self._collect_grants(
            {instance.grant_key: _build_registry_target(instance.choice_id, server)}
        )
        await registry.delete_instance(user_id, instance_id)
        self.revoke_in_background(held)
        return instance

    async def delete_server(self, registry: Registry, server_id: str) -> RegistryServer:
        """Delete a registry server with all instances and their sign-ins. Raises NotFound."""
        server = await registry.get_server(server_id)
        choices = await registry.storage.list_instance_choices(server_id)
        held = await self._collect_grants(
            {grant_key(id): _build_registry_target(choice, server) for id, choice in choices.items()}
        )
        await registry.delete_server(server_id)
        self.revoke_in_background(held)
        return server

    async def collect_user_grants(
        self, registry: Registry, principal: Principal, config_servers: Iterable[Server]
    ) -> RevocableGrants:
        """Return all grants of a user, to be revoked after the account is deleted.

        ``config_servers`` are the servers from configuration files. Grants that cannot be read are omitted.
        """
        targets: dict[str, SignInTarget] = {}
        for server in config_servers:
            # The sign-in to a shared server does not belong to the user.
            if isinstance(server.transport, HttpSpec) and not server.shared:
                targets[config_grant_key(server, principal)] = _config_target_or_default(
                    server, server.transport
                )
        try:
            for instance, registered in await registry.list_instances(principal.id):
                targets[instance.grant_key] = _build_registry_target(instance.choice_id, registered)
        except ToolyardError as error:
            log.warning("instances cannot be read, so their tokens are not revoked: %s", error.cause)
        return await self._collect_grants(targets)

    async def sign_out_user(
        self, registry: Registry, principal: Principal, config_servers: Iterable[Server]
    ) -> None:
        """Sign a user out of all servers. Their instances are kept."""
        held = await self.collect_user_grants(registry, principal, config_servers)
        for key in held:
            await self._storage.drop_grant(key)
        for instance, _ in await registry.list_instances(principal.id):
            if instance.grant_key in held:
                await registry.storage.set_instance_state(
                    instance.id, InstanceState.NEEDS_REAUTH, _SIGNED_OUT_REASON
                )
        self.revoke_in_background(held)

    async def _collect_grants(self, targets: Mapping[str, SignInTarget]) -> RevocableGrants:
        try:
            grants = await self._storage.get_grants(list(targets))
        except ToolyardError as error:
            # A failed revocation must not prevent the deletion.
            log.warning("sign-ins cannot be read, so their tokens are not revoked: %s", error.cause)
            return {}
        return {key: (grant, targets[key]) for key, grant in grants.items()}

    def revoke_in_background(self, grants: RevocableGrants) -> None:
        """Start a task that revokes the tokens of grants, with limited concurrency, within a minute."""
        slots = asyncio.Semaphore(_MAX_CONCURRENT_REVOCATIONS)

        async def revoke_one(grant: OAuthGrant, target: SignInTarget) -> None:
            async with slots:
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
        # Without the key file we cannot authenticate; some servers accept revocations all the same.
        return SignInTarget(spec.url, server.oauth or OAuthSpec(), server.private_addresses)


def _build_registry_target(choice_id: str, server: RegistryServer) -> SignInTarget:
    choice = server.find_choice(choice_id)
    oauth = OAuthSpec() if choice is None else build_oauth_spec(choice)
    return SignInTarget(server.url, oauth, server.private_addresses)
