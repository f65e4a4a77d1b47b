"""``/ui/chat``: talk to a model that uses tools, or run tools by hand."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from toolyard.errors import ToolyardError
from toolyard.registry.errors import NotFound
from toolyard.types.chat import Chat
from toolyard.web.access.dependencies import Visitor, visitor
from toolyard.web.problem_details import describe
from toolyard.web.services import Site
from toolyard.web.ui.chat.actions import DEEDS, Filled, Went, filled_in
from toolyard.web.ui.chat.fragments import question_part
from toolyard.web.ui.chat.page_context import chat_view, frame_of, settings_of, show_chat, turns_html
from toolyard.web.ui.components.flash import Flash, go
from toolyard.web.ui.components.forms import Posted, posted
from toolyard.web.ui.components.render import part, render, wants_part

__all__ = ["router"]

router = APIRouter()

Me = Annotated[Visitor, Depends(visitor)]


@router.get("/ui/chat")
async def show_new(request: Request, me: Me) -> Response:
    """A chat that is yet to begin, and those that there are."""
    return await show_chat(request, me, None)


@router.get("/ui/chat/{chat_id}")
async def show_one(request: Request, me: Me, chat_id: str) -> Response:
    """One chat, at its end."""
    site: Site = request.app.state.site
    return await show_chat(request, me, await site.chats.get(me.user.id, chat_id))


@router.get("/ui/chat/{chat_id}/earlier")
async def show_earlier(request: Request, me: Me, chat_id: str, before: int) -> Response:
    """Turns before those that a page shows."""
    site: Site = request.app.state.site
    chat = await site.chats.get(me.user.id, chat_id)
    view, earlier = await chat_view(site, chat, before)
    frame = frame_of(me, chat)
    turns = await turns_html(site, view.turns, frame)
    return render(request, "chat_earlier.html", chat=chat, turns=turns, earlier=earlier)


# What its forms do.


@router.post("/ui/chat")
async def act_in_new(request: Request, me: Me) -> Response:
    """Begin a chat."""
    return await _act(request, me, None)


@router.post("/ui/chat/{chat_id}")
async def act_in_one(request: Request, me: Me, chat_id: str) -> Response:
    """Do something in a chat."""
    site: Site = request.app.state.site
    return await _act(request, me, await site.chats.get(me.user.id, chat_id))


async def _act(request: Request, me: Visitor, chat: Chat | None) -> Response:
    site: Site = request.app.state.site
    form = await posted(request)
    deed = DEEDS.get(form.text("do"))
    if deed is None:
        raise NotFound("this form does nothing here", hint="open the page again")
    try:
        went = await deed(site, me, chat, form)
    except ToolyardError as error:
        return await _failed(request, me, chat, form, error)
    if isinstance(went, Filled):
        return await _again(request, me, chat, went)
    if not wants_part(request):
        return go(went.href)
    return _quietly(site, me, went, form)


def _quietly(site: Site, me: Visitor, went: Went, form: Posted) -> Response:
    """For the script: what happens comes over the stream."""
    if form.text("do") != "settings":
        return Response(status_code=204)
    settings = settings_of(site, went.chat)
    return HTMLResponse(part("chat_settings.html", "settings", settings))


async def _again(request: Request, me: Visitor, chat: Chat | None, filled: Filled) -> Response:
    if not wants_part(request):
        return await show_chat(request, me, chat, filled=filled, status=_status(filled))
    if filled.console is not None:
        html = part("chat_console.html", "console", filled.console, me.csrf)
    elif filled.question is not None:
        html = question_part(filled.question, frame_of(me, chat, filled))
    else:
        html = Markup("")
    return HTMLResponse(html, _status(filled))


def _status(filled: Filled) -> int:
    form = filled.form if filled.console is None else filled.console.form
    return 422 if form is not None and form.errors else 200


async def _failed(
    request: Request, me: Visitor, chat: Chat | None, form: Posted, error: ToolyardError
) -> Response:
    """What could not be done is told where it was wanted, and nothing that was written is lost."""
    problem, _ = describe(error)
    if wants_part(request):
        html = part("parts.html", "alert", "bad", problem.detail, hint=problem.hint or "", closes=True)
        return HTMLResponse(html, problem.status)
    site: Site = request.app.state.site
    filled = await filled_in(site, me, chat, form, Flash(problem.detail, "bad", problem.hint))
    return await show_chat(request, me, chat, filled=filled, status=problem.status)
