"""What calls in a chat came to: the whole text, and pictures, sounds and files.

All of it is somebody else's: it is sent so that a browser shows it or saves it, and runs nothing of it.
"""

from __future__ import annotations

import base64
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response

from toolyard.agents.chat.result_event import FullResult
from toolyard.registry.errors import NotFound
from toolyard.types.chat import ChatEvent, Kind
from toolyard.web.access.dependencies import RequestUser
from toolyard.web.api.chat_dependencies import ChatReader, EventNumber
from toolyard.web.api.dependencies import AppServices, PathId, problem_responses, require_media_types
from toolyard.web.services import Services

__all__ = ["SANDBOX_POLICY", "load_full_text", "router"]

router = APIRouter(prefix="/chats", tags=["chats"])

_TEXT_CONTENT_TYPE = "text/plain; charset=utf-8"
SANDBOX_POLICY = "sandbox; default-src 'none'"
"""The policy for what somebody else made: nothing of it runs, and it loads nothing."""
_SUFFIX_BY_INLINE_TYPE = {
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
_SUFFIX_BY_DOWNLOAD_TYPE = {"image/svg+xml": ".svg", "application/pdf": ".pdf", "application/json": ".json"}
"""Types that keep their name, but are for saving when somebody opens them. A page may show such a picture as
a picture, where nothing in it runs."""


@router.get(
    "/{id}/results/{seq}",
    response_class=Response,
    responses={
        **problem_responses(404),
        200: {"description": "The text.", "content": {"text/plain": {"schema": {"type": "string"}}}},
    },
    summary="The whole text of a result",
    dependencies=[Depends(require_media_types("text/plain"))],
)
async def get_chat_result(site: AppServices, visitor: ChatReader, id: PathId, seq: EventNumber) -> Response:
    """What the call came to that ended with this event, to its last character; of a text that was too long
    for a model, once it is no longer kept, what the model got."""
    found = await site.chats.list_events(visitor.user.id, id, after=seq - 1, limit=1)
    if not found or found[0].seq != seq or found[0].kind is not Kind.RESULT:
        raise _build_no_result_error()
    text = await load_full_text(site, visitor, found[0])
    return _build_sandboxed_response(
        text.encode(errors="replace"), _TEXT_CONTENT_TYPE, f'inline; filename="result-{seq}.txt"'
    )


@router.get(
    "/{id}/results/{seq}/media/{n}",
    response_class=Response,
    responses={
        **problem_responses(404),
        200: {
            "description": "The bytes.",
            "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}},
        },
    },
    summary="A picture, sound or file of a result",
)
async def get_chat_media(
    site: AppServices,
    visitor: ChatReader,
    id: PathId,
    seq: EventNumber,
    n: Annotated[int, Path(ge=0, le=10_000, description="Its place in the event's list, from 0.")],
) -> Response:
    """The bytes. Pictures and sounds have their own type; whatever a browser might run is for saving only."""
    media = (await _load_stored_result(site, visitor, id, seq)).media
    if n >= len(media):
        raise NotFound("the result has no such picture, sound or file", hint="its event lists what it has")
    mime = media[n].mime.partition(";")[0].strip().lower()
    name = f"result-{seq}-{n}"
    data = base64.b64decode(media[n].data)
    if mime in _SUFFIX_BY_INLINE_TYPE:
        return _build_sandboxed_response(
            data, mime, f'inline; filename="{name}{_SUFFIX_BY_INLINE_TYPE[mime]}"'
        )
    suffix = _SUFFIX_BY_DOWNLOAD_TYPE.get(mime, ".bin")
    kind = mime if mime in _SUFFIX_BY_DOWNLOAD_TYPE else "application/octet-stream"
    return _build_sandboxed_response(data, kind, f'attachment; filename="{name}{suffix}"')


async def load_full_text(site: Services, visitor: RequestUser, event: ChatEvent) -> str:
    """What the call came to that ended with this event: what the tool said, also where that was more than a
    model gets at once, as long as it is kept."""
    handle, text = event.body.get("handle"), str(event.body.get("text", ""))
    stored = await site.parts.call_path.result_store(visitor.principal).read(handle) if handle else None
    if stored is not None and stored.text is not None:
        return stored.text
    kept = await site.chats.result(visitor.user.id, event.chat_id, event.seq) if event.has_kept else None
    return text if kept is None else kept.text


async def _load_stored_result(site: Services, visitor: RequestUser, chat_id: str, seq: int) -> FullResult:
    kept = await site.chats.result(visitor.user.id, chat_id, seq)
    if kept is None:
        raise _build_no_result_error()
    return kept


def _build_no_result_error() -> NotFound:
    return NotFound("no result ended with this event", hint="the chat's events of the kind result do")


def _build_sandboxed_response(body: bytes, kind: str, disposition: str) -> Response:
    headers = {
        "Content-Disposition": disposition,
        "Content-Security-Policy": SANDBOX_POLICY,
        "X-Content-Type-Options": "nosniff",
    }
    return Response(body, headers=headers, media_type=kind)
