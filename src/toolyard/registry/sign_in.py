"""Signing in to an instance by OAuth, in two steps that may happen on two replicas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from toolyard.auth.authorization_response import AuthorizationResponse
from toolyard.auth.errors import AnswerRejected, AuthError, AuthorizationDenied, AuthUnavailable
from toolyard.auth.records import OAuthGrant, PendingSignIn
from toolyard.auth.scopes import scopes_to_request_again
from toolyard.auth.sign_in_flow import SignInFlow
from toolyard.auth.sign_in_target import ClientIdentity
from toolyard.auth.storage import AuthStorage
from toolyard.errors import Problem
from toolyard.registry.credentials import choice_target
from toolyard.registry.errors import Invalid, NotFound
from toolyard.registry.service import Registry
from toolyard.registry.validation import is_different_origin
from toolyard.types.registry import (
    AuthChoice,
    AuthKind,
    Instance,
    InstanceState,
    RegistryServer,
    parse_grant_key,
)

__all__ = ["InstanceSignIns", "format_sign_in_owner"]


class InstanceSignIns:
    """Begins and finishes sign-ins, and keeps what came of them in the instance's state."""

    def __init__(self, flow: SignInFlow, registry: Registry, storage: AuthStorage) -> None:
        self._flow = flow
        self._registry = registry
        self._storage = storage

    async def begin(
        self, user_id: str, instance_id: str, browser: str, client_identity: ClientIdentity | None = None
    ) -> str:
        """Where to send the person. Only the same user, in the same browser, can finish.

        ``ourselves`` is who we are under the address by which this browser reached us. Raises NotFound,
        Invalid where this instance does not sign in by OAuth, AuthError or AuthUnavailable, which name the
        instance as their ``server``.
        """
        instance, server = await self._registry.instance(user_id, instance_id)
        choice = _require_oauth_choice(instance, server)
        key = instance.grant_key
        kept = (await self._storage.get_grants((key,))).get(key)
        try:
            started = await self._flow.begin(
                key,
                choice_target(server, choice),
                more_scopes=scopes_to_request_again(kept, choice.scopes),
                owner=format_sign_in_owner(user_id, browser),
                client_identity=client_identity,
            )
        except (AuthError, AuthUnavailable) as error:
            await self._record_failure(instance, error)
            raise
        return started.url

    async def finish(self, response: AuthorizationResponse, user_id: str, browser: str) -> Instance:
        """Redeem an authorization response and return the instance, ready.

        Nothing is kept of a sign-in that fails, and what was there before stays. Raises NotFound where the
        instance is gone, and what ``Flow.finish`` raises, with the instance as its ``server`` where it is
        known.
        """
        return await self.complete(
            await self.take_pending(response.params, user_id, browser), response, user_id
        )

    async def take_pending(self, params: Mapping[str, str], user_id: str, browser: str) -> PendingSignIn:
        """What was begun, by this user in this browser, handed out once. Raises AnswerRejected."""
        return await self._flow.take_pending(params, owner=format_sign_in_owner(user_id, browser))

    async def complete(
        self, pending: PendingSignIn, response: AuthorizationResponse, user_id: str
    ) -> Instance:
        """The second half of ``finish``."""
        instance, _ = await self._require_instance(pending, user_id)
        try:
            await self._complete_flow(pending, response)
        except (AuthError, AuthUnavailable) as error:
            await self._record_failure(instance, error)
            raise
        # Kept first, then looked: whoever deletes the instance in between deletes the sign-in with it, and
        # whoever did so before leaves it to us.
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
        """What was asked for before is no longer offered: the next sign-in begins afresh."""
        async with self._storage.refresh_lock(key):
            if (kept := (await self._storage.get_grants((key,))).get(key)) is not None:
                fewer = replace(kept, requested=(), wanted=())
                await self._storage.swap_grant(key, kept.serial, fewer)

    async def _require_instance(
        self, pending: PendingSignIn, user_id: str
    ) -> tuple[Instance, RegistryServer]:
        """The instance, if it still wants what was begun. Raises NotFound or AnswerRejected."""
        try:
            instance, server = await self._registry.instance(user_id, parse_grant_key(pending.key))
        except NotFound:
            raise NotFound(
                "the instance was deleted while you signed in",
                hint="create it again; nothing of the sign-in was kept",
            ) from None
        choice = server.choice(instance.choice_id)
        if (
            choice is None
            or choice.kind is not AuthKind.OAUTH
            or is_different_origin(pending.server_url, server.url)
        ):
            raise AnswerRejected("the server's entry was changed while you signed in", hint="begin it again")
        return instance, server

    async def _record_failure(self, instance: Instance, error: AuthError | AuthUnavailable) -> None:
        """Say why on an instance that is not ready; one that is goes on with what it has."""
        error.server = instance.core_id
        if instance.state is not InstanceState.READY:
            state = instance.state if instance.state is not InstanceState.FAILED else InstanceState.PENDING
            await self._registry.storage.set_instance_state(instance.id, state, error.cause)


def format_sign_in_owner(user_id: str, browser: str) -> str:
    """Who begins a sign-in, and alone may finish it."""
    return f"{user_id}:{browser}"


def _require_oauth_choice(instance: Instance, server: RegistryServer) -> AuthChoice:
    choice = server.choice(instance.choice_id)
    if not server.enabled:
        problem = Problem(f"an admin has disabled the server '{server.name}'", path="server_id")
    elif choice is None:
        hint = "edit the instance and choose another one"
        problem = Problem("its way of signing in is no longer offered", path="choice_id", hint=hint)
    elif choice.kind is not AuthKind.OAUTH:
        problem = Problem("this instance does not sign in by OAuth", path="choice_id")
    else:
        return choice
    raise Invalid([problem])
