"""Requests of one legacy client by its own ids, so that it can take them back, also before they are here.

The specification (2025-11-25, Cancellation) lets a receiver ignore ``notifications/cancelled`` for a request
that it does not know, and asks both sides to handle races gracefully. Over HTTP a request and its
cancellation may come on two connections, and the second one may be read first: the client has given the
request up by then, and nobody would ever stop it. So a cancellation of an unknown request counts for a short
while, and the request that it names is not begun when it arrives; it has no answer, like any that is
cancelled.

An id is used once in a session. A client that uses them again is not harmed: what was answered a moment ago
is known, and a cancellation that comes too late for it is dropped.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import Any

from toolyard.protocol.pending import Id

__all__ = ["Cancelling"]

_EARLY = 30.0
"""Seconds for which a cancellation waits for its request."""
_MOST = 64
"""Cancellations that wait, and answered requests that are known; beyond them the oldest are forgotten."""
_LONG = 128
"""Characters or bits of the ids that are remembered."""


class Cancelling:
    """Of one session; another one's ids mean nothing here."""

    def __init__(self) -> None:
        self._running: dict[Id, asyncio.Task[Any]] = {}
        self._early: OrderedDict[Id, float] = OrderedDict()
        self._answered: OrderedDict[Id, None] = OrderedDict()

    def begin(self, id: Id, task: asyncio.Task[Any]) -> None:
        """A request arrived, and a task answers it. Raises CancelledError where it was cancelled before."""
        came = self._early.pop(id, None) if self._early else None
        if came is not None and time.monotonic() - came < _EARLY:
            raise asyncio.CancelledError
        self._running[id] = task

    def end(self, id: Id) -> None:
        """It is answered, or cancelled."""
        if self._running.pop(id, None) is not None:
            _remember(self._answered, id, None)

    def cancel(self, id: Id) -> None:
        """The client does not want the answer."""
        if (task := self._running.get(id)) is not None:
            task.cancel()
        elif id not in self._answered:
            _remember(self._early, id, time.monotonic())

    def close(self) -> None:
        """Cancel all that is under way."""
        for task in list(self._running.values()):
            task.cancel()


def _remember(memory: OrderedDict[Id, Any], id: Id, value: object) -> None:
    if (len(id) if isinstance(id, str) else id.bit_length()) > _LONG:
        return
    memory[id] = value
    memory.move_to_end(id)
    if len(memory) > _MOST:
        memory.popitem(last=False)
