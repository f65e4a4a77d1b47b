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

from toolyard.protocol.pending import RequestId

__all__ = ["CancellableRequests"]

_EARLY_CANCELLATION_SECONDS = 30.0
"""Seconds for which a cancellation waits for its request."""
_MAX_REMEMBERED_IDS = 64
"""Cancellations that wait, and answered requests that are known; beyond them the oldest are forgotten."""
_MAX_ID_LENGTH = 128
"""Characters or bits of the ids that are remembered."""


class CancellableRequests:
    """Of one session; another one's ids mean nothing here."""

    def __init__(self) -> None:
        self._running_tasks: dict[RequestId, asyncio.Task[Any]] = {}
        self._early_cancellations: OrderedDict[RequestId, float] = OrderedDict()
        self._answered_ids: OrderedDict[RequestId, None] = OrderedDict()

    def begin(self, id: RequestId, task: asyncio.Task[Any]) -> None:
        """A request arrived, and a task answers it. Raises CancelledError where it was cancelled before."""
        came = self._early_cancellations.pop(id, None) if self._early_cancellations else None
        if came is not None and time.monotonic() - came < _EARLY_CANCELLATION_SECONDS:
            raise asyncio.CancelledError
        self._running_tasks[id] = task

    def end(self, id: RequestId) -> None:
        """It is answered, or cancelled."""
        if self._running_tasks.pop(id, None) is not None:
            _remember_id(self._answered_ids, id, None)

    def cancel(self, id: RequestId) -> None:
        """The client does not want the answer."""
        if (task := self._running_tasks.get(id)) is not None:
            task.cancel()
        elif id not in self._answered_ids:
            _remember_id(self._early_cancellations, id, time.monotonic())

    def close(self) -> None:
        """Cancel all that is under way."""
        for task in list(self._running_tasks.values()):
            task.cancel()


def _remember_id(memory: OrderedDict[RequestId, Any], id: RequestId, value: object) -> None:
    if (len(id) if isinstance(id, str) else id.bit_length()) > _MAX_ID_LENGTH:
        return
    memory[id] = value
    memory.move_to_end(id)
    if len(memory) > _MAX_REMEMBERED_IDS:
        memory.popitem(last=False)
