"""Turns that wait though all they wait for was answered: whoever answered was gone before they went on."""

from __future__ import annotations

import asyncio
import logging

from toolyard.agents.chat.heartbeat import kept_up
from toolyard.agents.chat.human_answers import Answering
from toolyard.agents.chat.storage import ChatStore
from toolyard.errors import ToolyardError

__all__ = ["Resuming"]

log = logging.getLogger("toolyard.chat")

_EVERY = 60.0
"""Seconds between two looks."""


class Resuming:
    """Runs beside the turns of a process that serves everybody's chats."""

    def __init__(self, store: ChatStore, answering: Answering) -> None:
        self._store = store
        self._answering = answering
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin, with what was left behind before."""
        self._task = asyncio.get_running_loop().create_task(kept_up(self._look))

    async def close(self) -> None:
        """End it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _look(self) -> None:
        for chat in await self._store.answered():
            try:
                await self._answering.take_up(chat)
            except ToolyardError as error:
                # One that cannot go on does not keep the others.
                log.warning("the turn of chat %s waits on: %s", chat.id, error.cause)
        await asyncio.sleep(_EVERY)
