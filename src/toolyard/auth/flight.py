"""One piece of work for all who ask for it at the same time, which goes on when they leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from toolyard.auth.errors import AuthUnavailable

__all__ = ["Flight"]

_T = TypeVar("_T")


class Flight(Generic[_T]):
    """Who asks while the work is under way shares its outcome. It is not cancelled with whoever asked: a
    rotated token must be stored, and a person may still be typing a password."""

    def __init__(self) -> None:
        self._task: asyncio.Task[_T] | None = None

    async def join(self, begin: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """The outcome of the work, which ``begin`` starts where none is under way. Raises what it raises,
        and AuthUnavailable where it was ended by ``close``."""
        task = self._task
        if task is None or task.done():
            task = self._task = asyncio.create_task(begin())
            task.add_done_callback(_seen)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if task.cancelled() and me is not None and not me.cancelling():
                # The work was ended, not whoever waits for it.
                raise AuthUnavailable("signing in was ended before it was done") from None
            raise

    async def close(self, patience: float = 0.0) -> None:
        """End it: after the patience, in seconds, it is cancelled."""
        if (task := self._task) is None or task.done():
            return
        _, late = await asyncio.wait({task}, timeout=patience)
        for each in late:
            each.cancel()
        await asyncio.wait({task})


def _seen(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
