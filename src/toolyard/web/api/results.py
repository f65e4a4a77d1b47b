"""Results of calls in a chat: the full text, and images, sounds and files.

The content is untrusted. It is sent with headers that let a browser display or save it, but never run it.
"""

from __future__ import annotations

import base64
from typing import Annotated

from fastapi import Path, Response

from toolyard.agents.chat.chats import ChatService
from toolyard.clients.call_path import CallPath
from toolyard.registry.errors import NotFound
from toolyard.types.chat import CallResult
from toolyard.web import service_dependencies as deps
from toolyard.web.access.authentication import RequestUser
from toolyard.web.api import base as api

__all__ = ["build_sandbox_headers", "load_full_text", "router"]

router = api.ApiRoutes(prefix="/chats", tags=["chats"])

_TEXT_CONTENT_TYPE = "text/plain; charset=utf-8"
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
"""Types that a browser displays or plays without running anything in them."""
_SUFFIX_BY_DOWNLOAD_TYPE = {"image/svg+xml": ".svg", "application/pdf": ".pdf", "application/json": ".json"}
"""Types that are downloaded when opened, because they may contain scripts. A page may still embed such an
image in an <img> element, where scripts do not run."""


@router.get(
    "/{id}/results/{seq}",
    response_class=Response,
    errors=[404],
    responses={
        200: {"description": "The text.", "content": {"text/plain": {"schema": {"type": "string"}}}},
    },
    summary="Get the full text of a result",
    media_types=["text/plain"],
)
async def get_chat_result(
    call_path: deps.CallPathDep,
    chats: deps.ChatsDep,
    request_user: api.ChatReader,
    id: api.PathId,
    seq: api.EventNumber,
) -> Response:
    """Return the full text of the result with this event number. If a long text is no longer stored, the
    shortened text that the model received is returned."""
    events = await chats.list_events(request_user.user.id, id, after=seq - 1, limit=1)
    result = events[0].data if events and events[0].seq == seq else None
    if not isinstance(result, CallResult):
        raise _build_no_result_error()
    text = await load_full_text(call_path, chats, request_user, id, seq, result)
    return _build_sandboxed_response(
        text.encode(errors="replace"), _TEXT_CONTENT_TYPE, f'inline; filename="result-{seq}.txt"'
    )


@router.get(
    "/{id}/results/{seq}/media/{n}",
    response_class=Response,
    errors=[404],
    responses={
        200: {
            "description": "The bytes.",
            "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}},
        },
    },
    summary="Get an image, sound or file of a result",
    media_types=(),
)
async def get_chat_media(
    chats: deps.ChatsDep,
    request_user: api.ChatReader,
    id: api.PathId,
    seq: api.EventNumber,
    n: Annotated[int, Path(ge=0, le=10_000, description="Index in the list of the event, from 0.")],
) -> Response:
    """Return the content. Images and sounds keep their type; content that could run is a download."""
    result = await chats.get_full_result(request_user.user.id, id, seq)
    if result is None:
        raise _build_no_result_error()
    media = result.media
    if n >= len(media):
        raise NotFound(
            "the result has no media item with this index", hint="the chat event lists the result's media"
        )
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


async def load_full_text(
    call_path: CallPath,
    chats: ChatService,
    request_user: RequestUser,
    chat_id: str,
    seq: int,
    result: CallResult,
) -> str:
    """Return the text of a result in full, as long as it is stored, else the shortened text."""
    result_store = call_path.result_store(request_user.principal)
    stored = await result_store.read(result.handle) if result.handle else None
    if stored is not None and stored.text is not None:
        return stored.text
    full = await chats.get_full_result(request_user.user.id, chat_id, seq)
    return result.text if full is None else full.text


def _build_no_result_error() -> NotFound:
    return NotFound("this event is not a result", hint="use an event of the kind result of this chat")


def _build_sandboxed_response(body: bytes, kind: str, disposition: str) -> Response:
    return Response(body, headers=build_sandbox_headers(disposition), media_type=kind)


def build_sandbox_headers(disposition: str) -> dict[str, str]:
    """Return headers for untrusted content: no scripts, no loading of other resources, no guessed type."""
    return {
        "Content-Disposition": disposition,
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "X-Content-Type-Options": "nosniff",
    }
