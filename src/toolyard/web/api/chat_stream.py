"""Events of a chat: in pages, and as a stream that can be resumed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Annotated

from fastapi import Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from toolyard.agents.chat.chats import ChatService
from toolyard.agents.chat.errors import NoSuchChat
from toolyard.core.interface_links import StopSignal
from toolyard.errors import ToolyardError
from toolyard.store.repositories.chats import SqlChatStore
from toolyard.types.chat import ChatEvent
from toolyard.web import service_dependencies as deps
from toolyard.web.api import base as api
from toolyard.web.api import event_stream
from toolyard.web.api.chat_models import EventPage, EventResponse

__all__ = ["router", "stream_event_batches"]

log = logging.getLogger("toolyard.web")

_CHUNK_BYTES = 65_536
"""Size of a chunk in bytes. Further events are encoded after it was sent, to limit the memory."""

router = api.ApiRoutes(prefix="/chats", tags=["chats"])

AfterEvent = Annotated[int, Query(ge=0, le=2**62, description="Return events after this sequence number.")]
LastEventId = Annotated[
    int | None,
    Header(
        ge=0,
        le=2**62,
        alias="Last-Event-ID",
        description="Sent by browsers when they reconnect; takes precedence over `after`.",
    ),
]


@router.get(
    "/{id}/events",
    response_model=EventPage,
    errors=[404],
    summary="List the events of a chat",
)
async def list_chat_events(
    chats: deps.ChatsDep,
    request_user: api.ChatReader,
    id: api.PathId,
    after: AfterEvent = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:
    """Return the events of a chat in order."""
    events = await chats.list_events(request_user.user.id, id, after=after, limit=limit + 1)
    page = EventPage(items=[], next_after=events[limit - 1].seq if len(events) > limit else None)
    items = (EventResponse.of(each).model_dump(mode="json") for each in events[:limit])
    # Each has up to 256 KB of arguments or results.
    return await api.respond_with_items(items, page, items_per_step=1)


@router.get(
    "/{id}/stream",
    response_class=StreamingResponse,
    errors=[404, 429],
    responses={
        200: {
            "description": "Server-sent events.",
            "content": {event_stream.CONTENT_TYPE: {"schema": {"type": "string"}}},
        },
    },
    summary="Stream the events of a chat",
    media_types=[event_stream.CONTENT_TYPE],
)
async def stream_chat(
    chat_store: deps.ChatStoreDep,
    chats: deps.ChatsDep,
    stream_limits: deps.StreamLimitsDep,
    stop_signal: deps.StopSignalDep,
    request_user: api.ChatReader,
    id: api.PathId,
    request: Request,
    after: AfterEvent = 0,
    last_seen: LastEventId = None,
) -> StreamingResponse:
    """Stream events as server-sent events, named by their kind, with `seq` as the id. Reconnect with the last
    id received, in `Last-Event-ID` or `after`, to lose or repeat nothing. An event `gone` tells that the chat
    was deleted. The stream does not end with a turn; when Toolyard stops, it ends, and clients should
    reconnect."""
    await chats.get(request_user.user.id, id)
    stream = _stream_chat_events(
        chat_store,
        chats,
        stop_signal,
        request_user.user.id,
        id,
        after if last_seen is None else last_seen,
        request,
        stream_limits.heartbeat_seconds,
    )
    return event_stream.EventStreamResponse(stream_limits, request_user, stream)


async def _stream_chat_events(
    chat_store: SqlChatStore,
    chats: ChatService,
    stop_signal: StopSignal,
    owner: str,
    chat_id: str,
    after: int,
    request: Request,
    heartbeat_seconds: float,
) -> AsyncGenerator[bytes]:
    yield b"retry: 1000\n\n"
    batches = stream_event_batches(chat_store, chats, stop_signal, owner, chat_id, after, heartbeat_seconds)
    try:
        async for events in event_stream.while_authorized(request, batches, heartbeat_seconds):
            for chunk in _encode_chunks(events):
                yield chunk
    except NoSuchChat:
        yield b"event: gone\ndata: {}\n\n"
    except ToolyardError as error:
        # The client reconnects with the last id and misses nothing.
        log.warning("the stream of a chat was ended: %s", error.cause)


async def stream_event_batches(
    chat_store: SqlChatStore,
    chats: ChatService,
    stop_signal: StopSignal,
    owner: str,
    chat_id: str,
    after: int,
    heartbeat_seconds: float,
) -> AsyncGenerator[Sequence[ChatEvent]]:
    """Yield existing events, then new ones as they come, and an empty batch as a heartbeat.

    The next batch is read only when the consumer asks for it. Ends when the server stops. Raises NoSuchChat
    when the chat is deleted.
    """
    stopped = asyncio.ensure_future(stop_signal.wait())
    try:
        # Held between the batches, too: a viewer of a chat stays one while it is sent events.
        with chat_store.event_waiters.follow(chat_id) as wait:
            while True:
                # The owner was checked before and never changes: the chat is not read again for each batch.
                waiting = asyncio.ensure_future(wait(after, heartbeat_seconds))
                try:
                    await asyncio.wait((waiting, stopped), return_when=asyncio.FIRST_COMPLETED)
                    if stopped.done():
                        return
                    events = waiting.result()
                finally:
                    waiting.cancel()
                if events:
                    after = events[-1].seq
                else:
                    # Without events, check that the chat still exists.
                    await chats.get(owner, chat_id)
                yield events
    finally:
        stopped.cancel()


def _encode_chunks(events: Sequence[ChatEvent]) -> Iterator[bytes]:
    """Encode events in chunks; no events become a comment, which keeps the connection alive."""
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
    data = EventResponse.of(event).model_dump_json().encode()
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.kind.encode(), data)
