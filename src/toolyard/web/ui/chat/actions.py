"""Actions of the forms on a chat's page. Each returns a redirect, or the form with its entered values."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias
from urllib.parse import urlencode

from starlette.datastructures import UploadFile

from toolyard.agents.chat.attachments import AttachmentService
from toolyard.agents.chat.chats import UNCHANGED, ChatService, OpenChat, ToolView
from toolyard.agents.chat.errors import ChatChanged, ChatRefused
from toolyard.agents.chat.turn_snapshot import ChatSnapshot, QuestionSnapshot
from toolyard.core.audit import AuditRecorder
from toolyard.errors import AttachmentRefused, NoSuchChat, ToolyardError
from toolyard.registry.errors import NotFound
from toolyard.types.account import RequestUser
from toolyard.types.chat import Attachment, Chat, UserMessage
from toolyard.web.ui.chat.fragments import question_form
from toolyard.web.ui.chat.tool_console import ToolConsole, require_shown
from toolyard.web.ui.components import forms, responses
from toolyard.web.ui.components.formatting import count, one_line
from toolyard.web.ui.tools.schema_form import BadArguments, ToolForm

__all__ = ["ActionRedirect", "ChatForm", "ChatFormState", "FormFiles"]

_PIECE_BYTES = 64 * 1024


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
    told: responses.Flash | None = None
    attachments: Sequence[Attachment] = ()
    edited_turn: int | None = None
    """Turn whose message the text replaces."""
    edited_parent: int = 0
    """Turn that it follows."""
    edited_attachments: Sequence[Attachment] = ()
    """Attachments of that message, which stay."""


Outcome: TypeAlias = ActionRedirect | ChatFormState


class FormFiles:
    """Stores the files of a form. Files after one that is refused are not stored."""

    def __init__(self, attachments: AttachmentService, owner: str) -> None:
        self._attachments = attachments
        self._owner = owner
        self._count = 0
        self.error: ToolyardError | None = None
        """Reason why a file was refused."""

    async def save(self, file: UploadFile) -> str:
        """Store a file. Return its id, or an empty text if it was refused."""
        # A browser sends an empty file without a name if none is chosen.
        if self.error is not None or not file.filename:
            return ""
        try:
            self._count += 1
            if self._count > (most := self._attachments.limits.per_message):
                raise AttachmentRefused(
                    f"a message may have at most {count(most, 'attachment')}", hint="send several messages"
                )
            attachment = await self._attachments.upload(
                self._owner, file.filename, _read_pieces(file), declared_size=file.size or 0
            )
            return attachment.id
        except ToolyardError as error:
            self.error = error
            return ""


@dataclass(frozen=True, slots=True)
class ChatForm:
    """A submitted form of a chat's page, and the actions that it can ask for."""

    audit: AuditRecorder
    chats: ChatService
    me: RequestUser
    chat: Chat | None
    """None for a chat that has not started."""
    form: forms.SubmittedForm

    @staticmethod
    def find_action(wanted: str) -> Callable[[ChatForm], Awaitable[Outcome]]:
        """Return the action that a form asks for. Raises NotFound if there is no such action."""
        action = _ACTIONS.get(wanted.partition(" ")[0])
        if action is None:
            raise NotFound("unknown action", hint="reload the page")
        return action

    async def send_message(self) -> Outcome:
        """Send a message and its attachments."""
        # A button with a starter prompt sends it in place of the text.
        text = (self.form.text("starter") or self.form.text("text")).replace("\r\n", "\n")
        async with self._open_chat() as opened:
            await self.chats.send(self.me.user.id, opened, text, self._attachment_ids)
        return ActionRedirect(self.chat or await self._record_new_chat(opened))

    async def run_tool(self) -> Outcome:
        """Run a tool with the arguments of the console."""
        async with self._open_chat() as opened:
            console, tool, filled = await self._read_console(opened)
            if filled.only_changed:
                return ChatFormState(console=console)
            try:
                arguments = filled.arguments()
            except BadArguments as error:
                return ChatFormState(console=replace(console, form=filled.with_errors(error)))
            await self.chats.run_tool(self.me.user.id, opened, console.wanted, arguments, tool)
        query = {"run": "", "tool": console.wanted}
        return ActionRedirect(self.chat or await self._record_new_chat(opened), query)

    async def stop_turn(self) -> Outcome:
        """Stop the running turn."""
        await self.chats.stop_turn(self.me.user.id, self._existing_chat.id)
        return ActionRedirect(self._existing_chat)

    async def retry_turn(self) -> Outcome:
        """Ask the model again."""
        await self.chats.retry(self.me.user.id, self._existing_chat.id, self._turn or None)
        return ActionRedirect(self._existing_chat)

    async def edit_message(self) -> Outcome:
        """Replace a message, which starts another branch."""
        chat, text = self._existing_chat, self.form.text("text").replace("\r\n", "\n")
        try:
            await self.chats.edit(
                self.me.user.id, chat.id, self._turn, text, self._attachment_ids, parent=self._parent
            )
        except ChatChanged as changed:
            return await self._build_changed_state(changed)
        return ActionRedirect(chat)

    async def _build_changed_state(self, changed: ChatChanged) -> ChatFormState:
        """Return the form with the text of an edit, which replaces the newer version if it is sent again."""
        if changed.text is None or changed.turn is None:
            told = responses.Flash(
                "This message is no longer part of the chat.",
                "bad",
                "Your text is kept. Send it as a new message, or discard it.",
            )
            state = await self.build_state(told)
            return replace(state, edited_turn=None, edited_attachments=())
        told = responses.Flash(
            "This message has been changed since you opened it. "
            f"Its newer version is: “{one_line(changed.text, 200)}”.",
            "bad",
            "Your text is kept. Send it again to replace the newer version, or cancel.",
        )
        tree = await self.chats.get_turn_tree(self.me.user.id, self._existing_chat.id)
        return replace(
            await self.build_state(told),
            edited_turn=changed.turn,
            edited_parent=tree.parents.get(changed.turn, 0),
            edited_attachments=await self._list_edited_attachments(changed.turn),
        )

    async def choose_alternative(self) -> Outcome:
        """Show another version of a message and what follows it."""
        chat = await self.chats.choose(self.me.user.id, self._existing_chat.id, self._turn)
        return ActionRedirect(chat, anchor=f"t{self._turn}")

    async def change_settings(self) -> Outcome:
        """Change the agent and the model."""
        form = self.form
        # A select that is not on the page must not reset the setting.
        agent = form.text("agent") or None if form.is_checked("agent") else UNCHANGED
        model = form.text("model") or None if form.is_checked("model") else UNCHANGED
        chat_id = self._existing_chat.id
        return ActionRedirect(await self.chats.change(self.me.user.id, chat_id, agent=agent, model=model))

    async def answer_question(self) -> Outcome:
        """Answer or decline a question from a server."""
        chat, action = self._existing_chat, self.form.text("reply")
        question = await self._find_open_question(chat)
        content = None
        if question.question.kind == "form" and action not in ("decline", "cancel"):
            filled = question_form(question).with_submission(self.form)
            if filled.only_changed:
                return ChatFormState(question=question, form=filled)
            try:
                content = filled.arguments()
            except BadArguments as error:
                return ChatFormState(question=question, form=filled.with_errors(error))
        question_id = question.question.id
        await self.chats.answer_question(self.me.user.id, chat.id, question_id, action or "cancel", content)
        return ActionRedirect(chat)

    async def build_state(self, flash: responses.Flash) -> ChatFormState:
        """Return the entered values of a failed form, with the message about the failure."""
        form, console = self.form, None
        if form.text("do") == "run":
            with suppress(NotFound):
                opened = None if self.chat is None else await self.chats.open_chat(self.chat, self.me.user)
                console, _, _ = await self._read_console(opened)
        attachments = self.chats.attachments.list_unsent(self.me.user.id, self._attachment_ids)
        edited_turn = self._turn if form.text("do").startswith("edit ") else None
        return ChatFormState(
            form.text("text"),
            form.text("agent"),
            form.text("model"),
            console,
            told=flash,
            attachments=await attachments,
            edited_turn=edited_turn,
            edited_parent=self._parent or 0,
            edited_attachments=()
            if edited_turn is None
            else await self._list_edited_attachments(edited_turn),
        )

    async def _list_edited_attachments(self, turn: int) -> Sequence[Attachment]:
        with suppress(NoSuchChat, ChatRefused):
            start = await self.chats.get_turn_start(self.me.user.id, self._existing_chat.id, turn)
            return start.attachments if isinstance(start, UserMessage) else ()
        return ()

    @property
    def _existing_chat(self) -> Chat:
        if self.chat is None:
            raise ChatRefused("the chat has not started yet", hint="send a message first")
        return self.chat

    @property
    def _turn(self) -> int:
        """Number of the turn that follows the name of the action; 0 if there is none."""
        return forms.parse_number(self.form.text("do").partition(" ")[2], 17) or 0

    @property
    def _parent(self) -> int | None:
        """Turn that the edited one followed when the form was made."""
        return forms.parse_number(self.form.text("parent"), 17)

    @property
    def _attachment_ids(self) -> Sequence[str]:
        return [id_ for id_ in self.form.all_values("attachment") if id_]

    async def _read_console(self, opened: OpenChat | None) -> tuple[ToolConsole, ToolView, ToolForm]:
        """Return the console, its tool, and the form with the entered arguments."""
        wanted, user_id = self.form.text("tool"), self.me.user.id
        tool = require_shown(await self.chats.find_tool(user_id, opened, wanted), wanted)
        empty = ToolForm.from_schema(tool.definition.input_schema, with_defaults=False)
        filled = empty.with_submission(self.form)
        chat_id = None if self.chat is None else self.chat.id
        return ToolConsole(chat_id, tool.name, tool=tool, form=filled), tool, filled

    @asynccontextmanager
    async def _open_chat(self) -> AsyncGenerator[OpenChat]:
        """Yield the chat with its tools: a new one, if the form belongs to none."""
        if self.chat is not None:
            yield await self.chats.open_chat(self.chat, self.me.user)
            return
        agent, model = self.form.text("agent") or None, self.form.text("model") or None
        drafted = self.chats.draft(self.me.user.id, agent=agent, model=model, user=self.me.user)
        async with drafted as opened:
            yield opened

    async def _record_new_chat(self, opened: OpenChat) -> Chat:
        chat = opened.chat
        await self.audit.record_change(self.me, "chat.create", chat.id, agent=chat.agent, model=chat.model)
        return chat

    async def _find_open_question(self, chat: Chat) -> QuestionSnapshot:
        """Return the open question of the last turn that the form answers.

        Raises ChatRefused if it was answered or its turn has ended.
        """
        # The latest events always begin with the start of a turn, so this is the whole last turn.
        view = ChatSnapshot.from_events(await self.chats.list_latest_events(chat.owner, chat.id, limit=1))
        for asked in view.turns[-1].open_questions if view.turns else ():
            if asked.question.id == self.form.text("question"):
                return asked
        raise ChatRefused("this question is no longer open", hint="the call of this question has ended")


_ACTIONS: Mapping[str, Callable[[ChatForm], Awaitable[Outcome]]] = {
    "send": ChatForm.send_message,
    "run": ChatForm.run_tool,
    "stop": ChatForm.stop_turn,
    "retry": ChatForm.retry_turn,
    "edit": ChatForm.edit_message,
    "choose": ChatForm.choose_alternative,
    "settings": ChatForm.change_settings,
    "reply": ChatForm.answer_question,
}
"""Actions by the value of the form field ``do``, which may be followed by the number of a turn."""


async def _read_pieces(file: UploadFile) -> AsyncIterator[bytes]:
    while piece := await file.read(_PIECE_BYTES):
        yield piece
