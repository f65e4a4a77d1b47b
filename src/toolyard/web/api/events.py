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
from toolyard.web.access.dependencies import Visitor, forget_identity, needs
from toolyard.web.api.dependencies import Reading, Served, problems, produces
from toolyard.web.api.status import status_of
from toolyard.web.live.updates import Change
from toolyard.web.server_status import ServerRecord
from toolyard.web.services import Site

__all__ = ["STREAM", "may_still", "router"]

STREAM = "text/event-stream"
HEARTBEAT = 15.0
"""Seconds. Proxies take a silent connection for a dead one; and whoever was signed out hears no more."""

router = APIRouter(tags=["status"], dependencies=[Depends(produces(STREAM))])


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={
        **problems(),
        200: {"description": "Server-sent events.", "content": {STREAM: {"schema": {"type": "string"}}}},
    },
    summary="Changes of status, as they happen",
)
async def stream_events(site: Served, visitor: Reading, request: Request) -> StreamingResponse:
    """First an event `status` for every server, then one for each change, with a record as in `/status`;
    `gone` for a server that is no longer there. The stream ends when Toolyard stops: connect again."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_events(site, visitor, request), media_type=STREAM, headers=headers)


async def _events(site: Site, visitor: Visitor, request: Request) -> AsyncGenerator[bytes]:
    yield b"retry: 2000\n\n"
    checked = time.monotonic()
    async for change in site.live.changes(site.caller(visitor), heartbeat=HEARTBEAT):
        if time.monotonic() - checked >= HEARTBEAT:
            if not await may_still(request):
                return
            checked = time.monotonic()
        yield b": still here\n\n" if change is None else _event(change)


async def may_still(request: Request) -> bool:
    """Whether a sign-in or token still counts: a stream outlives many a sign-out. Where that cannot be looked
    up, it does not: who listens connects again."""
    forget_identity(request)
    try:
        await needs(Right.READ)(request)
    except (ToolyardError, HTTPException):
        # A page would be sent to the sign-in, which a stream cannot be.
        return False
    return True


def _event(change: Change[ServerRecord]) -> bytes:
    if change.now is None:
        kind, _, id_ = change.id.partition(":")
        return b"event: gone\ndata: " + orjson.dumps({"kind": kind, "id": id_}) + b"\n\n"
    return b"event: status\ndata: " + status_of(change.now).model_dump_json().encode() + b"\n\n"
