"""Turns that wait though all they wait for was answered: whoever answered was gone before they went on."""

from __future__ import annotations

import asyncio
import logging

from toolyard.agents.chat.heartbeat import repeat_forever
from toolyard.agents.chat.human_answers import HumanAnswers
from toolyard.agents.chat.storage import ChatStore
from toolyard.errors import ToolyardError

__all__ = ["TurnResumer"]

log = logging.getLogger("toolyard.chat")

_RESUME_INTERVAL_SECONDS = 60.0
"""Seconds between two looks."""


class TurnResumer:
    """Runs beside the turns of a process that serves everybody's chats."""

    def __init__(self, store: ChatStore, human_answers: HumanAnswers) -> None:
        self._store = store
        self._human_answers = human_answers
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin, with what was left behind before."""
        self._task = asyncio.get_running_loop().create_task(repeat_forever(self._resume_answered_turns))

    async def close(self) -> None:
        """End it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _resume_answered_turns(self) -> None:
        for chat in await self._store.find_resumable():
            try:
                await self._human_answers.resume_if_answered(chat)
            except ToolyardError as error:
                # One that cannot go on does not keep the others.
                log.warning("the turn of chat %s waits on: %s", chat.id, error.cause)
        await asyncio.sleep(_RESUME_INTERVAL_SECONDS)
