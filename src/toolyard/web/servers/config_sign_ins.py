"""Users' personal sign-ins to servers of the configuration: start, completion and sign-out."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.requests import Request

from toolyard.auth.sign_in_flow import AuthorizationResponse
from toolyard.auth.storage import PendingSignIn
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.concurrency.tasks import BackgroundTasks
from toolyard.core.audit import AuditRecorder
from toolyard.core.current_config import CurrentConfig
from toolyard.core.server_updates import ServerUpdates
from toolyard.policy.rules import scope_covers_server
from toolyard.registry.auth_provider_factory import can_sign_in
from toolyard.registry.errors import NotFound
from toolyard.registry.sign_in import ConfigSignIns, server_id_from_key
from toolyard.registry.sign_out import SignOutService
from toolyard.types.account import RequestUser
from toolyard.types.server import Server
from toolyard.web.public_urls import PublicUrls

__all__ = [
    "ConfigServerSignIns",
    "is_config_sign_in",
]

_CONNECT_WAIT_SECONDS = 10.0
"""Maximum wait for the server to be listed again after a sign-in or sign-out, in seconds."""


@dataclass(frozen=True, slots=True)
class ConfigServerSignIns:
    """Signs users in to servers of the configuration, and out of them."""

    _config: CurrentConfig
    _config_sign_ins: ConfigSignIns
    _sign_outs: SignOutService
    _urls: PublicUrls
    _tool_directory: ToolDirectory
    _updates: ServerUpdates
    _audit: AuditRecorder
    _tasks: BackgroundTasks

    def find_config_server(self, request_user: RequestUser, server_id: str) -> Server:
        """Return a configured server. Raises NotFound, also if the user's token does not cover it."""
        server = self._config.configuration.servers.get(server_id)
        if server is None or not scope_covers_server(request_user.scope, server):
            raise NotFound("server not found", hint="it may have been removed from the configuration")
        return server

    async def get_sign_in_action(
        self, request_user: RequestUser, server: Server, state: str
    ) -> tuple[str, bool]:
        """Return the label of the sign-in button, empty for none, and whether the user is signed in."""
        if not server.enabled or not can_sign_in(server, request_user.principal):
            return "", False
        if await self._config_sign_ins.is_signed_in(server, request_user.principal):
            return "Reconnect", True
        return ("Connect" if state == "needs_auth" or server.oauth is not None else ""), False

    async def begin_config_sign_in(self, request_user: RequestUser, server: Server, request: Request) -> str:
        """Return the authorization URL to redirect to. Raises Invalid, AuthError or AuthUnavailable."""
        client_identity = self._urls.build_client_identity(self._urls.base_url(request))
        url = await self._config_sign_ins.begin(
            server, request_user.principal, request_user.browser_id, client_identity
        )
        await self._audit.record_change(request_user, "server.connect", server.id)
        return url

    async def complete_config_sign_in(
        self, request_user: RequestUser, pending: PendingSignIn, response: AuthorizationResponse
    ) -> Server:
        """Complete a sign-in and reconnect the server; return the server.

        Raises AuthError or AuthUnavailable.
        """
        server_id = server_id_from_key(pending.key, request_user.principal) or ""
        configured = self._config.configuration.servers.get(server_id)
        server = await self._config_sign_ins.complete(pending, response, configured, request_user.principal)
        await self._audit.record_change(request_user, "server.sign_in", server.id)
        await self._reconnect_server(request_user, server)
        return server

    async def sign_out_of_config_server(self, request_user: RequestUser, server: Server) -> bool:
        """Delete the user's sign-in and revoke it at the issuer. Returns False if there was none."""
        if not can_sign_in(server, request_user.principal):
            return False
        was_signed_in = await self._sign_outs.sign_out_of_server(server, request_user.principal)
        if was_signed_in:
            await self._audit.record_change(request_user, "server.sign_out", server.id)
            await self._reconnect_server(request_user, server)
        return was_signed_in

    async def _reconnect_server(self, request_user: RequestUser, server: Server) -> None:
        """Drop the connection and listing made with the old credentials, and list the server again."""
        await self._updates.reconnect(server.id, request_user.principal)
        listing = self._tool_directory.refresh(request_user.principal, fresh=True, only=[server.id])
        # It goes on in the background if it takes longer.
        await asyncio.wait([self._tasks.spawn(listing)], timeout=_CONNECT_WAIT_SECONDS)


def is_config_sign_in(pending: PendingSignIn, request_user: RequestUser) -> bool:
    """Return True if a pending sign-in is for a configured server."""
    return server_id_from_key(pending.key, request_user.principal) is not None
