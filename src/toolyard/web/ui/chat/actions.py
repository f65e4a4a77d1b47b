"""Actions of the forms on a chat's page. Each returns a redirect, or the form with its entered values."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias
from urllib.parse import urlencode

from toolyard.agents.chat.chats import UNCHANGED, ChatService, OpenChat, ToolView
from toolyard.agents.chat.errors import ChatChanged, ChatRefused
from toolyard.agents.chat.turn_snapshot import ChatSnapshot, QuestionSnapshot
from toolyard.core.audit import AuditRecorder
from toolyard.registry.errors import NotFound
from toolyard.types.account import RequestUser
from toolyard.types.chat import Attachment, Chat
from toolyard.web.ui.chat.attachments import read_attachment_ids
from toolyard.web.ui.chat.console import ToolConsole, find_tool
from toolyard.web.ui.chat.fragments import question_form
from toolyard.web.ui.components.flash import Flash
from toolyard.web.ui.components.formatting import one_line
from toolyard.web.ui.components.forms import SubmittedForm
from toolyard.web.ui.tools.form import ToolForm
from toolyard.web.ui.tools.schema_form import BadArguments

__all__ = ["ACTIONS", "ActionRedirect", "ChatFormState", "build_form_state"]


@dataclass(frozen=True, slots=True)
class ActionRedirect:
    """The action succeeded; redirect to this chat."""

    chat: Chat
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    anchor: str = "end"
    """Id of the element to show; the end of the chat by default."""

    @property
    def href(self) -> str:
        """URL of the chat."""
        query = f"?{urlencode(self.query)}" if self.query else ""
        return f"/ui/chat/{self.chat.id}{query}#{self.anchor}"


@dataclass(frozen=True, slots=True)
class ChatFormState:
    """Entered values of a form that is shown again."""

    text: str = ""
    agent: str = ""
    model: str = ""
    console: ToolConsole | None = None
    question: QuestionSnapshot | None = None
    form: ToolForm | None = None
    """Form of ``question``."""
    told: Flash | None = None
    attachments: Sequence[Attachment] = ()
    edited_turn: int | None = None
    """Turn whose message the text replaces."""


ChatAction: TypeAlias = Callable[
    [AuditRecorder, ChatService, RequestUser, Chat | None, SubmittedForm],
    Awaitable[ActionRedirect | ChatFormState],
]


async def _send_message(
    audit: AuditRecorder, chats: ChatService, me: RequestUser, chat: Chat | None, form: SubmittedForm
) -> ActionRedirect | ChatFormState:
    audit.set_current_user(me)
    # A button with a starter prompt sends it in place of the text.
    text = (form.text("starter") or form.text("text")).replace("\r\n", "\n")
    attachment_ids = read_attachment_ids(form)
    async with _open_chat(chats, me, chat, form) as opened:
        await chats.send(me.user.id, opened, text, attachment_ids)
    return ActionRedirect(chat or await _record_new_chat(audit, me, opened))


async def _run_tool(
    audit: AuditRecorder, chats: ChatService, me: RequestUser, chat: Chat | None, form: SubmittedForm
) -> ActionRedirect | ChatFormState:
    audit.set_current_user(me)
    async with _open_chat(chats, me, chat, form) as opened:
        tool, filled = await _read_tool_form(chats, me, opened, form)
        console = ToolConsole(None if chat is None else chat.id, tool.name, tool=tool, form=filled)
        if filled.only_changed:
            return ChatFormState(console=console)
        try:
            arguments = filled.arguments()
        except BadArguments as error:
            return ChatFormState(console=replace(console, form=filled.with_errors(error)))
        await chats.run_tool(me.user.id, opened, tool.name, arguments)
    return ActionRedirect(
        chat or await _record_new_chat(audit, me, opened), {"run": "", "tool": form.text("tool")}
    )


async def _read_tool_form(
    chats: ChatService, me: RequestUser, chat: OpenChat | None, form: SubmittedForm
) -> tuple[ToolView, ToolForm]:
    wanted = form.text("tool")
    tool = find_tool(await chats.list_tools(me.user.id, chat, only=wanted, for_person=True), wanted)
    return tool, ToolForm.from_schema(tool.input_schema).with_submission(form)


@asynccontextmanager
async def _open_chat(
    chats: ChatService, me: RequestUser, chat: Chat | None, form: SubmittedForm
) -> AsyncGenerator[OpenChat]:
    """Yield the chat of a form with its tools: a new one, if the form belongs to none."""
    if chat is not None:
        yield await chats.open_chat(chat, me.user)
        return
    agent, model = form.text("agent") or None, form.text("model") or None
    async with chats.draft(me.user.id, agent=agent, model=model, user=me.user) as opened:
        yield opened


async def _record_new_chat(audit: AuditRecorder, me: RequestUser, opened: OpenChat) -> Chat:
    chat = opened.chat
    await audit.record_change(me, "chat.create", chat.id, agent=chat.agent, model=chat.model)
    return chat


async def build_form_state(
    chats: ChatService, me: RequestUser, chat: Chat | None, form: SubmittedForm, flash: Flash
) -> ChatFormState:
    """Return the entered values of a failed form, with the message about the failure."""
    console = None
    if form.text("do") == "run":
        with suppress(NotFound):
            opened = None if chat is None else await chats.open_chat(chat, me.user)
            tool, filled = await _read_tool_form(chats, me, opened, form)
            console = ToolConsole(None if chat is None else chat.id, tool.name, tool=tool, form=filled)
    edited_turn = _read_turn(form) if form.text("do").startswith("edit ") else None
    return ChatFormState(
        form.text("text"),
        form.text("agent"),
        form.text("model"),
        console,
        told=flash,
        attachments=await chats.attachments.list_unsent(me.user.id, read_attachment_ids(form)),
        edited_turn=edited_turn,
    )


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
    await chats.retry(me.user.id, existing.id, _read_turn(form) or None)
    return ActionRedirect(existing)


async def _edit_message(
    audit: AuditRecorder, chats: ChatService, me: RequestUser, chat: Chat | None, form: SubmittedForm
) -> ActionRedirect | ChatFormState:
    existing, text = _require_chat(chat), form.text("text").replace("\r\n", "\n")
    audit.set_current_user(me)
    try:
        await chats.edit(me.user.id, existing.id, _read_turn(form), text, read_attachment_ids(form))
    except ChatChanged as changed:
        # The text is kept: sent once more, it replaces the newer version.
        newer = "" if changed.text is None else f" Its newer version is: “{one_line(changed.text, 200)}”."
        told = Flash(
            f"This message has been changed in the meantime.{newer}",
            "bad",
            "Your text is kept. Send it again to replace the newer version, or cancel.",
        )
        state = await build_form_state(chats, me, chat, form, told)
        return replace(state, edited_turn=None if changed.text is None else changed.turn)
    return ActionRedirect(existing)


async def _choose_alternative(
    audit: AuditRecorder, chats: ChatService, me: RequestUser, chat: Chat | None, form: SubmittedForm
) -> ActionRedirect | ChatFormState:
    turn = _read_turn(form)
    return ActionRedirect(await chats.choose(me.user.id, _require_chat(chat).id, turn), anchor=f"t{turn}")


def _read_turn(form: SubmittedForm) -> int:
    """Return the number of the turn that follows the name of the action; 0 if there is none."""
    number = form.text("do").partition(" ")[2]
    return int(number) if number.isascii() and number.isdigit() and len(number) < 18 else 0


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
    if question.question.kind == "form" and action not in ("decline", "cancel"):
        filled = question_form(question).with_submission(form)
        if filled.only_changed:
            return ChatFormState(question=question, form=filled)
        try:
            content = filled.arguments()
        except BadArguments as error:
            return ChatFormState(question=question, form=filled.with_errors(error))
    audit.set_current_user(me)
    await chats.answer_question(me.user.id, existing.id, question.question.id, action or "cancel", content)
    return ActionRedirect(existing)


async def _find_open_question(chats: ChatService, chat: Chat, question_id: str) -> QuestionSnapshot:
    """Return an open question of the last turn.

    Raises ChatRefused if it was answered or its turn has ended.
    """
    # The latest events always begin with the start of a turn, so that this is the whole last turn.
    view = ChatSnapshot.from_events(await chats.list_latest_events(chat.owner, chat.id, limit=1))
    for asked in view.turns[-1].open_questions if view.turns else ():
        if asked.question.id == question_id:
            return asked
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
    "edit": _edit_message,
    "choose": _choose_alternative,
    "settings": _change_settings,
    "reply": _answer_question,
}
"""Actions by the value of the form field ``do``, which may be followed by the number of a turn."""
