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
from toolyard.types.chat import ChatEvent
from toolyard.web.api.chat_dependencies import ChatReader
from toolyard.web.api.chat_models import EventPage, build_event_model
from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    AppServices,
    PathId,
    problem_responses,
    require_media_types,
)
from toolyard.web.api.events import EVENT_STREAM_TYPE, is_still_authorized
from toolyard.web.services import Services

__all__ = ["HEARTBEAT_SECONDS", "router", "stream_event_batches"]

log = logging.getLogger("toolyard.web")

HEARTBEAT_SECONDS = 15.0
"""Seconds. Proxies take a silent connection for a dead one; and whoever was signed out hears no more."""
_CHUNK_BYTES = 65_536
"""Bytes that are sent at once. The rest of what is there is made into bytes when they are gone."""

router = APIRouter(prefix="/chats", tags=["chats"])

AfterEvent = Annotated[int, Query(ge=0, le=2**62, description="Only what came after this event.")]
LastEventId = Annotated[
    int | None,
    Header(ge=0, le=2**62, alias="Last-Event-ID", description="What browsers send when they connect again."),
]


@router.get(
    "/{id}/events",
    responses=problem_responses(404),
    summary="The events of a chat",
    dependencies=[Depends(require_media_types(JSON_CONTENT_TYPE))],
)
async def list_chat_events(
    site: AppServices,
    visitor: ChatReader,
    id: PathId,
    after: AfterEvent = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> EventPage:
    """All that was said and done, in order."""
    found = await site.chats.list_events(visitor.user.id, id, after=after, limit=limit + 1)
    shown = [build_event_model(each) for each in found[:limit]]
    return EventPage(items=shown, next_after=shown[-1].seq if len(found) > limit else None)


@router.get(
    "/{id}/stream",
    response_class=StreamingResponse,
    responses={
        **problem_responses(404),
        200: {
            "description": "Server-sent events.",
            "content": {EVENT_STREAM_TYPE: {"schema": {"type": "string"}}},
        },
    },
    summary="The events of a chat, as they happen",
    dependencies=[Depends(require_media_types(EVENT_STREAM_TYPE))],
)
async def stream_chat(
    site: AppServices,
    visitor: ChatReader,
    id: PathId,
    request: Request,
    after: AfterEvent = 0,
    last_seen: LastEventId = None,
) -> StreamingResponse:
    """Each event under the name of its kind, with its `seq` as the id: connect again with the last one that
    arrived, in `Last-Event-ID` or `after`, and nothing is lost or repeated. `gone` when the chat is deleted.
    The stream does not end with a turn; it ends when Toolyard stops: connect again."""
    await site.chats.get(visitor.user.id, id)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    stream = _stream_chat_events(
        site, visitor.user.id, id, after if last_seen is None else last_seen, request
    )
    return StreamingResponse(stream, media_type=EVENT_STREAM_TYPE, headers=headers)


async def _stream_chat_events(
    site: Services, owner: str, chat_id: str, after: int, request: Request
) -> AsyncGenerator[bytes]:
    yield b"retry: 1000\n\n"
    checked = time.monotonic()
    try:
        async for events in stream_event_batches(site, owner, chat_id, after):
            if time.monotonic() - checked >= HEARTBEAT_SECONDS:
                if not await is_still_authorized(request):
                    return
                checked = time.monotonic()
            for chunk in _encode_chunks(events):
                yield chunk
    except NoSuchChat:
        yield b"event: gone\ndata: {}\n\n"
    except ToolyardError as error:
        # Who listens connects again, and has missed nothing.
        log.warning("the stream of a chat ends: %s", error.cause)


async def stream_event_batches(
    site: Services, owner: str, chat_id: str, after: int
) -> AsyncGenerator[Sequence[ChatEvent]]:
    """What is there, then what comes; nothing when none came for a while. Nothing is fetched ahead of who
    reads it. Ends with the site; raises NoSuchChat when the chat is deleted."""
    stopped = asyncio.ensure_future(site.stop_event.wait())
    try:
        while (events := await _wait_for_events(site, chat_id, after, stopped)) is not None:
            if events:
                after = events[-1].seq
            else:
                await site.chats.get(owner, chat_id)
            yield events
    finally:
        stopped.cancel()


async def _wait_for_events(
    site: Services, chat_id: str, after: int, stopped: asyncio.Future[Literal[True]]
) -> Sequence[ChatEvent] | None:
    """The next events; None when the site stops before there are any."""
    # Whose chat it is was seen before, and never changes: the store need not be asked with every word.
    coming = asyncio.ensure_future(site.database.chats.wait_for_events(chat_id, after, HEARTBEAT_SECONDS))
    try:
        await asyncio.wait((coming, stopped), return_when=asyncio.FIRST_COMPLETED)
        return coming.result() if coming.done() and not stopped.done() else None
    finally:
        coming.cancel()


def _encode_chunks(events: Sequence[ChatEvent]) -> Iterator[bytes]:
    """The same events as bytes; a comment where there are none."""
    if not events:
        yield b": still here\n\n"
    chunk = bytearray()
    for event in events:
        chunk += _encode_event(event)
        if len(chunk) >= _CHUNK_BYTES:
            yield bytes(chunk)
            chunk.clear()
    if chunk:
        yield bytes(chunk)


def _encode_event(event: ChatEvent) -> bytes:
    data = build_event_model(event).model_dump_json().encode()
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.kind.encode(), data)
