"""Background tasks that invalidate caches after changes by any replica, or after expiry."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress

from toolyard.core.current_config import ChangeNotifier
from toolyard.core.server_updates import ServerUpdates
from toolyard.store.change_feed.signals import (
    AGENTS_CHANNEL,
    REGISTRY_CHANNEL,
    REMOVED_CREDENTIALS_CHANNEL,
    REVOKED_ACCESS_CHANNEL,
    Signals,
)
from toolyard.store.errors import StoreError
from toolyard.store.repositories.agents import SqlAgentStorage
from toolyard.web.gateway_mount import GatewayMount
from toolyard.web.live.notices import GatewayNotices
from toolyard.web.server_status import StatusUpdates

__all__ = [
    "handle_agent_changes",
    "handle_credential_changes",
    "handle_server_changes",
    "handle_token_changes",
    "recheck_listeners_periodically",
]

_RECHECK_INTERVAL_SECONDS = 60.0
"""Interval between checks of listening clients for expired credentials, in seconds."""


async def handle_token_changes(signals: Signals, mount: GatewayMount) -> None:
    """Clear the admission cache and re-authorize listening clients when access is revoked."""
    async with aclosing(signals.listen(REVOKED_ACCESS_CHANNEL)) as listening:
        async for _ in listening:
            mount.clear_admissions()
            await mount.http_gateway.listeners.reauthorize()


async def handle_credential_changes(signals: Signals, updates: ServerUpdates) -> None:
    """Close a user's connections when any process deletes their stored credentials."""
    async with aclosing(signals.listen(REMOVED_CREDENTIALS_CHANNEL)) as listening:
        async for user_id in listening:
            await updates.forget_principal(user_id)


async def handle_server_changes(
    signals: Signals, mount: GatewayMount, live_updates: StatusUpdates, notices: GatewayNotices
) -> None:
    """Refresh admissions, pages and gateway clients when a registry server or an instance changes."""
    async with aclosing(signals.listen(REGISTRY_CHANNEL)) as listening:
        async for changed_id in listening:
            mount.clear_admissions()
            live_updates.request_poll()
            notices.request_check(changed_id)


async def handle_agent_changes(
    signals: Signals, agents: SqlAgentStorage, mount: GatewayMount, notifier: ChangeNotifier
) -> None:
    """Refresh admissions and gateway clients when any process changes a stored agent."""
    known: frozenset[tuple[str, int]] | None = None
    async with aclosing(signals.listen(AGENTS_CHANNEL)) as listening:
        async for _ in listening:
            # With SQLite, every write of another process may be one to the agents.
            with suppress(StoreError):
                former, known = known, await agents.read_versions()
                if former is not None and former != known:
                    mount.clear_admissions()
                    await mount.http_gateway.listeners.reauthorize()
                    notifier.notify_tools_changed()


async def recheck_listeners_periodically(mount: GatewayMount) -> None:
    """Re-authorize listening clients regularly: the expiry of a token or session sends no signal."""
    while True:
        await asyncio.sleep(_RECHECK_INTERVAL_SECONDS)
        await mount.http_gateway.listeners.reauthorize()
