"""What any replica changed in the database, and this one acts on at once; and what only time changes."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from toolyard.store.change_feed.signals import CREDENTIALS, SERVERS, TOKENS

if TYPE_CHECKING:
    from toolyard.web.services import Site

__all__ = ["hear_credentials", "hear_servers", "hear_tokens", "mind_expiry"]

_EVERY = 60.0
"""Seconds."""


async def hear_tokens(site: Site) -> None:
    """A token, a session or an account counts no more: whoever comes next is looked up, and so is whoever
    only listens."""
    async with aclosing(site.database.signals.listen(TOKENS)) as listening:
        async for _ in listening:
            site.mcp.forget()
            await site.mcp.app.listeners.look_again()


async def hear_credentials(site: Site) -> None:
    """Close a user's connections here once their stored credentials are gone, whichever process did that."""
    async with aclosing(site.database.signals.listen(CREDENTIALS)) as listening:
        async for user_id in listening:
            await site.parts.leave(user_id)


async def hear_servers(site: Site) -> None:
    """A server of the registry or an instance changed: so is what somebody has, and pages show it."""
    async with aclosing(site.database.signals.listen(SERVERS)) as listening:
        async for what in listening:
            site.mcp.forget()
            site.live.hurry()
            site.watchers.hurry(what)


async def mind_expiry(site: Site) -> None:
    """A token or a session runs out without a word: whoever only listens is looked up every minute."""
    while True:
        await asyncio.sleep(_EVERY)
        await site.mcp.app.listeners.look_again()
