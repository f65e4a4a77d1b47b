"""``/prompts`` and ``/resources``: content of servers that can be inserted into messages."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query
from pydantic import BaseModel, Field

from toolyard.agents.chat.chats import ChatService
from toolyard.types.call import Caller
from toolyard.web.access.dependencies import RequestUser
from toolyard.web.api.chat_files.attachments import AttachmentResponse, build_attachment_model
from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    ApiModel,
    ChatReader,
    ChatWriter,
    RequestModel,
    problem_responses,
    require_media_types,
)
from toolyard.web.routes import Routes
from toolyard.web.servers.content import ContentItem, ContentKind, ServerContent, attach_content
from toolyard.web.service_dependencies import ChatsDep, ServerContentDep

__all__ = ["router"]

router = Routes(tags=["chats"], dependencies=[Depends(require_media_types(JSON_CONTENT_TYPE))])

_MAX_LISTED = 1_000
ChatQuery = Annotated[
    str, Query(max_length=64, description="Chat whose agent limits the servers; empty for all your servers.")
]
WordsQuery = Annotated[str, Query(max_length=200, description="Words that a title or description contains.")]


class ContentArgumentResponse(ApiModel):
    """An argument of a prompt, or a variable of a URI template."""

    name: str
    description: str
    required: bool


class ContentItemResponse(ApiModel):
    """A prompt, a resource or a URI template of a server."""

    server: str = Field(description="Id of the server.")
    server_label: str
    name: str = Field(description="Name of the prompt; URI or URI template of the resource.")
    title: str
    description: str
    arguments: list[ContentArgumentResponse]


class ContentItemList(BaseModel):
    """At most 1,000; `more` says how many were left out."""

    items: list[ContentItemResponse]
    more: int


class ContentRequest(RequestModel):
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


@router.get("/prompts", responses=problem_responses(404), summary="List prompts")
async def list_prompts(
    chats: ChatsDep,
    content: ServerContentDep,
    request_user: ChatReader,
    q: WordsQuery = "",
    chat: ChatQuery = "",
) -> ContentItemList:
    """Return the prompts of your servers. Servers that fail or take long are left out."""
    return await _list_items(content, await _get_caller(chats, request_user, chat), "prompt", q)


@router.get("/resources", responses=problem_responses(404), summary="List resources")
async def list_resources(
    chats: ChatsDep,
    content: ServerContentDep,
    request_user: ChatReader,
    q: WordsQuery = "",
    chat: ChatQuery = "",
) -> ContentItemList:
    """Return the resources and URI templates of your servers. Servers that fail or take long are left out."""
    return await _list_items(content, await _get_caller(chats, request_user, chat), "resource", q)


@router.post(
    "/prompts/insert",
    status_code=201,
    responses=problem_responses(404, 409, 413, 422, 502),
    summary="Fetch a prompt for a message",
)
async def insert_prompt(
    chats: ChatsDep, content: ServerContentDep, request_user: ChatWriter, given: ContentRequest
) -> InsertedContentResponse:
    """Fetch a prompt from its server, and store it as attachments: its text, and up to eight pictures. The
    model gets them with the message that they are sent with."""
    return await _insert(chats, content, request_user, "prompt", given)


@router.post(
    "/resources/insert",
    status_code=201,
    responses=problem_responses(404, 409, 413, 422, 502),
    summary="Fetch a resource for a message",
)
async def insert_resource(
    chats: ChatsDep, content: ServerContentDep, request_user: ChatWriter, given: ContentRequest
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
    items = [_build_item_model(each) for each in found[:_MAX_LISTED]]
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
    return InsertedContentResponse(attachments=[build_attachment_model(each) for each in stored])


def _build_item_model(item: ContentItem) -> ContentItemResponse:
    return ContentItemResponse(
        server=item.server,
        server_label=item.server_label,
        name=item.name,
        title=item.title,
        description=item.description,
        arguments=[
            ContentArgumentResponse(name=each.name, description=each.description, required=each.required)
            for each in item.arguments
        ],
    )
