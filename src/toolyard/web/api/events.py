"""``/events``: how servers are, as it changes."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator

import orjson
from fastapi import APIRouter, Depends, Request
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException

from toolyard.errors import ToolyardError
from toolyard.types.account import Right
from toolyard.web.access.dependencies import RequestUser, forget_identity, require_right
from toolyard.web.api.dependencies import AppServices, UserWithRead, problem_responses, require_media_types
from toolyard.web.api.status import build_status_model
from toolyard.web.live.updates import LiveUpdate
from toolyard.web.server_status import ServerRecord
from toolyard.web.services import Services

__all__ = ["EVENT_STREAM_TYPE", "is_still_authorized", "router"]

EVENT_STREAM_TYPE = "text/event-stream"
HEARTBEAT_SECONDS = 15.0
"""Seconds. Proxies take a silent connection for a dead one; and whoever was signed out hears no more."""

router = APIRouter(tags=["status"], dependencies=[Depends(require_media_types(EVENT_STREAM_TYPE))])


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={
        **problem_responses(),
        200: {
            "description": "Server-sent events.",
            "content": {EVENT_STREAM_TYPE: {"schema": {"type": "string"}}},
        },
    },
    summary="Changes of status, as they happen",
)
async def stream_events(site: AppServices, visitor: UserWithRead, request: Request) -> StreamingResponse:
    """First an event `status` for every server, then one for each change, with a record as in `/status`;
    `gone` for a server that is no longer there. The stream ends when Toolyard stops: connect again."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(
        _stream_status_events(site, visitor, request), media_type=EVENT_STREAM_TYPE, headers=headers
    )


async def _stream_status_events(
    site: Services, visitor: RequestUser, request: Request
) -> AsyncGenerator[bytes]:
    yield b"retry: 2000\n\n"
    checked = time.monotonic()
    async for change in site.live_updates.changes(
        site.get_caller(visitor), heartbeat_seconds=HEARTBEAT_SECONDS
    ):
        if time.monotonic() - checked >= HEARTBEAT_SECONDS:
            if not await is_still_authorized(request):
                return
            checked = time.monotonic()
        yield b": still here\n\n" if change is None else _encode_status_event(change)


async def is_still_authorized(request: Request) -> bool:
    """Whether a sign-in or token still counts: a stream outlives many a sign-out. Where that cannot be looked
    up, it does not: who listens connects again."""
    forget_identity(request)
    try:
        await require_right(Right.READ)(request)
    except (ToolyardError, HTTPException):
        # A page would be sent to the sign-in, which a stream cannot be.
        return False
    return True


def _encode_status_event(change: LiveUpdate[ServerRecord]) -> bytes:
    if change.now is None:
        kind, _, id_ = change.id.partition(":")
        return b"event: gone\ndata: " + orjson.dumps({"kind": kind, "id": id_}) + b"\n\n"
    return b"event: status\ndata: " + build_status_model(change.now).model_dump_json().encode() + b"\n\n"
