"""OAuth sign-in of users, in two steps that may run on two replicas: to registry instances, and to servers
from configuration files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from toolyard.auth.errors import AnswerRejected, AuthError, AuthorizationDenied, AuthUnavailable
from toolyard.auth.sign_in_flow import AuthorizationResponse, SignInFlow
from toolyard.auth.sign_in_target import ClientIdentity
from toolyard.auth.storage import AuthStorage, OAuthGrant, PendingSignIn
from toolyard.errors import Problem, ToolyardError
from toolyard.registry.auth_provider_factory import (
    build_config_target,
    can_sign_in,
    choice_target,
    config_grant_key,
)
from toolyard.registry.errors import Invalid, NotFound
from toolyard.registry.service import Registry
from toolyard.registry.validation import is_different_origin
from toolyard.types.account import Principal
from toolyard.types.registry import (
    AuthChoice,
    AuthKind,
    Instance,
    InstanceState,
    RegistryServer,
    parse_grant_key,
)
from toolyard.types.server import HttpSpec, Server

__all__ = ["ConfigSignIns", "InstanceSignIns", "format_sign_in_owner", "server_id_from_key"]


class InstanceSignIns:
    """Starts and completes sign-ins of instances, and records the outcome in the instance's state."""

    def __init__(self, flow: SignInFlow, registry: Registry, storage: AuthStorage) -> None:
        self._flow = flow
        self._registry = registry
        self._storage = storage

    async def begin(
        self, user_id: str, instance_id: str, browser: str, client_identity: ClientIdentity | None = None
    ) -> str:
        """Return the authorization URL. Only the same user in the same browser can complete the sign-in.

        ``client_identity`` is our identity for the address that the browser used. Raises NotFound, Invalid if
        the instance does not use OAuth, and AuthError or AuthUnavailable, whose ``server`` is the instance.
        """
        instance, server = await self._registry.get_instance(user_id, instance_id)
        choice = _require_oauth_choice(instance, server)
        try:
            request = await self._flow.begin(
                instance.grant_key,
                choice_target(server, choice),
                owner=format_sign_in_owner(user_id, browser),
                client_identity=client_identity,
            )
        except (AuthError, AuthUnavailable) as error:
            await self._record_failure(instance, error)
            raise
        return request.url

    async def take_pending(self, params: Mapping[str, str], user_id: str, browser: str) -> PendingSignIn:
        """Remove and return the pending sign-in of this user and browser. Raises AnswerRejected."""
        return await self._flow.take_pending(params, owner=format_sign_in_owner(user_id, browser))

    async def complete(
        self, pending: PendingSignIn, response: AuthorizationResponse, user_id: str
    ) -> Instance:
        """Complete a sign-in returned by ``take_pending``, and return the ready instance.

        A failed sign-in stores nothing and keeps an earlier grant. Raises NotFound if the instance no longer
        exists, and the errors of ``SignInFlow.finish``, whose ``server`` is the instance.
        """
        # Before the code is exchanged: it must not be used for an instance that was deleted, or whose server
        # has another address now.
        instance, _ = await self._require_instance(pending, user_id)
        try:
            await self._complete_flow(pending, response)
        except (AuthError, AuthUnavailable) as error:
            await self._record_failure(instance, error)
            raise
        # The grant is stored before the instance is checked again. If the instance is deleted after the
        # grant was stored, the deletion removes the grant, too; if it was deleted before, we remove it here.
        try:
            instance, _ = await self._require_instance(pending, user_id)
        except (NotFound, AnswerRejected):
            await self._storage.drop_grant(pending.key)
            raise
        await self._registry.storage.set_instance_state(instance.id, InstanceState.READY, None)
        return replace(instance, state=InstanceState.READY, reason=None)

    async def _complete_flow(self, pending: PendingSignIn, response: AuthorizationResponse) -> OAuthGrant:
        try:
            return await self._flow.complete(pending, response)
        except AuthorizationDenied as error:
            if error.code == "invalid_scope":
                await self._clear_requested_scopes(pending.key)
            raise

    async def _clear_requested_scopes(self, key: str) -> None:
        """Forget earlier scopes, some of which no longer exist, so that the next sign-in can succeed."""
        # A token refresh replaces the whole grant, and must not bring the scopes back.
        async with self._storage.refresh_lock(key):
            if (grant := (await self._storage.get_grants((key,))).get(key)) is not None:
                without_scopes = replace(grant, requested=(), wanted=())
                await self._storage.swap_grant(key, grant.serial, without_scopes)

    async def _require_instance(
        self, pending: PendingSignIn, user_id: str
    ) -> tuple[Instance, RegistryServer]:
        """Return the instance if it still matches the pending sign-in. Raises NotFound or AnswerRejected."""
        try:
            instance, server = await self._registry.get_instance(user_id, parse_grant_key(pending.key))
        except NotFound:
            raise NotFound(
                "the instance was deleted while you were signing in",
                hint="create it again; the sign-in was not stored",
            ) from None
        choice = server.find_choice(instance.choice_id)
        if (
            choice is None
            or choice.kind is not AuthKind.OAUTH
            or is_different_origin(pending.server_url, server.url)
        ):
            raise AnswerRejected("the server's entry was changed while you signed in", hint="sign in again")
        return instance, server

    async def _record_failure(self, instance: Instance, error: AuthError | AuthUnavailable) -> None:
        """Set the error's server, and store its cause unless the instance is ready with an earlier grant."""
        error.server = instance.core_id
        if instance.state is not InstanceState.READY:
            state = instance.state if instance.state is not InstanceState.FAILED else InstanceState.PENDING
            await self._registry.storage.set_instance_state(instance.id, state, error.cause)


