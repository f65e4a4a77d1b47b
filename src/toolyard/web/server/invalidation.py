"""Background tasks that invalidate caches after changes by any replica, or after expiry."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from toolyard.store.change_feed.signals import (
    REGISTRY_CHANNEL,
    REMOVED_CREDENTIALS_CHANNEL,
    REVOKED_ACCESS_CHANNEL,
)

if TYPE_CHECKING:
    from toolyard.web.services import Services

__all__ = [
    "handle_credential_changes",
    "handle_server_changes",
    "handle_token_changes",
    "recheck_listeners_periodically",
]

_RECHECK_INTERVAL_SECONDS = 60.0
"""Interval between checks of listening clients for expired credentials, in seconds."""


async def handle_token_changes(services: Services) -> None:
    """Clear the admission cache and re-authorize listening clients when access is revoked."""
    async with aclosing(services.database.signals.listen(REVOKED_ACCESS_CHANNEL)) as listening:
        async for _ in listening:
            services.mcp.clear_admissions()
            await services.mcp.http_gateway.listeners.reauthorize()


async def handle_credential_changes(services: Services) -> None:
    """Close a user's connections when any process deletes their stored credentials."""
    async with aclosing(services.database.signals.listen(REMOVED_CREDENTIALS_CHANNEL)) as listening:
        async for user_id in listening:
            await services.core.forget_principal(user_id)


async def handle_server_changes(services: Services) -> None:
    """Refresh admissions, pages and gateway clients when a registry server or an instance changes."""
    async with aclosing(services.database.signals.listen(REGISTRY_CHANNEL)) as listening:
        async for changed_id in listening:
            services.mcp.clear_admissions()
            services.live_updates.request_poll()
            services.gateway_notices.request_check(changed_id)


async def recheck_listeners_periodically(services: Services) -> None:
    """Re-authorize listening clients regularly: the expiry of a token or session sends no signal."""
    while True:
        await asyncio.sleep(_RECHECK_INTERVAL_SECONDS)
        await services.mcp.http_gateway.listeners.reauthorize()
