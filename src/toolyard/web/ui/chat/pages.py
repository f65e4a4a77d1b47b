"""``/ui/chat``: chat with a model that uses tools, or run tools without a model."""

from __future__ import annotations

from fastapi import Request, Response
from markupsafe import Markup
from starlette.responses import HTMLResponse

from toolyard.agents.chat.chats import ChatService
from toolyard.core.agents import AgentRoster
from toolyard.core.audit import AuditRecorder
from toolyard.errors import ToolyardError
from toolyard.registry.errors import NotFound
from toolyard.store.repositories.chats import SqlChatStore
from toolyard.types.account import RequestUser
from toolyard.types.chat import Chat
from toolyard.web import service_dependencies as deps
from toolyard.web.problem_details import describe_error
from toolyard.web.rendering.renderer import MarkdownRenderer
from toolyard.web.routes import Routes
from toolyard.web.ui.chat.actions import ACTIONS, ActionRedirect, ChatFormState, build_form_state
from toolyard.web.ui.chat.attachments import FormFiles
from toolyard.web.ui.chat.fragments import render_question
from toolyard.web.ui.chat.page_context import (
    build_chat_settings,
    build_fragment_context,
    load_chat_view,
    render_chat_page,
    render_turns,
)
from toolyard.web.ui.components.flash import Flash, redirect_with_message
from toolyard.web.ui.components.forms import SubmittedForm, read_submitted_form
from toolyard.web.ui.components.render import is_fragment_request, render_macro, render_page

__all__ = ["router"]

router = Routes()


@router.get("/ui/chat")
async def show_new_chat(
    request: Request,
    me: deps.CurrentUser,
    roster: deps.AgentRosterDep,
    chat_store: deps.ChatStoreDep,
    chats: deps.ChatsDep,
    markdown: deps.MarkdownDep,
) -> Response:
    """Show the page of a new chat."""
    return await render_chat_page(request, roster, chat_store, chats, markdown, me, None)


@router.get("/ui/chat/{chat_id}")
async def show_existing_chat(
    request: Request,
    me: deps.CurrentUser,
    chat_id: str,
    roster: deps.AgentRosterDep,
    chat_store: deps.ChatStoreDep,
    chats: deps.ChatsDep,
    markdown: deps.MarkdownDep,
) -> Response:
    """Show the end of a chat."""
    return await render_chat_page(
        request, roster, chat_store, chats, markdown, me, await chats.get(me.user.id, chat_id)
    )


@router.get("/ui/chat/{chat_id}/earlier")
async def show_earlier_turns(
    request: Request,
    me: deps.CurrentUser,
    chat_id: str,
    before: int,
    chats: deps.ChatsDep,
    markdown: deps.MarkdownDep,
) -> Response:
    """Show turns before those of a page."""
    chat = await chats.get(me.user.id, chat_id)
    view, earlier, tree = await load_chat_view(chats, chat, before)
    frame = build_fragment_context(request, me, chat, tree)
    turns = await render_turns(markdown, view.turns, frame)
    return render_page(request, "chat_earlier.html", chat=chat, turns=turns, earlier=earlier)


# Forms.


@router.post("/ui/chat")
async def act_in_new_chat(
    request: Request,
    me: deps.CurrentUser,
    audit: deps.AuditDep,
    roster: deps.AgentRosterDep,
    chat_store: deps.ChatStoreDep,
    chats: deps.ChatsDep,
    markdown: deps.MarkdownDep,
) -> Response:
    """Start a chat."""
    return await _perform_action(request, audit, roster, chat_store, chats, markdown, me, None)


@router.post("/ui/chat/{chat_id}")
async def act_in_chat(
    request: Request,
    me: deps.CurrentUser,
    chat_id: str,
    audit: deps.AuditDep,
    roster: deps.AgentRosterDep,
    chat_store: deps.ChatStoreDep,
    chats: deps.ChatsDep,
    markdown: deps.MarkdownDep,
) -> Response:
    """Perform an action in a chat."""
    return await _perform_action(
        request, audit, roster, chat_store, chats, markdown, me, await chats.get(me.user.id, chat_id)
    )


