"""Each person's own sign-in to a server of the operator's files: begun, finished, ended, and in force."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from toolyard.auth.authorization_response import AuthorizationResponse
from toolyard.auth.records import Pending
from toolyard.policy.rules.token_scope import covers
from toolyard.registry.config_sign_ins import server_named_by
from toolyard.registry.credentials import can_sign_in
from toolyard.registry.errors import NotFound
from toolyard.types.server import Server
from toolyard.web.access.dependencies import Visitor
from toolyard.web.services import Site

__all__ = ["begin", "config_server", "finish", "is_config_sign_in", "sign_in_word", "sign_out"]

_CONNECTING = 10.0
"""Seconds that somebody waits for a server to answer to their new sign-in."""


def config_server(site: Site, visitor: Visitor, server_id: str) -> Server:
    """A server of the files, as far as the visitor's token reaches. Raises NotFound."""
    server = site.configuration.servers.get(server_id)
    if server is None or not covers(visitor.scope, server):
        raise NotFound("there is no such server", hint="it may have been taken out of its file")
    return server


async def sign_in_word(site: Site, visitor: Visitor, server: Server, state: str) -> tuple[str, bool]:
    """The word on the button that signs in, empty where there is nothing to sign in to; and whether somebody
    is signed in."""
    if not server.enabled or not can_sign_in(server, visitor.principal):
        return "", False
    if await site.config_sign_ins.has(server, visitor.principal):
        return "Reconnect", True
    return ("Connect" if state == "needs_auth" or server.oauth is not None else ""), False


async def begin(site: Site, visitor: Visitor, server: Server, request: Request) -> str:
    """Where to send the visitor. Raises Invalid, AuthError or AuthUnavailable."""
    ourselves = site.ourselves(site.base_url(request))
    url = await site.config_sign_ins.begin(server, visitor.principal, visitor.browser, ourselves)
    await site.changed(visitor, "server.connect", server.id)
    return url


def is_config_sign_in(pending: Pending, visitor: Visitor) -> bool:
    """Whether what was begun is a sign-in to a server of the files."""
    return server_named_by(pending.key, visitor.principal) is not None


async def finish(site: Site, visitor: Visitor, pending: Pending, response: AuthorizationResponse) -> Server:
    """The server, signed in to and connected, if it answers soon. Raises AuthError or AuthUnavailable."""
    named = server_named_by(pending.key, visitor.principal) or ""
    known = site.configuration.servers.get(named)
    server = await site.config_sign_ins.complete(pending, response, known, visitor.principal)
    await site.changed(visitor, "server.sign_in", server.id)
    await _renew(site, visitor, server)
    return server


async def sign_out(site: Site, visitor: Visitor, server: Server) -> bool:
    """Forget the visitor's sign-in, and give it back to who gave it; whether there was one."""
    if not can_sign_in(server, visitor.principal):
        return False
    there_was = await site.sign_outs.of_server(server, visitor.principal)
    if there_was:
        await site.changed(visitor, "server.sign_out", server.id)
        await _renew(site, visitor, server)
    return there_was


async def _renew(site: Site, visitor: Visitor, server: Server) -> None:
    """Nothing that came with the old credentials counts; how it is with the new ones is soon known."""
    await site.parts.reconnect(server.id, visitor.principal)

    async def look() -> None:
        await site.parts.rosters.current(visitor.principal, fresh=True, only=[server.id])

    await asyncio.wait([site.spawn(look())], timeout=_CONNECTING)
