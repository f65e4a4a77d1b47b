"""The events of a chat: page by page, and as a stream that can be taken up again where it broke off."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import StreamingResponse

from toolyard.agents.chat.errors import NoSuchChat
from toolyard.errors import ToolyardError
from toolyard.types.chat import Event
from toolyard.web.api.chat_dependencies import Looking
from toolyard.web.api.chat_models import EventPage, event_shown
from toolyard.web.api.dependencies import JSON, Id, Served, problems, produces
from toolyard.web.api.events import STREAM, may_still
from toolyard.web.services import Site

__all__ = ["HEARTBEAT", "batches", "router"]

log = logging.getLogger("toolyard.web")

HEARTBEAT = 15.0
"""Seconds. Proxies take a silent connection for a dead one; and whoever was signed out hears no more."""
_CHUNK = 65_536
"""Bytes that are sent at once. The rest of what is there is made into bytes when they are gone."""

router = APIRouter(prefix="/chats", tags=["chats"])

After = Annotated[int, Query(ge=0, le=2**62, description="Only what came after this event.")]
LastSeen = Annotated[
    int | None,
    Header(ge=0, le=2**62, alias="Last-Event-ID", description="What browsers send when they connect again."),
]


@router.get(
    "/{id}/events",
    responses=problems(404),
    summary="The events of a chat",
    dependencies=[Depends(produces(JSON))],
)
async def list_chat_events(
    site: Served,
    visitor: Looking,
    id: Id,
    after: After = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> EventPage:
    """All that was said and done, in order."""
    found = await site.chats.events(visitor.user.id, id, after=after, limit=limit + 1)
    shown = [event_shown(each) for each in found[:limit]]
    return EventPage(items=shown, next_after=shown[-1].seq if len(found) > limit else None)


@router.get(
    "/{id}/stream",
    response_class=StreamingResponse,
    responses={
        **problems(404),
        200: {"description": "Server-sent events.", "content": {STREAM: {"schema": {"type": "string"}}}},
    },
    summary="The events of a chat, as they happen",
    dependencies=[Depends(produces(STREAM))],
)
async def stream_chat(
    site: Served, visitor: Looking, id: Id, request: Request, after: After = 0, last_seen: LastSeen = None
) -> StreamingResponse:
    """Each event under the name of its kind, with its `seq` as the id: connect again with the last one that
    arrived, in `Last-Event-ID` or `after`, and nothing is lost or repeated. `gone` when the chat is deleted.
    The stream does not end with a turn; it ends when Toolyard stops: connect again."""
    await site.chats.get(visitor.user.id, id)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    stream = _stream(site, visitor.user.id, id, after if last_seen is None else last_seen, request)
    return StreamingResponse(stream, media_type=STREAM, headers=headers)


async def _stream(
    site: Site, owner: str, chat_id: str, after: int, request: Request
) -> AsyncGenerator[bytes]:
    yield b"retry: 1000\n\n"
    checked = time.monotonic()
    try:
        async for events in batches(site, owner, chat_id, after):
            if time.monotonic() - checked >= HEARTBEAT:
                if not await may_still(request):
                    return
                checked = time.monotonic()
            for chunk in _chunks(events):
                yield chunk
    except NoSuchChat:
        yield b"event: gone\ndata: {}\n\n"
    except ToolyardError as error:
        # Who listens connects again, and has missed nothing.
        log.warning("the stream of a chat ends: %s", error.cause)


async def batches(site: Site, owner: str, chat_id: str, after: int) -> AsyncGenerator[Sequence[Event]]:
    """What is there, then what comes; nothing when none came for a while. Nothing is fetched ahead of who
    reads it. Ends with the site; raises NoSuchChat when the chat is deleted."""
    stopped = asyncio.ensure_future(site.stopped.wait())
    try:
        while (events := await _next(site, chat_id, after, stopped)) is not None:
            if events:
                after = events[-1].seq
            else:
                await site.chats.get(owner, chat_id)
            yield events
    finally:
        stopped.cancel()


async def _next(
    site: Site, chat_id: str, after: int, stopped: asyncio.Future[Literal[True]]
) -> Sequence[Event] | None:
    """The next events; None when the site stops before there are any."""
    # Whose chat it is was seen before, and never changes: the store need not be asked with every word.
    coming = asyncio.ensure_future(site.database.chats.wait(chat_id, after, HEARTBEAT))
    try:
        await asyncio.wait((coming, stopped), return_when=asyncio.FIRST_COMPLETED)
        return coming.result() if coming.done() and not stopped.done() else None
    finally:
        coming.cancel()


def _chunks(events: Sequence[Event]) -> Iterator[bytes]:
    """The same events as bytes; a comment where there are none."""
    if not events:
        yield b": still here\n\n"
    chunk = bytearray()
    for event in events:
        chunk += _as_sent(event)
        if len(chunk) >= _CHUNK:
            yield bytes(chunk)
            chunk.clear()
    if chunk:
        yield bytes(chunk)


def _as_sent(event: Event) -> bytes:
    data = event_shown(event).model_dump_json().encode()
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.kind.encode(), data)
