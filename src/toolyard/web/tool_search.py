"""Search among the tools of a chat."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from toolyard.agents.chat.chats import ToolView
from toolyard.catalog.search import SearchIndex
from toolyard.concurrency.lru_cache import LruCache
from toolyard.concurrency.tasks import run_in_locked_thread
from toolyard.types.tool import Definition

__all__ = ["ToolSearch"]

_MAX_LOCKS = 1_000


class ToolSearch:
    """Searches in threads, one search of each person at a time.

    To index thousands of tools with long texts takes many seconds, and other work needs the threads, too.
    """

    def __init__(self) -> None:
        self._lock_by_user: LruCache[str, asyncio.Lock] = LruCache(_MAX_LOCKS)

    async def search(self, user_id: str, tools: Sequence[ToolView], words: str, limit: int) -> list[ToolView]:
        """Return the tools that match a query, best first."""
        lock = self._lock_by_user.get(user_id) or asyncio.Lock()
        self._lock_by_user[user_id] = lock
        return await run_in_locked_thread(lock, partial(_search, tools, words, limit))


def _search(tools: Sequence[ToolView], words: str, limit: int) -> list[ToolView]:
    # A temporary index over the tools of this chat, whose names depend on the agent and the selection.
    index, by_name = SearchIndex(), {each.name: each for each in tools}
    servers: dict[str, dict[str, Definition]] = {}
    for each in tools:
        servers.setdefault(each.server, {})[each.name] = each.definition
    for server, definitions in servers.items():
        index.put(server, definitions)
    return [by_name[hit.name] for hit in index.search(words, limit)]
