"""Actions of the forms on a chat's page. Each returns a redirect, or the form with its entered values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias
from urllib.parse import urlencode

from toolyard.agents.chat.chats import UNCHANGED, ChatService, ToolView
from toolyard.agents.chat.errors import ChatRefused
from toolyard.core.audit import AuditRecorder
from toolyard.errors import ToolyardError
from toolyard.registry.errors import NotFound
from toolyard.types.chat import Chat
from toolyard.web.access.dependencies import RequestUser
from toolyard.web.ui.chat.console import ToolConsole, find_tool, list_chat_tools
from toolyard.web.ui.chat.turn_view import QuestionView, ToolCallView
from toolyard.web.ui.chat.view_builder import ChatView
from toolyard.web.ui.components.flash import Flash
from toolyard.web.ui.components.forms import SubmittedForm
from toolyard.web.ui.tools.form import ToolForm
from toolyard.web.ui.tools.schema_form import BadArguments

__all__ = ["ACTIONS", "ActionRedirect", "ChatFormState", "build_form_state"]


@dataclass(frozen=True, slots=True)
class ActionRedirect:
    """The action succeeded; redirect to this chat."""

    chat: Chat
    query: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def href(self) -> str:
        """URL of the end of the chat."""
        query = f"?{urlencode(self.query)}" if self.query else ""
        return f"/ui/chat/{self.chat.id}{query}#end"


@dataclass(frozen=True, slots=True)
class ChatFormState:
    """Entered values of a form that is shown again."""

    text: str = ""
    agent: str = ""
    model: str = ""
    console: ToolConsole | None = None
    question: QuestionView | None = None
    form: ToolForm | None = None
    """Form of ``question``."""
    told: Flash | None = None


ChatAction: TypeAlias = Callable[
    [AuditRecorder, ChatService, RequestUser, Chat | None, SubmittedForm],
    Awaitable[ActionRedirect | ChatFormState],
]


async def _send_message(
    audit: AuditRecorder, chats: ChatService, me: RequestUser, chat: Chat | None, form: SubmittedForm
) -> ActionRedirect | ChatFormState:
    async def start_turn(chat: Chat) -> int:
        return await chats.send(me.user.id, chat.id, form.text("text").replace("\r\n", "\n"))

    return ActionRedirect(await _start_turn_in_chat(audit, chats, me, chat, form, start_turn))


async def _run_tool(
    audit: AuditRecorder, chats: ChatService, me: RequestUser, chat: Chat | None, form: SubmittedForm
) -> ActionRedirect | ChatFormState:
    tool, filled, console = await _read_tool_form(chats, me, chat, form)
    if filled.only_changed:
        return ChatFormState(console=console)
    try:
        arguments = filled.arguments()
    except BadArguments as error:
        return ChatFormState(console=replace(console, form=filled.with_errors(error)))

    async def start_turn(chat: Chat) -> int:
        return await chats.run_tool(me.user.id, chat.id, tool.name, arguments)

    return ActionRedirect(
        await _start_turn_in_chat(audit, chats, me, chat, form, start_turn), {"run": "", "tool": tool.name}
    )


async def _read_tool_form(
    chats: ChatService, me: RequestUser, chat: Chat | None, form: SubmittedForm
) -> tuple[ToolView, ToolForm, ToolConsole]:
    tool = find_tool(await list_chat_tools(chats, me, chat), form.text("tool"))
    filled = ToolForm.from_schema(tool.input_schema).with_submission(form)
    return tool, filled, ToolConsole(None if chat is None else chat.id, tool.name, tool=tool, form=filled)


async def build_form_state(
    chats: ChatService, me: RequestUser, chat: Chat | None, form: SubmittedForm, flash: Flash
) -> ChatFormState:
    """Return the entered values of a failed form, with the message about the failure."""
    console = None
    if form.text("do") == "run":
        with suppress(NotFound):
            console = (await _read_tool_form(chats, me, chat, form))[2]
    return ChatFormState(form.text("text"), form.text("agent"), form.text("model"), console, told=flash)


async def _start_turn_in_chat(
    audit: AuditRecorder,
    chats: ChatService,
    me: RequestUser,
    chat: Chat | None,
    form: SubmittedForm,
    start_turn: Callable[[Chat], Awaitable[int]],
) -> Chat:
    """Start a turn, in a new chat if ``chat`` is None.

    A new chat whose first turn fails to start is deleted.
    """
    audit.set_current_user(me)
    if chat is not None:
        await start_turn(chat)
        return chat
    agent, model = form.text("agent") or None, form.text("model") or None
    chat = await chats.create(me.user.id, agent=agent, model=model)
    try:
        await start_turn(chat)
    except ToolyardError:
        await chats.delete(me.user.id, chat.id)
        raise
    await audit.record_change(me, "chat.create", chat.id, agent=chat.agent, model=chat.model)
    return chat


async def _stop_turn(
    audit: AuditRecorder, chats: ChatService, me: RequestUser, chat: Chat | None, form: SubmittedForm
) -> ActionRedirect | ChatFormState:
    existing = _require_chat(chat)
    await chats.stop(me.user.id, existing.id)
    return ActionRedirect(existing)


async def _retry_turn(
    audit: AuditRecorder, chats: ChatService, me: RequestUser, chat: Chat | None, form: SubmittedForm
) -> ActionRedirect | ChatFormState:
    existing = _require_chat(chat)
    audit.set_current_user(me)
    await chats.retry(me.user.id, existing.id)
    return ActionRedirect(existing)


async def _change_settings(
    audit: AuditRecorder, chats: ChatService, me: RequestUser, chat: Chat | None, form: SubmittedForm
) -> ActionRedirect | ChatFormState:
    existing = _require_chat(chat)
    # A select that is not on the page must not reset the setting.
    agent = form.text("agent") or None if form.is_checked("agent") else UNCHANGED
    model = form.text("model") or None if form.is_checked("model") else UNCHANGED
    return ActionRedirect(await chats.change(me.user.id, existing.id, agent=agent, model=model))


async def _answer_question(
    audit: AuditRecorder, chats: ChatService, me: RequestUser, chat: Chat | None, form: SubmittedForm
) -> ActionRedirect | ChatFormState:
    existing, action = _require_chat(chat), form.text("reply")
    question = await _find_open_question(chats, existing, form.text("question"))
    content = None
    if question.kind == "form" and action not in ("decline", "cancel"):
        filled = ToolForm.from_question(question.schema, question.key).with_submission(form)
        if filled.only_changed:
            return ChatFormState(question=question, form=filled)
        try:
            content = filled.arguments()
        except BadArguments as error:
            return ChatFormState(question=question, form=filled.with_errors(error))
    audit.set_current_user(me)
    await chats.answer_question(me.user.id, existing.id, question.id, action or "cancel", content)
    return ActionRedirect(existing)


async def _find_open_question(chats: ChatService, chat: Chat, question_id: str) -> QuestionView:
    """Return an open question of the last turn.

    Raises ChatRefused if it was answered or its turn has ended.
    """
    # The latest events always begin with the start of a turn, so that this is the whole last turn.
    view = ChatView.from_events(await chats.list_latest_events(chat.owner, chat.id, limit=1))
    for item in view.turns[-1].items if view.turns else ():
        questions = (
            item.questions
            if isinstance(item, ToolCallView)
            else (item,)
            if isinstance(item, QuestionView)
            else ()
        )
        for each in questions:
            if each.id == question_id and each.action is None:
                return each
    raise ChatRefused("this question is no longer open", hint="the call that asked it has ended")


def _require_chat(chat: Chat | None) -> Chat:
    if chat is None:
        raise ChatRefused("the chat has not started yet", hint="send a message first")
    return chat


ACTIONS: Mapping[str, ChatAction] = {
    "send": _send_message,
    "run": _run_tool,
    "stop": _stop_turn,
    "retry": _retry_turn,
    "settings": _change_settings,
    "reply": _answer_question,
}
"""Actions by the value of the form field ``do``."""
