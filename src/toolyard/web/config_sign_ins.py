"""Each person's own sign-in to a server of the operator's files: begun, finished, ended, and in force."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from toolyard.auth.authorization_response import AuthorizationResponse
from toolyard.auth.records import PendingSignIn
from toolyard.policy.rules.token_scope import scope_covers_server
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
"""Seconds that somebody waits for a server to answer to their new sign-in."""


def find_config_server(site: Services, visitor: RequestUser, server_id: str) -> Server:
    """A server of the files, as far as the visitor's token reaches. Raises NotFound."""
    server = site.configuration.servers.get(server_id)
    if server is None or not scope_covers_server(visitor.scope, server):
        raise NotFound("there is no such server", hint="it may have been taken out of its file")
    return server


async def get_sign_in_action(
    site: Services, visitor: RequestUser, server: Server, state: str
) -> tuple[str, bool]:
    """The word on the button that signs in, empty where there is nothing to sign in to; and whether somebody
    is signed in."""
    if not server.enabled or not can_sign_in(server, visitor.principal):
        return "", False
    if await site.config_sign_ins.is_signed_in(server, visitor.principal):
        return "Reconnect", True
    return ("Connect" if state == "needs_auth" or server.oauth is not None else ""), False


async def begin_config_sign_in(site: Services, visitor: RequestUser, server: Server, request: Request) -> str:
    """Where to send the visitor. Raises Invalid, AuthError or AuthUnavailable."""
    ourselves = site.build_client_identity(site.base_url(request))
    url = await site.config_sign_ins.begin(server, visitor.principal, visitor.browser, ourselves)
    await site.changed(visitor, "server.connect", server.id)
    return url


def is_config_sign_in(pending: PendingSignIn, visitor: RequestUser) -> bool:
    """Whether what was begun is a sign-in to a server of the files."""
    return server_id_from_key(pending.key, visitor.principal) is not None


async def complete_config_sign_in(
    site: Services, visitor: RequestUser, pending: PendingSignIn, response: AuthorizationResponse
) -> Server:
    """The server, signed in to and connected, if it answers soon. Raises AuthError or AuthUnavailable."""
    named = server_id_from_key(pending.key, visitor.principal) or ""
    known = site.configuration.servers.get(named)
    server = await site.config_sign_ins.complete(pending, response, known, visitor.principal)
    await site.changed(visitor, "server.sign_in", server.id)
    await _reconnect_server(site, visitor, server)
    return server


async def sign_out_of_config_server(site: Services, visitor: RequestUser, server: Server) -> bool:
    """Forget the visitor's sign-in, and give it back to who gave it; whether there was one."""
    if not can_sign_in(server, visitor.principal):
        return False
    there_was = await site.sign_outs.sign_out_of_server(server, visitor.principal)
    if there_was:
        await site.changed(visitor, "server.sign_out", server.id)
        await _reconnect_server(site, visitor, server)
    return there_was


async def _reconnect_server(site: Services, visitor: RequestUser, server: Server) -> None:
    """Nothing that came with the old credentials counts; how it is with the new ones is soon known."""
    await site.parts.reconnect(server.id, visitor.principal)

    async def refresh_listing() -> None:
        await site.parts.tool_directory.refresh(visitor.principal, fresh=True, only=[server.id])

    await asyncio.wait([site.spawn(refresh_listing())], timeout=_CONNECT_WAIT_SECONDS)
