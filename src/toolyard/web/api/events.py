"""``/events``: the stream of server status changes."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator

import orjson
from fastapi import Depends, Request
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from toolyard.core.callers import CallerCache
from toolyard.errors import ToolyardError
from toolyard.gateway.http.event_streams import StreamLimits
from toolyard.types.account import Right
from toolyard.web.access.dependencies import RequestUser, forget_identity, require_right
from toolyard.web.api.dependencies import UserWithRead, problem_responses, require_media_types
from toolyard.web.api.status import build_status_model
from toolyard.web.routes import Routes
from toolyard.web.servers.live_updates import LiveUpdate
from toolyard.web.servers.status import ServerRecord, StatusUpdates
from toolyard.web.service_dependencies import CallersDep, LiveUpdatesDep, StreamLimitsDep

__all__ = ["EVENT_STREAM_TYPE", "EventStreamResponse", "is_still_authorized", "router"]

EVENT_STREAM_TYPE = "text/event-stream"
HEARTBEAT_SECONDS = 15.0
"""Interval between heartbeats in seconds: proxies close silent connections. Also the interval at which the
sign-in is checked again."""


class EventStreamResponse(StreamingResponse):
    """Server-sent events, counted as an open stream of the user while they are sent."""

    def __init__(
        self, stream_limits: StreamLimits, request_user: RequestUser, stream: AsyncGenerator[bytes]
    ) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(stream, media_type=EVENT_STREAM_TYPE, headers=headers)
        self._hold = stream_limits.hold(request_user.user.id)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Here and not in the generator, which a client that disconnects early never starts.
        with self._hold:
            await super().__call__(scope, receive, send)


router = Routes(tags=["status"], dependencies=[Depends(require_media_types(EVENT_STREAM_TYPE))])


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={
        **problem_responses(429),
        200: {
            "description": "Server-sent events.",
            "content": {EVENT_STREAM_TYPE: {"schema": {"type": "string"}}},
        },
    },
    summary="Stream status changes",
)
async def stream_events(
    callers: CallersDep,
    live_updates: LiveUpdatesDep,
    stream_limits: StreamLimitsDep,
    request_user: UserWithRead,
    request: Request,
) -> StreamingResponse:
    """Stream server-sent events: first `status` for every server, then one for each change, with a record as
    in `/status`, and `gone` for a removed server. When Toolyard stops, the stream ends, and clients should
    reconnect."""
    return EventStreamResponse(
        stream_limits, request_user, _stream_status_events(callers, live_updates, request_user, request)
    )


async def _stream_status_events(
    callers: CallerCache, live_updates: StatusUpdates, request_user: RequestUser, request: Request
) -> AsyncGenerator[bytes]:
    yield b"retry: 2000\n\n"
    checked_at = time.monotonic()
    async for change in live_updates.subscribe(
        callers.get(request_user), heartbeat_seconds=HEARTBEAT_SECONDS
    ):
        if time.monotonic() - checked_at >= HEARTBEAT_SECONDS:
            if not await is_still_authorized(request):
                return
            checked_at = time.monotonic()
        yield b": still here\n\n" if change is None else _encode_status_event(change)


async def is_still_authorized(request: Request) -> bool:
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


def _encode_status_event(change: LiveUpdate[ServerRecord]) -> bytes:
    if change.record is None:
        kind, _, id_ = change.id.partition(":")
        return b"event: gone\ndata: " + orjson.dumps({"kind": kind, "id": id_}) + b"\n\n"
    return b"event: status\ndata: " + build_status_model(change.record).model_dump_json().encode() + b"\n\n"
