"""``/ui/chat``: chat with a model that uses tools, or run tools without a model."""

from __future__ import annotations

from dataclasses import replace

from fastapi import Request, Response
from markupsafe import Markup
from starlette.responses import HTMLResponse

from toolyard.errors import ToolyardError
from toolyard.types.chat import Chat
from toolyard.web import service_dependencies as deps
from toolyard.web.problem_details import describe_error
from toolyard.web.routes import Routes
from toolyard.web.ui.chat.actions import ChatForm, ChatFormState, FormFiles
from toolyard.web.ui.chat.fragments import render_question
from toolyard.web.ui.chat.page_context import ChatPages, ChatPagesDep
from toolyard.web.ui.components import forms, responses

__all__ = ["router"]

router = Routes()


@router.get("/ui/chat")
async def show_new_chat(pages: ChatPagesDep) -> Response:
    """Show the page of a new chat."""
    return await pages.render(None)


@router.get("/ui/chat/{chat_id}")
async def show_existing_chat(me: deps.CurrentUser, chat_id: str, pages: ChatPagesDep) -> Response:
    """Show the end of a chat."""
    return await pages.render(await pages.chats.get(me.user.id, chat_id))


@router.get("/ui/chat/{chat_id}/earlier")
async def show_earlier_turns(
    request: Request, me: deps.CurrentUser, chat_id: str, before: int, pages: ChatPagesDep
) -> Response:
    """Show turns before those of a page."""
    chat = await pages.chats.get(me.user.id, chat_id)
    view, earlier, tree = await pages.load_view(chat, before)
    turns = await pages.render_turns(view.turns, pages.build_frame(chat, tree))
    return responses.render_page(request, "chat_earlier.html", chat=chat, turns=turns, earlier=earlier)


# Forms.


@router.post("/ui/chat")
async def act_in_new_chat(pages: ChatPagesDep) -> Response:
    """Start a chat."""
    return await _perform_action(pages, None)


@router.post("/ui/chat/{chat_id}")
async def act_in_chat(me: deps.CurrentUser, chat_id: str, pages: ChatPagesDep) -> Response:
    """Perform an action in a chat."""
    return await _perform_action(pages, await pages.chats.get(me.user.id, chat_id))


async def _perform_action(pages: ChatPages, chat: Chat | None) -> Response:
    request, chats, me = pages.request, pages.chats, pages.me
    files = FormFiles(chats.attachments, me.user.id)
    form = ChatForm(pages.audit, chats, me, chat, await forms.read_form(request, files.save))
    wanted = form.form.text("do")
    action = form.find_action(wanted)
    try:
        if files.error is not None:
            raise files.error
        outcome = await action(form)
    except ToolyardError as error:
        problem, _ = describe_error(error)
        if responses.is_fragment_request(request):
            return responses.render_alert(problem)
        # With the form, so that nothing that was entered is lost.
        state = await form.build_state(responses.Flash(problem.detail, "bad", problem.hint))
        return await pages.render(chat, state, problem.status)
    if isinstance(outcome, ChatFormState):
        return await _render_form_again(pages, chat, outcome)
    if not responses.is_fragment_request(request):
        return responses.redirect_to(outcome.href)
    # For the script: effects on the chat arrive over its stream, so only settings and the message form
    # have content.
    if wanted.startswith("edit "):
        return HTMLResponse(responses.get_macros("chat_alternatives.html").editing(None))
    return await pages.render_settings(outcome.chat) if wanted == "settings" else Response(status_code=204)


async def _render_form_again(pages: ChatPages, chat: Chat | None, state: ChatFormState) -> Response:
    status = _choose_status(state)
    if state.console is not None:
        state = replace(state, console=replace(state.console, find_icon_path=pages.find_icon_path))
    if not responses.is_fragment_request(pages.request):
        return await pages.render(chat, state, status)
    html = Markup("")
    if state.console is not None:
        html = responses.get_macros("chat_console.html").console(state.console, pages.me.csrf)
    elif state.question is not None:
        html = render_question(state.question, pages.build_frame(chat, form_state=state))
    elif state.told is not None:
        chat_id = "" if chat is None else chat.id
        html = responses.get_macros("chat_alternatives.html").changed_meanwhile(
            state.told,
            state.edited_turn,
            state.edited_parent,
            chat_id,
            state.edited_attachments,
        )
    return HTMLResponse(html, status)


def _choose_status(state: ChatFormState) -> int:
    if state.told is not None:
        return 409
    form = state.form if state.console is None else state.console.form
    return 422 if form is not None and form.errors else 200
