"""What calls in a chat came to: the whole text, and pictures, sounds and files.

All of it is somebody else's: it is sent so that a browser shows it or saves it, and runs nothing of it.
"""

from __future__ import annotations

import base64
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response

from toolyard.agents.chat.result_event import Kept
from toolyard.registry.errors import NotFound
from toolyard.types.chat import Event, Kind
from toolyard.web.access.dependencies import Visitor
from toolyard.web.api.chat_dependencies import Looking, Seq
from toolyard.web.api.dependencies import Id, Served, problems, produces
from toolyard.web.services import Site

__all__ = ["INERT", "router", "whole_text"]

router = APIRouter(prefix="/chats", tags=["chats"])

_TEXT = "text/plain; charset=utf-8"
INERT = "sandbox; default-src 'none'"
"""The policy for what somebody else made: nothing of it runs, and it loads nothing."""
_SHOWN = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/avif": ".avif",
    "image/bmp": ".bmp",
    "audio/mpeg": ".mp3",
    "audio/mp4": ".m4a",
    "audio/wav": ".wav",
    "audio/x-wav": ".wav",
    "audio/ogg": ".ogg",
    "audio/webm": ".weba",
    "audio/flac": ".flac",
    "audio/aac": ".aac",
}
"""Types that a browser shows or plays, and nothing in them runs."""
_SAVED = {"image/svg+xml": ".svg", "application/pdf": ".pdf", "application/json": ".json"}
"""Types that keep their name, but are for saving when somebody opens them. A page may show such a picture as
a picture, where nothing in it runs."""


@router.get(
    "/{id}/results/{seq}",
    response_class=Response,
    responses={
        **problems(404),
        200: {"description": "The text.", "content": {"text/plain": {"schema": {"type": "string"}}}},
    },
    summary="The whole text of a result",
    dependencies=[Depends(produces("text/plain"))],
)
async def get_chat_result(site: Served, visitor: Looking, id: Id, seq: Seq) -> Response:
    """What the call came to that ended with this event, to its last character; of a text that was too long
    for a model, once it is no longer kept, what the model got."""
    found = await site.chats.events(visitor.user.id, id, after=seq - 1, limit=1)
    if not found or found[0].seq != seq or found[0].kind is not Kind.RESULT:
        raise _no_result()
    text = await whole_text(site, visitor, found[0])
    return _sent(text.encode(errors="replace"), _TEXT, f'inline; filename="result-{seq}.txt"')


@router.get(
    "/{id}/results/{seq}/media/{n}",
    response_class=Response,
    responses={
        **problems(404),
        200: {
            "description": "The bytes.",
            "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}},
        },
    },
    summary="A picture, sound or file of a result",
)
async def get_chat_media(
    site: Served,
    visitor: Looking,
    id: Id,
    seq: Seq,
    n: Annotated[int, Path(ge=0, le=10_000, description="Its place in the event's list, from 0.")],
) -> Response:
    """The bytes. Pictures and sounds have their own type; whatever a browser might run is for saving only."""
    media = (await _kept(site, visitor, id, seq)).media
    if n >= len(media):
        raise NotFound("the result has no such picture, sound or file", hint="its event lists what it has")
    mime = media[n].mime.partition(";")[0].strip().lower()
    name = f"result-{seq}-{n}"
    data = base64.b64decode(media[n].data)
    if mime in _SHOWN:
        return _sent(data, mime, f'inline; filename="{name}{_SHOWN[mime]}"')
    suffix = _SAVED.get(mime, ".bin")
    kind = mime if mime in _SAVED else "application/octet-stream"
    return _sent(data, kind, f'attachment; filename="{name}{suffix}"')


async def whole_text(site: Site, visitor: Visitor, event: Event) -> str:
    """What the call came to that ended with this event: what the tool said, also where that was more than a
    model gets at once, as long as it is kept."""
    handle, text = event.body.get("handle"), str(event.body.get("text", ""))
    stored = await site.parts.calls.handles(visitor.principal).read(handle) if handle else None
    if stored is not None and stored.text is not None:
        return stored.text
    kept = await site.chats.result(visitor.user.id, event.chat_id, event.seq) if event.has_kept else None
    return text if kept is None else kept.text


async def _kept(site: Site, visitor: Visitor, chat_id: str, seq: int) -> Kept:
    kept = await site.chats.result(visitor.user.id, chat_id, seq)
    if kept is None:
        raise _no_result()
    return kept


def _no_result() -> NotFound:
    return NotFound("no result ended with this event", hint="the chat's events of the kind result do")


def _sent(body: bytes, kind: str, disposition: str) -> Response:
    headers = {
        "Content-Disposition": disposition,
        "Content-Security-Policy": INERT,
        "X-Content-Type-Options": "nosniff",
    }
    return Response(body, headers=headers, media_type=kind)
