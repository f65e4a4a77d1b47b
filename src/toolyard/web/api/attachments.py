"""``/attachments``, ``/prompts``, ``/resources``: files, and content of servers, to send with a message."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from toolyard.agents.chat.chats import ChatService
from toolyard.errors import AttachmentRefused
from toolyard.registry.errors import NotFound
from toolyard.types.call import Caller
from toolyard.types.chat import Attachment
from toolyard.web import service_dependencies as deps
from toolyard.web.access.authentication import RequestUser
from toolyard.web.api import base as api
from toolyard.web.api.results import build_sandbox_headers
from toolyard.web.middleware.request_body import UPLOAD_PATH
from toolyard.web.servers.content import ContentKind, ServerContent, attach_content

__all__ = ["AttachmentResponse", "router"]


router = api.ApiRoutes(tags=["chats"])

_BINARY_SCHEMA = {"schema": {"type": "string", "format": "binary"}}
_UPLOAD_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/octet-stream": _BINARY_SCHEMA}}
}


class AttachmentResponse(api.ApiModel):
    """A stored file."""

    id: str = Field(description="Id to send with a message.")
    name: str = Field(description="File name, without folders and invisible characters.")
    mime: str = Field(description="Type, determined by the content.")
    size: int = Field(description="Size in bytes.")
    url: str = Field(description="Path of the content.")


@router.post(
    "/attachments",
    media_types=(),
    status_code=201,
    errors=[409, 413, 415],
    summary="Upload an attachment",
    openapi_extra=_UPLOAD_BODY,
)
async def upload_attachment(
    chats: deps.ChatsDep,
    request_user: api.ChatWriter,
    request: Request,
    response: Response,
    name: Annotated[str, Query(max_length=1_000, description="File name.")] = "",
) -> AttachmentResponse:
    """Store a picture (PNG, JPEG, GIF, WebP) or a text file in UTF-8, to be sent with a message. If it is not
    sent, it is deleted after a day."""
    # The HTTP server has checked the header.
    declared_size = int(request.headers.get("content-length", "0"))
    attachment = await chats.attachments.upload(
        request_user.user.id, name, request.stream(), declared_size=declared_size
    )
    uploaded = _build_attachment_model(attachment)
    response.headers["Location"] = uploaded.url
    return uploaded


@router.get(
    "/attachments/{id}",
    media_types=(),
    response_class=StreamingResponse,
    errors=[404],
    responses={
        200: {"description": "The content.", "content": {"*/*": _BINARY_SCHEMA}},
    },
    summary="Download an attachment",
)
async def get_attachment(
    chats: deps.ChatsDep, request_user: api.ChatReader, id: api.PathId
) -> StreamingResponse:
    """Return the content of one of your attachments, as a download."""
    try:
        attachment = await chats.attachments.get(request_user.user.id, id)
    except AttachmentRefused:
        raise _build_not_found_error() from None
    headers = build_sandbox_headers(_build_disposition(attachment))
    headers["Content-Length"] = str(attachment.size)
    mime = attachment.mime if attachment.is_picture else f"{attachment.mime}; charset=utf-8"
    return StreamingResponse(chats.attachments.read(attachment), headers=headers, media_type=mime)


@router.delete(
    "/attachments/{id}", media_types=(), status_code=204, errors=[404], summary="Delete an unsent attachment"
)
async def delete_attachment(chats: deps.ChatsDep, request_user: api.ChatWriter, id: api.PathId) -> None:
    """Delete an attachment that was not sent. One that was sent is deleted with its chat."""
    if not await chats.attachments.delete_unsent(request_user.user.id, id):
        raise _build_not_found_error()


def _build_attachment_model(attachment: Attachment) -> AttachmentResponse:
    return AttachmentResponse.of(attachment, url=f"{UPLOAD_PATH}/{attachment.id}")


def _build_not_found_error() -> NotFound:
    return NotFound("attachment not found", hint="it may have expired, or its chat may have been deleted")


def _build_disposition(attachment: Attachment) -> str:
    ascii_name = attachment.name.encode("ascii", "replace").decode().replace('"', "'").replace("\\", "_")
    return f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(attachment.name, safe='')}"


# Prompts and resources of servers.

_MAX_LISTED = 1_000
ChatQuery = Annotated[
    str,
    Query(max_length=64, description="Chat id: lists only servers of its agent. Empty for all your servers."),
]
WordsQuery = Annotated[str, Query(max_length=200, description="Words that a title or description contains.")]


class ContentArgumentResponse(api.ApiModel):
    """An argument of a prompt, or a variable of a URI template."""

    name: str
    description: str
    required: bool


class ContentItemResponse(api.ApiModel):
    """A prompt, a resource or a URI template of a server."""

    server: str = Field(description="Id of the server.")
    server_label: str
    name: str = Field(description="Name of the prompt; URI or URI template of the resource.")
    title: str
    description: str
    arguments: list[ContentArgumentResponse]


class ContentItemList(api.ItemList[ContentItemResponse]):
    """At most 1,000; `more` says how many were left out."""

    more: int


class ContentRequest(api.RequestModel):
    """A prompt or resource, with the values of its arguments."""

    server: str = Field(max_length=200)
    name: str = Field(max_length=2_000)
    arguments: dict[str, Annotated[str, Field(max_length=20_000)]] = Field(
        default_factory=dict, max_length=20
    )
    chat: str = Field(default="", max_length=64, description="Chat whose agent limits the servers.")


class InsertedContentResponse(BaseModel):
    """Attachments with the content, to be sent with a message: first the text, then pictures of a prompt."""

    attachments: list[AttachmentResponse]


@router.get("/prompts", errors=[404], summary="List prompts")
async def list_prompts(
    chats: deps.ChatsDep,
    content: deps.ServerContentDep,
    request_user: api.ChatReader,
    q: WordsQuery = "",
    chat: ChatQuery = "",
) -> ContentItemList:
    """Return the prompts of your servers. Servers that fail or take long are left out."""
    return await _list_items(content, await _get_caller(chats, request_user, chat), "prompt", q)


@router.get("/resources", errors=[404], summary="List resources")
async def list_resources(
    chats: deps.ChatsDep,
    content: deps.ServerContentDep,
    request_user: api.ChatReader,
    q: WordsQuery = "",
    chat: ChatQuery = "",
) -> ContentItemList:
    """Return the resources and URI templates of your servers. Servers that fail or take long are left out."""
    return await _list_items(content, await _get_caller(chats, request_user, chat), "resource", q)


@router.post(
    "/prompts/insert",
    status_code=201,
    errors=[404, 409, 413, 422, 502],
    summary="Fetch a prompt for a message",
)
async def insert_prompt(
    chats: deps.ChatsDep, content: deps.ServerContentDep, request_user: api.ChatWriter, given: ContentRequest
) -> InsertedContentResponse:
    """Fetch a prompt from its server, and store it as attachments: its text, and up to eight pictures. The
    model gets them with the message that they are sent with."""
    return await _insert(chats, content, request_user, "prompt", given)


@router.post(
    "/resources/insert",
    status_code=201,
    errors=[404, 409, 413, 422, 502],
    summary="Fetch a resource for a message",
)
async def insert_resource(
    chats: deps.ChatsDep, content: deps.ServerContentDep, request_user: api.ChatWriter, given: ContentRequest
) -> InsertedContentResponse:
    """Fetch a resource from its server, and store it as an attachment. The model reads it in parts with
    `result_read`, or sees it if it is a picture."""
    return await _insert(chats, content, request_user, "resource", given)


async def _get_caller(chats: ChatService, request_user: RequestUser, chat_id: str) -> Caller:
    return await chats.get_caller(request_user.user.id, chat_id or None)


async def _list_items(
    content: ServerContent, caller: Caller, kind: ContentKind, words: str
) -> ContentItemList:
    found = await content.list(caller, kind, words)
    items = [ContentItemResponse.of(each) for each in found[:_MAX_LISTED]]
    return ContentItemList(items=items, more=len(found) - len(items))


async def _insert(
    chats: ChatService,
    content: ServerContent,
    request_user: RequestUser,
    kind: ContentKind,
    given: ContentRequest,
) -> InsertedContentResponse:
    caller = await _get_caller(chats, request_user, given.chat)
    item = await content.find(caller, kind, given.server, given.name)
    fetched = await content.fetch(caller, item, given.arguments)
    stored = await attach_content(chats.attachments, request_user.user.id, item, fetched)
    return InsertedContentResponse(attachments=[_build_attachment_model(each) for each in stored])
