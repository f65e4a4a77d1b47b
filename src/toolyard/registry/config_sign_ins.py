"""Signing in to a server of the operator's files, each person for themself, in two steps."""

from __future__ import annotations

from toolyard.auth.authorization_response import AuthorizationResponse
from toolyard.auth.errors import AnswerRejected, AuthError, AuthUnavailable
from toolyard.auth.records import PendingSignIn
from toolyard.auth.scopes import scopes_to_request_again
from toolyard.auth.sign_in_flow import SignInFlow
from toolyard.auth.sign_in_target import ClientIdentity
from toolyard.auth.storage import AuthStorage
from toolyard.errors import Problem, ToolyardError
from toolyard.registry.credentials import build_config_target, can_sign_in, config_grant_key
from toolyard.registry.errors import Invalid
from toolyard.registry.sign_in import format_sign_in_owner
from toolyard.registry.validation import is_different_origin
from toolyard.types.principal import Principal
from toolyard.types.server import HttpSpec, Server

__all__ = ["ConfigSignIns", "server_id_from_key"]


class ConfigSignIns:
    """What comes of it is kept under the person's own key, and serves nobody else."""

    def __init__(self, flow: SignInFlow, storage: AuthStorage) -> None:
        self._flow = flow
        self._storage = storage

    async def is_signed_in(self, server: Server, principal: Principal) -> bool:
        """Whether they are signed in, as far as we know. What is there and cannot be read counts, too: they
        can sign in again, or out."""
        if not can_sign_in(server, principal):
            return False
        try:
            return await self._storage.grant(config_grant_key(server, principal)) is not None
        except ToolyardError:
            return True

    async def begin(
        self,
        server: Server,
        principal: Principal,
        browser: str,
        client_identity: ClientIdentity | None = None,
    ) -> str:
        """Where to send the person. Only the same one, in the same browser, can finish.

        Raises Invalid where this server does not sign in so, AuthError or AuthUnavailable, which name the
        server.
        """
        spec = _require_sign_in_spec(server, principal)
        key = config_grant_key(server, principal)
        kept = (await self._storage.get_grants((key,))).get(key)
        try:
            target = build_config_target(server, spec)
            started = await self._flow.begin(
                key,
                target,
                more_scopes=scopes_to_request_again(kept, target.oauth.scopes),
                owner=format_sign_in_owner(principal.id, browser),
                client_identity=client_identity,
            )
        except (AuthError, AuthUnavailable) as error:
            error.server = server.id
            raise
        return started.url

    async def complete(
        self,
        pending: PendingSignIn,
        response: AuthorizationResponse,
        server: Server | None,
        principal: Principal,
    ) -> Server:
        """Finish what ``begin`` began.

        ``server`` is what the files have now under the id that was begun with. Nothing is kept of a sign-in
        that fails, and what was there before stays. Raises AuthError or AuthUnavailable.
        """
        if (
            server is None
            or not can_sign_in(server, principal)
            or not _is_same_server(pending, server, principal)
        ):
            hint = "begin it again, if the server is still there"
            raise AnswerRejected("the server's entry was changed while you signed in", hint=hint)
        try:
            await self._flow.complete(pending, response)
        except (AuthError, AuthUnavailable) as error:
            error.server = server.id
            raise
        return server


def server_id_from_key(key: str, principal: Principal) -> str | None:
    """The id of the server of a file whose sign-in a key is of; None where it is another kind of key."""
    start = f"user:{principal.id}:"
    return key.removeprefix(start) if key.startswith(start) else None


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
        words = server.disabled_reason or "it is switched off in its file"
    elif isinstance(spec, HttpSpec) and can_sign_in(server, principal):
        return spec
    elif server.shared:
        words = "one sign-in serves everybody here"
        hint = f"the operator signs in with `toolyard login {server.id}`"
    else:
        words = "its entry says how it signs in, and no person is needed"
    raise Invalid([Problem(words, path="server", hint=hint)])
