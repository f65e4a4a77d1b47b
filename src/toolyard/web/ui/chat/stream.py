"""``/ui/chat/{id}/stream``: a chat's page as it changes, made by the server, for whoever has it open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Annotated

import orjson
from fastapi import APIRouter, Depends, Header
from fastapi.responses import StreamingResponse
from starlette.datastructures import State
from starlette.requests import Request

from toolyard.agents.chat.errors import NoSuchChat
from toolyard.types.chat import PIECES, Chat, Event
from toolyard.web.access.dependencies import Visitor, visitor
from toolyard.web.api.chat_stream import HEARTBEAT, batches
from toolyard.web.api.events import STREAM, may_still
from toolyard.web.rendering.renderer import DeferredMarkdown
from toolyard.web.services import Site
from toolyard.web.ui.chat.fragments import Frame
from toolyard.web.ui.chat.page_updates import Change, Following
from toolyard.web.ui.chat.view_builder import ChatView
from toolyard.web.ui.components.render import part

__all__ = ["router"]

router = APIRouter()

_BREATH = 0.04
"""Seconds between two changes that only add pieces. More often than this nobody sees."""
_CROWD = 25
"""With each so many pages that are open, they grow by as much again: what is made for all of them is made by
one process."""


@router.get("/ui/chat/{chat_id}/stream")
async def stream_page(
    request: Request,
    me: Annotated[Visitor, Depends(visitor)],
    chat_id: str,
    after: int = 0,
    last_event_id: Annotated[int | None, Header()] = None,
) -> StreamingResponse:
    """What changes on the page after the event that it shows last."""
    site: Site = request.app.state.site
    seen = max(after, last_event_id or 0)
    shown = ChatView.of(await site.chats.latest(me.user.id, chat_id, before=seen + 1, limit=1))
    deferred = DeferredMarkdown(site.markdown)
    frame = Frame(chat_id, me.csrf, to_html=deferred)
    following = Following(frame, ChatView(shown.turns, max(shown.last, seen)))
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    stream = _counted(request.app.state, _stream(site, me, chat_id, following, deferred, request))
    return StreamingResponse(stream, media_type=STREAM, headers=headers)


async def _counted(state: State, stream: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """The same, while it is known how many there are."""
    state.open_chats = _open(state) + 1
    try:
        async for each in stream:
            yield each
    finally:
        state.open_chats -= 1
        await stream.aclose()


def _open(state: State) -> int:
    return getattr(state, "open_chats", 0)


async def _stream(
    site: Site,
    me: Visitor,
    chat_id: str,
    following: Following,
    deferred: DeferredMarkdown,
    request: Request,
) -> AsyncGenerator[bytes]:
    yield b"retry: 1000\n\n"
    checked = time.monotonic()
    try:
        async for events in batches(site, me.user.id, chat_id, following.last):
            if time.monotonic() - checked >= HEARTBEAT:
                if not await may_still(request):
                    return
                checked = time.monotonic()
            if not events:
                yield b": still here\n\n"
                continue
            changes = await _rendered(following.changes(events), deferred)
            if any("state" in change for change in changes):
                changes += _about(await site.chats.get(me.user.id, chat_id))
            yield _sent(changes, following.last)
            if _only_pieces(events):
                await asyncio.sleep(_BREATH * (1 + _open(request.app.state) / _CROWD))
    except NoSuchChat:
        yield b"event: gone\ndata: {}\n\n"


async def _rendered(changes: list[Change], deferred: DeferredMarkdown) -> list[Change]:
    pages = await deferred.fill([change.get("html", "") for change in changes])
    return [
        {**change, "html": html} if "html" in change else change
        for change, html in zip(changes, pages, strict=True)
    ]


def _about(chat: Chat) -> list[Change]:
    """What the page shows of the chat beside its turns."""
    return [
        {"id": f"e-{chat.id}", "html": part("chat_list.html", "chat_entry", chat, True)},
        {"id": "chat-title", "html": part("chat_list.html", "chat_title", chat)},
    ]


def _only_pieces(events: Sequence[Event]) -> bool:
    return bool(events) and all(event.kind in PIECES for event in events)


def _sent(changes: Sequence[Change], last: int) -> bytes:
    return b"id: %d\nevent: changes\ndata: %s\n\n" % (last, orjson.dumps(changes))
