"""One piece of work at a time, for all who ask for the same; it goes on when they leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from toolyard.auth.errors import AuthUnavailable

__all__ = ["SingleFlightTask"]

_T = TypeVar("_T")


class SingleFlightTask(Generic[_T]):
    """Who asks while the work is under way shares its outcome. It is not cancelled with whoever asked: a
    rotated token must be stored, and a person may still be typing a password."""

    def __init__(self) -> None:
        self._task: asyncio.Task[_T] | None = None
        self._key: Hashable = None

    async def run(self, start: Callable[[], Coroutine[Any, Any, _T]], key: Hashable = None) -> _T:
        """The outcome of the work, which ``begin`` starts where none is under way. Who asks about something
        else than what is under way has their own work done after it. Raises what the work raises, and
        AuthUnavailable where it was ended by ``close``."""
        while (task := self._task) is not None and not task.done() and self._key != key:
            await asyncio.wait({task})
            if task.cancelled():
                raise _build_cancelled_error()
        if task is None or task.done():
            task = self._task = asyncio.create_task(start())
            task.add_done_callback(_consume_exception)
            self._key = key
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if task.cancelled() and me is not None and not me.cancelling():
                # The work was ended, not whoever waits for it.
                raise _build_cancelled_error() from None
            raise

    async def close(self, timeout_seconds: float = 0.0) -> None:
        """End it: after the patience, in seconds, it is cancelled."""
        if (task := self._task) is None or task.done():
            return
        _, late = await asyncio.wait({task}, timeout=timeout_seconds)
        for each in late:
            each.cancel()
        await asyncio.wait({task})


def _build_cancelled_error() -> AuthUnavailable:
    return AuthUnavailable("signing in was ended before it was done")


def _consume_exception(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
