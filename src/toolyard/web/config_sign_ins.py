"""Users' personal sign-ins to servers of the configuration: start, completion and sign-out."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from toolyard.auth.authorization_response import AuthorizationResponse
from toolyard.auth.records import PendingSignIn
from toolyard.policy.rules import scope_covers_server
from toolyard.registry.config_sign_ins import server_id_from_key
from toolyard.registry.credentials import can_sign_in
from toolyard.registry.errors import NotFound
from toolyard.types.server import Server
from toolyard.web.access.dependencies import RequestUser
from toolyard.web.services import Services

__all__ = [
    "begin_config_sign_in",
    "complete_config_sign_in",
    "find_config_server",
    "get_sign_in_action",
    "is_config_sign_in",
    "sign_out_of_config_server",
]

_CONNECT_WAIT_SECONDS = 10.0
"""Maximum wait for the server to be listed again after a sign-in or sign-out, in seconds."""


def find_config_server(services: Services, request_user: RequestUser, server_id: str) -> Server:
    """Return a configured server. Raises NotFound, also if the user's token does not cover it."""
    server = services.configuration.servers.get(server_id)
    if server is None or not scope_covers_server(request_user.scope, server):
        raise NotFound("server not found", hint="it may have been removed from the configuration")
    return server


async def get_sign_in_action(
    services: Services, request_user: RequestUser, server: Server, state: str
) -> tuple[str, bool]:
    """Return the label of the sign-in button, empty for none, and whether the user is signed in."""
    if not server.enabled or not can_sign_in(server, request_user.principal):
        return "", False
    if await services.config_sign_ins.is_signed_in(server, request_user.principal):
        return "Reconnect", True
    return ("Connect" if state == "needs_auth" or server.oauth is not None else ""), False


async def begin_config_sign_in(
    services: Services, request_user: RequestUser, server: Server, request: Request
) -> str:
    """Return the authorization URL to redirect to. Raises Invalid, AuthError or AuthUnavailable."""
    client_identity = services.build_client_identity(services.base_url(request))
    url = await services.config_sign_ins.begin(
        server, request_user.principal, request_user.browser_id, client_identity
    )
    await services.record_change(request_user, "server.connect", server.id)
    return url


def is_config_sign_in(pending: PendingSignIn, request_user: RequestUser) -> bool:
    """Return True if a pending sign-in is for a configured server."""
    return server_id_from_key(pending.key, request_user.principal) is not None


async def complete_config_sign_in(
    services: Services, request_user: RequestUser, pending: PendingSignIn, response: AuthorizationResponse
) -> Server:
    """Complete a sign-in and reconnect the server; return the server.

    Raises AuthError or AuthUnavailable.
    """
    server_id = server_id_from_key(pending.key, request_user.principal) or ""
    configured = services.configuration.servers.get(server_id)
    server = await services.config_sign_ins.complete(pending, response, configured, request_user.principal)
    await services.record_change(request_user, "server.sign_in", server.id)
    await _reconnect_server(services, request_user, server)
    return server


async def sign_out_of_config_server(services: Services, request_user: RequestUser, server: Server) -> bool:
    """Delete the user's sign-in and revoke it at the issuer. Returns False if there was none."""
    if not can_sign_in(server, request_user.principal):
        return False
    was_signed_in = await services.sign_outs.sign_out_of_server(server, request_user.principal)
    if was_signed_in:
        await services.record_change(request_user, "server.sign_out", server.id)
        await _reconnect_server(services, request_user, server)
    return was_signed_in


async def _reconnect_server(services: Services, request_user: RequestUser, server: Server) -> None:
    """Drop the connection and listing made with the old credentials, and list the server again."""
    await services.core.reconnect(server.id, request_user.principal)

    async def refresh_listing() -> None:
        await services.core.tool_directory.refresh(request_user.principal, fresh=True, only=[server.id])

    # The listing goes on in the background if it takes longer.
    await asyncio.wait([services.spawn(refresh_listing())], timeout=_CONNECT_WAIT_SECONDS)
