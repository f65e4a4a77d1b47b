"""Fetches a server's tools for the catalogue cache."""

from __future__ import annotations

import logging

from toolyard.clients.manager import ConnectionManager
from toolyard.types.catalog import CacheScope, RawListing
from toolyard.types.principal import Principal

__all__ = ["ToolFetcher"]

log = logging.getLogger("toolyard.catalogue")


class ToolFetcher:
    """Lists a server's tools over its connection; connects if needed."""

    def __init__(self, manager: ConnectionManager) -> None:
        self._manager = manager

    async def __call__(self, server_id: str, principal: Principal, chat: str | None = None) -> RawListing:
        """Fetch the complete listing. Raise a ServerError."""
        handshake = await self._manager.ensure_connected(server_id, principal=principal, chat=chat)
        if "tools" not in handshake.capabilities:
            tools, ttl_ms, scope = [], None, None
        else:
            pages = await self._manager.list_tools(server_id, principal=principal, chat=chat)
            tools, ttl_ms, scope = pages.items, pages.ttl_ms, CacheScope(pages.scope)
        log.info("server '%s' lists %d tools", server_id, len(tools))
        return RawListing(
            tools=tuple(tools),
            server_info=handshake.info,
            capabilities=handshake.capabilities,
            protocol_version=handshake.version,
            instructions=handshake.instructions,
            ttl=None if ttl_ms is None else ttl_ms / 1000,
            scope=scope,
        )