def format_sign_in_owner(user_id: str, browser: str) -> str:
    """Return the owner of a pending sign-in: a user in one browser."""
    return f"{user_id}:{browser}"


def _require_oauth_choice(instance: Instance, server: RegistryServer) -> AuthChoice:
    choice = server.find_choice(instance.choice_id)
    if not server.enabled:
        problem = Problem(f"an admin has disabled the server '{server.name}'", path="server_id")
    elif choice is None:
        hint = "edit the instance and choose another sign-in method"
        problem = Problem(
            "the server no longer offers this instance's sign-in method", path="choice_id", hint=hint
        )
    elif choice.kind is not AuthKind.OAUTH:
        problem = Problem("this instance does not use OAuth", path="choice_id")
    else:
        return choice
    raise Invalid([problem])


class ConfigSignIns:
    """Signs users in to servers from configuration files. Each user has a separate grant."""

    def __init__(self, flow: SignInFlow, storage: AuthStorage) -> None:
        self._flow = flow
        self._storage = storage

    async def is_signed_in(self, server: Server, principal: Principal) -> bool:
        """Return whether the user has a stored grant. An unreadable grant counts, too.

        So the user can sign in again, or sign out.
        """
        if not can_sign_in(server, principal):
            return False
        try:
            return await self._storage.get_grant(config_grant_key(server, principal)) is not None
        except ToolyardError:
            return True

    async def begin(
        self,
        server: Server,
        principal: Principal,
        browser: str,
        client_identity: ClientIdentity | None = None,
    ) -> str:
        """Return the authorization URL. Only the same user in the same browser can complete the sign-in.

        Raises Invalid if users cannot sign in to this server, and AuthError or AuthUnavailable with the
        server's id.
        """
        spec = _require_sign_in_spec(server, principal)
        try:
            request = await self._flow.begin(
                config_grant_key(server, principal),
                build_config_target(server, spec),
                owner=format_sign_in_owner(principal.id, browser),
                client_identity=client_identity,
            )
        except (AuthError, AuthUnavailable) as error:
            error.server = server.id
            raise
        return request.url

    async def complete(
        self,
        pending: PendingSignIn,
        response: AuthorizationResponse,
        server: Server | None,
        principal: Principal,
    ) -> Server:
        """Complete a sign-in started with ``begin``.

        ``server`` is the current entry with the server's id, or None. A failed sign-in stores nothing and
        keeps an earlier grant. Raises AuthError or AuthUnavailable.
        """
        if (
            server is None
            or not can_sign_in(server, principal)
            or not _is_same_server(pending, server, principal)
        ):
            hint = "sign in again, if the server still exists"
            raise AnswerRejected("the server's entry was changed while you signed in", hint=hint)
        try:
            await self._flow.complete(pending, response)
        except (AuthError, AuthUnavailable) as error:
            error.server = server.id
            raise
        return server


def server_id_from_key(key: str, principal: Principal) -> str | None:
    """Return the server id in a storage key of ``config_grant_key``, or None for another kind of key."""
    prefix = f"user:{principal.id}:"
    return key.removeprefix(prefix) if key.startswith(prefix) else None


def _is_same_server(pending: PendingSignIn, server: Server, principal: Principal) -> bool:
    spec = server.transport
    return (
        isinstance(spec, HttpSpec)
        and pending.key == config_grant_key(server, principal)
        and not is_different_origin(pending.server_url, spec.url)
    )


def _require_sign_in_spec(server: Server, principal: Principal) -> HttpSpec:
    spec, hint = server.transport, None
    if not server.enabled:
        reason = server.disabled_reason or "the server is disabled in its file"
    elif isinstance(spec, HttpSpec) and can_sign_in(server, principal):
        return spec
    elif server.shared:
        reason = "everyone shares one sign-in to this server"
        hint = f"the operator can sign in with `toolyard login {server.id}`"
    else:
        reason = "its entry already contains the credentials, so no sign-in is needed"
    raise Invalid([Problem(reason, path="server", hint=hint)])
