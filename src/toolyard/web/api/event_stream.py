"""Server-sent events: the response, and the end of a stream with the sign-in that it was opened with."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from toolyard.errors import ToolyardError
from toolyard.gateway.http.event_streams import StreamLimits
from toolyard.types.account import RequestUser, Right
from toolyard.web.access.authentication import forget_identity, require_right

__all__ = ["CONTENT_TYPE", "EventStreamResponse", "while_authorized"]

T = TypeVar("T")

CONTENT_TYPE = "text/event-stream"


class EventStreamResponse(StreamingResponse):
    """Server-sent events, counted as an open stream of the user while they are sent."""

    def __init__(
        self, stream_limits: StreamLimits, request_user: RequestUser, stream: AsyncGenerator[bytes]
    ) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(stream, media_type=CONTENT_TYPE, headers=headers)
        self._hold = stream_limits.hold(request_user.user.id)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Here and not in the generator, which a client that disconnects early never starts.
        with self._hold:
            await super().__call__(scope, receive, send)


async def while_authorized(
    request: Request, batches: AsyncGenerator[T], heartbeat_seconds: float
) -> AsyncGenerator[T]:
    """Pass batches through until the sign-in or token of the request is no longer valid.

    They have to come at least as often as heartbeats.
    """
    checked_at = time.monotonic()
    async with aclosing(batches):
        async for batch in batches:
            if time.monotonic() - checked_at >= heartbeat_seconds:
                if not await _is_still_authorized(request):
                    return
                checked_at = time.monotonic()
            yield batch


async def _is_still_authorized(request: Request) -> bool:
    """Return True if the sign-in or token of a stream is still valid.

    Returns False if that cannot be checked: the client then reconnects and is authenticated again.
    """
    forget_identity(request)
    try:
        await require_right(Right.READ)(request)
    except (ToolyardError, HTTPException):
        # HTTPException is the redirect to the sign-in for pages, which a stream cannot follow.
        return False
    return True
