"""What any replica changed in the database, and this one acts on at once; and what only time changes."""

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
"""Seconds."""


async def handle_token_changes(site: Services) -> None:
    """A token, a session or an account counts no more: whoever comes next is looked up, and so is whoever
    only listens."""
    async with aclosing(site.database.signals.listen(REVOKED_ACCESS_CHANNEL)) as listening:
        async for _ in listening:
            site.mcp.clear_admissions()
            await site.mcp.http_gateway.listeners.reauthorize()


async def handle_credential_changes(site: Services) -> None:
    """Close a user's connections here once their stored credentials are gone, whichever process did that."""
    async with aclosing(site.database.signals.listen(REMOVED_CREDENTIALS_CHANNEL)) as listening:
        async for user_id in listening:
            await site.parts.forget_principal(user_id)


async def handle_server_changes(site: Services) -> None:
    """A server of the registry or an instance changed: so is what somebody has, and pages show it."""
    async with aclosing(site.database.signals.listen(REGISTRY_CHANNEL)) as listening:
        async for what in listening:
            site.mcp.clear_admissions()
            site.live_updates.request_poll()
            site.gateway_notices.request_check(what)


async def recheck_listeners_periodically(site: Services) -> None:
    """A token or a session runs out without a word: whoever only listens is looked up every minute."""
    while True:
        await asyncio.sleep(_RECHECK_INTERVAL_SECONDS)
        await site.mcp.http_gateway.listeners.reauthorize()