async def _perform_action(
    request: Request,
    audit: AuditRecorder,
    roster: AgentRoster,
    chat_store: SqlChatStore,
    chats: ChatService,
    markdown: MarkdownRenderer,
    me: RequestUser,
    chat: Chat | None,
) -> Response:
    files = FormFiles(chats.attachments, me.user.id)
    form = await read_submitted_form(request, files.save)
    action = ACTIONS.get(form.text("do").partition(" ")[0])
    if action is None:
        raise NotFound("unknown action", hint="reload the page")
    try:
        if files.error is not None:
            raise files.error
        outcome = await action(audit, chats, me, chat, form)
    except ToolyardError as error:
        return await _render_failure(request, roster, chat_store, chats, markdown, me, chat, form, error)
    if isinstance(outcome, ChatFormState):
        return await _render_form_again(request, roster, chat_store, chats, markdown, me, chat, outcome)
    if not is_fragment_request(request):
        return redirect_with_message(outcome.href)
    return await _respond_to_script(roster, chats, me, outcome, form)


async def _respond_to_script(
    roster: AgentRoster, chats: ChatService, me: RequestUser, redirect: ActionRedirect, form: SubmittedForm
) -> Response:
    """Return the response for the script.

    Effects on the chat arrive over its stream, so that only settings and the message form have content.
    """
    if form.text("do").startswith("edit "):
        return HTMLResponse(render_macro("chat_alternatives.html", "editing", None, ""))
    if form.text("do") != "settings":
        return Response(status_code=204)
    settings = build_chat_settings(
        await roster.list_agents(me.user.id), chats, me.user.principal, redirect.chat
    )
    return HTMLResponse(render_macro("chat_settings.html", "settings", settings))


async def _render_form_again(
    request: Request,
    roster: AgentRoster,
    chat_store: SqlChatStore,
    chats: ChatService,
    markdown: MarkdownRenderer,
    me: RequestUser,
    chat: Chat | None,
    form_state: ChatFormState,
) -> Response:
    if not is_fragment_request(request):
        return await render_chat_page(
            request,
            roster,
            chat_store,
            chats,
            markdown,
            me,
            chat,
            form_state=form_state,
            status=_choose_status(form_state),
        )
    if form_state.console is not None:
        html = render_macro("chat_console.html", "console", form_state.console, me.csrf)
    elif form_state.question is not None:
        frame = build_fragment_context(request, me, chat, form_state=form_state)
        html = render_question(form_state.question, frame)
    elif form_state.told is not None:
        html = render_macro(
            "chat_alternatives.html",
            "changed_meanwhile",
            form_state.told,
            form_state.edited_turn,
            "" if chat is None else chat.id,
        )
    else:
        html = Markup("")
    return HTMLResponse(html, _choose_status(form_state))


def _choose_status(form_state: ChatFormState) -> int:
    if form_state.told is not None:
        return 409
    form = form_state.form if form_state.console is None else form_state.console.form
    return 422 if form is not None and form.errors else 200


async def _render_failure(
    request: Request,
    roster: AgentRoster,
    chat_store: SqlChatStore,
    chats: ChatService,
    markdown: MarkdownRenderer,
    me: RequestUser,
    chat: Chat | None,
    form: SubmittedForm,
    error: ToolyardError,
) -> Response:
    """Show an error with the form, so that nothing that was entered is lost."""
    problem, _ = describe_error(error)
    if is_fragment_request(request):
        html = render_macro(
            "parts.html", "alert", "bad", problem.detail, hint=problem.hint or "", closes=True
        )
        return HTMLResponse(html, problem.status)
    filled = await build_form_state(chats, me, chat, form, Flash(problem.detail, "bad", problem.hint))
    return await render_chat_page(
        request, roster, chat_store, chats, markdown, me, chat, form_state=filled, status=problem.status
    )
