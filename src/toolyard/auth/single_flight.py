"""Shared execution of one task at a time, which continues even if all callers are cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from toolyard.auth.errors import AuthUnavailable

__all__ = ["SingleFlightTask"]

_T = TypeVar("_T")


class SingleFlightTask(Generic[_T]):
    """Runs at most one task at a time; concurrent callers with equal keys share its result.

    The task is not cancelled with its callers: a rotated refresh token must be stored, and a user may still
    be typing a password.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[_T] | None = None
        self._key: Hashable = None

    async def run(self, start: Callable[[], Coroutine[Any, Any, _T]], key: Hashable = None) -> _T:
        """Return the result of the running task with this key, or of a new task started with ``start``.

        A task with another key is awaited first. Raises the task's exception, and AuthUnavailable if
        ``close`` cancelled the task.
        """
        # A loop: when the awaited task ends, another caller may have started the next one before this caller
        # runs.
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
            caller = asyncio.current_task()
            if task.cancelled() and caller is not None and not caller.cancelling():
                # ``close`` cancelled the shared task. The caller itself was not cancelled, so it must not
                # get CancelledError.
                raise _build_cancelled_error() from None
            raise

    async def close(self, timeout_seconds: float = 0.0) -> None:
        """Wait up to ``timeout_seconds`` for the running task, then cancel it."""
        if (task := self._task) is None or task.done():
            return
        _, unfinished = await asyncio.wait({task}, timeout=timeout_seconds)
        for each in unfinished:
            each.cancel()
        await asyncio.wait({task})


def _build_cancelled_error() -> AuthUnavailable:
    return AuthUnavailable("the sign-in was cancelled before it completed")


def _consume_exception(task: asyncio.Task[Any]) -> None:
    # If every caller is gone, asyncio would log "Task exception was never retrieved".
    if not task.cancelled():
        task.exception()
