"""OAuth sign-in of single users to servers from configuration files, in two steps."""

from __future__ import annotations

from toolyard.auth.errors import AnswerRejected, AuthError, AuthUnavailable
from toolyard.auth.sign_in_flow import AuthorizationResponse, SignInFlow, scopes_to_request_again
from toolyard.auth.sign_in_target import ClientIdentity
from toolyard.auth.storage import AuthStorage, PendingSignIn
from toolyard.errors import Problem, ToolyardError
from toolyard.registry.credentials import build_config_target, can_sign_in, config_grant_key
from toolyard.registry.errors import Invalid
from toolyard.registry.sign_in import format_sign_in_owner
from toolyard.registry.validation import is_different_origin
from toolyard.types.account import Principal
from toolyard.types.server import HttpSpec, Server

__all__ = ["ConfigSignIns", "server_id_from_key"]


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
        key = config_grant_key(server, principal)
        grant = (await self._storage.get_grants((key,))).get(key)
        try:
            target = build_config_target(server, spec)
            request = await self._flow.begin(
                key,
                target,
                more_scopes=scopes_to_request_again(grant, target.oauth.scopes),
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
        hint = f"the operator signs in with `toolyard login {server.id}`"
    else:
        reason = "its entry already contains the credentials, so no sign-in is needed"
    raise Invalid([Problem(reason, path="server", hint=hint)])
