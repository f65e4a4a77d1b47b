"""Requests of one legacy client by their ids, so that the client can cancel them, even before they arrive.

The specification (2025-11-25, Cancellation) lets a receiver ignore ``notifications/cancelled`` for an unknown
request, and asks both sides to handle races gracefully. Over HTTP a request and its cancellation may use two
connections, and the cancellation may be read first. Ignoring it would leave a request running that nobody can
stop. So a cancellation of an unknown request is kept for a short time, and the request that it names is not
started when it arrives. Like any cancelled request it gets no response.

An id is used once in a session. A client that reuses ids is not harmed: recently answered ids are kept, and a
late cancellation of one of them is dropped.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import Any

from toolyard.protocol.pending import RequestId

__all__ = ["CancellableRequests"]

_EARLY_CANCELLATION_SECONDS = 30.0
"""How long a cancellation is kept for a request that has not arrived."""
_MAX_REMEMBERED_IDS = 64
"""Maximum number of kept cancellations, and of answered ids; the oldest are dropped first."""
_MAX_ID_LENGTH = 128
"""Maximum length of a remembered id, in characters or bits."""


class CancellableRequests:
    """The requests of one session. Ids of other sessions are unrelated."""

    def __init__(self) -> None:
        self._running_tasks: dict[RequestId, asyncio.Task[Any]] = {}
        self._early_cancellations: OrderedDict[RequestId, float] = OrderedDict()
        self._answered_ids: OrderedDict[RequestId, None] = OrderedDict()

    def begin(self, id: RequestId, task: asyncio.Task[Any]) -> None:
        """Register a request and the task that answers it. Raises CancelledError if it has been cancelled
        already."""
        came = self._early_cancellations.pop(id, None) if self._early_cancellations else None
        if came is not None and time.monotonic() - came < _EARLY_CANCELLATION_SECONDS:
            raise asyncio.CancelledError
        self._running_tasks[id] = task

    def end(self, id: RequestId) -> None:
        """Unregister a request that has been answered or cancelled."""
        if self._running_tasks.pop(id, None) is not None:
            _remember_id(self._answered_ids, id, None)

    def cancel(self, id: RequestId) -> None:
        """Cancel a request, or remember the cancellation if the request has not arrived."""
        if (task := self._running_tasks.get(id)) is not None:
            task.cancel()
        elif id not in self._answered_ids:
            _remember_id(self._early_cancellations, id, time.monotonic())

    def close(self) -> None:
        """Cancel all requests in progress."""
        for task in list(self._running_tasks.values()):
            task.cancel()


def _remember_id(memory: OrderedDict[RequestId, Any], id: RequestId, value: object) -> None:
    if (len(id) if isinstance(id, str) else id.bit_length()) > _MAX_ID_LENGTH:
        return
    memory[id] = value
    memory.move_to_end(id)
    if len(memory) > _MAX_REMEMBERED_IDS:
        memory.popitem(last=False)
