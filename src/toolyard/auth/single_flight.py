"""One piece of work at a time, for all who ask for the same; it goes on when they leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from toolyard.auth.errors import AuthUnavailable

__all__ = ["Flight"]

_T = TypeVar("_T")


class Flight(Generic[_T]):
    """Who asks while the work is under way shares its outcome. It is not cancelled with whoever asked: a
    rotated token must be stored, and a person may still be typing a password."""

    def __init__(self) -> None:
        self._task: asyncio.Task[_T] | None = None
        self._about: Hashable = None

    async def join(self, begin: Callable[[], Coroutine[Any, Any, _T]], about: Hashable = None) -> _T:
        """The outcome of the work, which ``begin`` starts where none is under way. Who asks about something
        else than what is under way has their own work done after it. Raises what the work raises, and
        AuthUnavailable where it was ended by ``close``."""
        while (task := self._task) is not None and not task.done() and self._about != about:
            await asyncio.wait({task})
            if task.cancelled():
                raise _ended()
        if task is None or task.done():
            task = self._task = asyncio.create_task(begin())
            task.add_done_callback(_seen)
            self._about = about
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if task.cancelled() and me is not None and not me.cancelling():
                # The work was ended, not whoever waits for it.
                raise _ended() from None
            raise

    async def close(self, patience: float = 0.0) -> None:
        """End it: after the patience, in seconds, it is cancelled."""
        if (task := self._task) is None or task.done():
            return
        _, late = await asyncio.wait({task}, timeout=patience)
        for each in late:
            each.cancel()
        await asyncio.wait({task})


def _ended() -> AuthUnavailable:
    return AuthUnavailable("signing in was ended before it was done")


def _seen(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
