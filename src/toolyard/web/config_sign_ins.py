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


def find_config_server(site: Services, visitor: RequestUser, server_id: str) -> Server:
    """Return a configured server. Raises NotFound, also if the user's token does not cover it."""
    server = site.configuration.servers.get(server_id)
    if server is None or not scope_covers_server(visitor.scope, server):
        raise NotFound("there is no such server", hint="it may have been removed from the configuration")
    return server


async def get_sign_in_action(
    site: Services, visitor: RequestUser, server: Server, state: str
) -> tuple[str, bool]:
    """Return the label of the sign-in button, empty for none, and whether the user is signed in."""
    if not server.enabled or not can_sign_in(server, visitor.principal):
        return "", False
    if await site.config_sign_ins.is_signed_in(server, visitor.principal):
        return "Reconnect", True
    return ("Connect" if state == "needs_auth" or server.oauth is not None else ""), False


async def begin_config_sign_in(site: Services, visitor: RequestUser, server: Server, request: Request) -> str:
    """Return the authorization URL to redirect to. Raises Invalid, AuthError or AuthUnavailable."""
    client_identity = site.build_client_identity(site.base_url(request))
    url = await site.config_sign_ins.begin(server, visitor.principal, visitor.browser_id, client_identity)
    await site.record_change(visitor, "server.connect", server.id)
    return url


def is_config_sign_in(pending: PendingSignIn, visitor: RequestUser) -> bool:
    """Return True if a pending sign-in is for a configured server."""
    return server_id_from_key(pending.key, visitor.principal) is not None


async def complete_config_sign_in(
    site: Services, visitor: RequestUser, pending: PendingSignIn, response: AuthorizationResponse
) -> Server:
    """Complete a sign-in and reconnect the server; return the server.

    Raises AuthError or AuthUnavailable.
    """
    server_id = server_id_from_key(pending.key, visitor.principal) or ""
    configured = site.configuration.servers.get(server_id)
    server = await site.config_sign_ins.complete(pending, response, configured, visitor.principal)
    await site.record_change(visitor, "server.sign_in", server.id)
    await _reconnect_server(site, visitor, server)
    return server


async def sign_out_of_config_server(site: Services, visitor: RequestUser, server: Server) -> bool:
    """Delete the user's sign-in and revoke it at the issuer. Returns False if there was none."""
    if not can_sign_in(server, visitor.principal):
        return False
    was_signed_in = await site.sign_outs.sign_out_of_server(server, visitor.principal)
    if was_signed_in:
        await site.record_change(visitor, "server.sign_out", server.id)
        await _reconnect_server(site, visitor, server)
    return was_signed_in


async def _reconnect_server(site: Services, visitor: RequestUser, server: Server) -> None:
    """Drop the connection and listing made with the old credentials, and list the server again."""
    await site.parts.reconnect(server.id, visitor.principal)

    async def refresh_listing() -> None:
        await site.parts.tool_directory.refresh(visitor.principal, fresh=True, only=[server.id])

    # The listing goes on in the background if it takes longer.
    await asyncio.wait([site.spawn(refresh_listing())], timeout=_CONNECT_WAIT_SECONDS)
