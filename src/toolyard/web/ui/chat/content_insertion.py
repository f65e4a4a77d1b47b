"""Insertion of prompts and resources of servers into a message, and the view of a text attachment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from fastapi import Request, Response
from starlette.responses import HTMLResponse

from toolyard.agents.chat.chats import ChatService
from toolyard.errors import AttachmentRefused, ToolyardError
from toolyard.registry.errors import NotFound
from toolyard.types.account import RequestUser
from toolyard.types.call import Caller
from toolyard.types.chat import Attachment
from toolyard.web import service_dependencies as deps
from toolyard.web.problem_details import describe_error
from toolyard.web.routes import Routes
from toolyard.web.servers.content import ContentItem, ContentKind, attach_content
from toolyard.web.ui.components import forms, responses

__all__ = ["router"]

router = Routes()

_KINDS: Mapping[str, ContentKind] = {"prompt": "prompt", "resource": "resource"}
_MAX_LISTED = 30
_MAX_VALUE_CHARACTERS = 20_000
_ARGUMENT_PREFIX = "argument-"
_MAX_SHOWN_BYTES = 50_000


@dataclass(frozen=True, slots=True)
class InsertList:
    """Prompts and resources to choose from."""

    chat: str
    words: str
    items: Sequence[ContentItem]
    more: int

    def href(self, item: ContentItem) -> str:
        """Return the URL of the form of an item."""
        return f"/ui/chat/insert/form?{urlencode(_build_item_query(self.chat, item))}"


@dataclass(frozen=True, slots=True)
class InsertForm:
    """Form of one prompt or resource, with the entered values."""

    chat: str
    item: ContentItem
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    told: responses.Flash | None = None

    @property
    def complete_href(self) -> str:
        """URL that returns suggestions of the server for an argument."""
        return f"/ui/chat/insert/complete?{urlencode(_build_item_query(self.chat, self.item))}"


def _build_item_query(chat: str, item: ContentItem) -> dict[str, str]:
    return {"chat": chat, "kind": item.kind, "server": item.server, "name": item.name}


@router.get("/ui/chat/insert")
async def list_inserts(
    request: Request,
    me: deps.CurrentUser,
    chats: deps.ChatsDep,
    content: deps.ServerContentDep,
    kind: str = "",
    q: str = "",
    chat: str = "",
) -> Response:
    """List the prompts or resources that contain some words, or both."""
    caller, words = await _get_caller(chats, me, chat), q[:200]
    kinds: Sequence[ContentKind] = [_KINDS[kind]] if kind in _KINDS else list(_KINDS.values())
    found = [item for each in kinds for item in await content.list(caller, each, words)]
    page = InsertList(chat, words, found[:_MAX_LISTED], max(len(found) - _MAX_LISTED, 0))
    return await responses.render_large_page(request, "chat_insert.html", page=page)


@router.get("/ui/chat/insert/form")
async def show_insert_form(
    request: Request,
    me: deps.CurrentUser,
    chats: deps.ChatsDep,
    content: deps.ServerContentDep,
    kind: str,
    server: str,
    name: str,
    chat: str = "",
) -> Response:
    """Show the arguments of a prompt or resource."""
    item = await content.find(await _get_caller(chats, me, chat), _parse_kind(kind), server, name)
    return responses.render_page(request, "chat_insert_form.html", page=InsertForm(chat, item))


@router.get("/ui/chat/insert/complete")
async def complete_argument(
    request: Request,
    me: deps.CurrentUser,
    chats: deps.ChatsDep,
    content: deps.ServerContentDep,
    kind: str,
    server: str,
    name: str,
    argument: str,
    chat: str = "",
) -> Response:
    """Return the server's suggestions for an argument, given the values of the others."""
    caller = await _get_caller(chats, me, chat)
    item = await content.find(caller, _parse_kind(kind), server, name)
    values = _read_values(item, request.query_params)
    value = values.pop(argument, "")
    context = {key: each for key, each in values.items() if each}
    suggestions = await content.complete(caller, item, argument[:200], value, context)
    return HTMLResponse(responses.get_macros("chat_attachments.html").suggestions(suggestions))


@router.post("/ui/chat/insert")
async def insert_content(
    request: Request, me: deps.CurrentUser, chats: deps.ChatsDep, content: deps.ServerContentDep
) -> Response:
    """Fetch a prompt or resource, and add it to the message as an attachment; pictures of a prompt, too."""
    form = await forms.read_form(request)
    chat = form.text("chat")
    caller, kind = await _get_caller(chats, me, chat), _parse_kind(form.text("kind"))
    item = await content.find(caller, kind, form.text("server"), form.text("name"))
    values = _read_values(item, {name: form.text(name) for name in form.names()})
    try:
        fetched = await content.fetch(caller, item, {key: each for key, each in values.items() if each})
        attachments = await attach_content(chats.attachments, me.user.id, item, fetched)
    except ToolyardError as error:
        problem, _ = describe_error(error)
        told = responses.Flash(problem.detail, "bad", problem.hint)
        page = InsertForm(chat, item, values, told)
        return responses.render_page(request, "chat_insert_form.html", status=problem.status, page=page)
    if responses.is_fragment_request(request):
        return HTMLResponse(
            "".join(
                responses.get_macros("chat_attachments.html").pending_attachment(each) for each in attachments
            )
        )
    path = f"/ui/chat/{chat}" if chat else "/ui/chat"
    return responses.redirect_to(f"{path}?{urlencode([('attachment', each.id) for each in attachments])}#end")


@router.get("/ui/chat/attachments/{id}")
async def show_attachment(request: Request, me: deps.CurrentUser, id: str, chats: deps.ChatsDep) -> Response:
    """Show the beginning of an attached text."""
    try:
        attachment = await chats.attachments.get(me.user.id, id)
    except AttachmentRefused as error:
        raise NotFound(error.cause, hint="its chat may have been deleted") from None
    text = "" if attachment.is_picture else await _read_beginning(chats, attachment)
    return await responses.render_large_page(
        request, "chat_attachment.html", attachment=attachment, text=text
    )


async def _read_beginning(chats: ChatService, attachment: Attachment) -> str:
    beginning = b""
    async for chunk in chats.attachments.read(attachment):
        beginning += chunk
        if len(beginning) >= _MAX_SHOWN_BYTES:
            break
    return beginning[:_MAX_SHOWN_BYTES].decode(errors="ignore")


async def _get_caller(chats: ChatService, me: RequestUser, chat_id: str) -> Caller:
    return await chats.get_caller(me.user.id, chat_id or None)


def _parse_kind(text: str) -> ContentKind:
    if text not in _KINDS:
        raise NotFound("neither a prompt nor a resource", hint="reload the page")
    return _KINDS[text]


def _read_values(item: ContentItem, fields: Mapping[str, str]) -> dict[str, str]:
    """Return the values of an item's arguments."""
    return {
        each.name: fields.get(f"{_ARGUMENT_PREFIX}{number}", "")[:_MAX_VALUE_CHARACTERS]
        for number, each in enumerate(item.arguments)
    }
