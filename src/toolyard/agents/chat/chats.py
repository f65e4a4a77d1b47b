"""Chat service used by every interface: create chats, run turns, answer approvals and questions, read events.

Every method takes the owner's id and sees only that owner's chats.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from toolyard.agents.chat.approval_grants import ApprovalStore, GrantScope
from toolyard.agents.chat.attachments import AttachmentService
from toolyard.agents.chat.errors import ChatChanged, ChatRefused, NoSuchChat
from toolyard.agents.chat.result_event import FullResult, read_full_result
from toolyard.agents.chat.server_questions import ServerQuestions
from toolyard.agents.chat.storable_values import is_storable_json, sanitize_text
from toolyard.agents.chat.title_writer import MAX_DERIVED_TITLE_CHARACTERS, TitleWriter, make_title
from toolyard.agents.chat.tool_set import ToolSet, ToolSetSource, ToolView
from toolyard.agents.chat.turn import MODEL_MODULES, ModelUsageCallback, TurnServices, resolve_model_id
from toolyard.agents.chat.turn_limits import ChatLimits
from toolyard.agents.chat.turn_supervisor import STOPPED_BY_USER, TurnSupervisor, create_runner_id
from toolyard.agents.chat.user_answers import UserAnswers
from toolyard.agents.models.available_models import Models
from toolyard.agents.models.errors import ModelError
from toolyard.errors import ToolyardError
from toolyard.types.account import LOCAL_PRINCIPAL, User
from toolyard.types.approval import Approval
from toolyard.types.call import Caller
from toolyard.types.chat import (
    CallResult,
    Chat,
    ChatEvent,
    EventData,
    Fork,
    ManualCall,
    NewChatEvent,
    TurnState,
    TurnTree,
    UserMessage,
)
from toolyard.types.tool import JsonObject

if TYPE_CHECKING:
    from toolyard.store.repositories.chats import SqlChatStore

__all__ = ["UNCHANGED", "ChatService", "FullResult", "GrantScope", "OpenChat", "ToolView", "Unchanged"]

_MAX_TITLE_CHARACTERS = 200
_MAX_MESSAGE_CHARACTERS = 1_000_000
_MAX_CHOSEN_TOOLS = 5_000
_CHATS_PER_PAGE = 500
_NO_CHAT_MESSAGE = "chat not found"


class Unchanged(Enum):
    """The type of ``UNCHANGED``."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED
"""Marks a field to leave as it is, where None is itself a value."""


@dataclass(slots=True)
class OpenChat:
    """A chat and its tools. A new chat is stored when its first turn starts."""

    chat: Chat
    tool_set: ToolSet
    is_stored: bool


class ChatService:
    """The chats served by one process. Call ``open`` before use and ``close`` at the end."""

    def __init__(
        self,
        store: SqlChatStore,
        approvals: ApprovalStore,
        models: Models,
        tool_sets: ToolSetSource,
        limits: ChatLimits,
        *,
        on_model_usage: ModelUsageCallback | None = None,
        writes_titles: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """With ``writes_titles``, the model writes the title of a chat after its first turn."""
        self.questions = ServerQuestions(store, limits)
        """Sends servers' questions to the users whose calls are running."""
        self.models = models
        self.attachments = AttachmentService(store.attachments)
        self._store = store
        self._tool_sets = tool_sets
        self._clock = clock
        context = TurnServices(
            store, approvals, models, self.questions, limits, create_runner_id(), clock, on_model_usage
        )
        self._title_writer = TitleWriter(context)
        self.turn_supervisor = TurnSupervisor(
            context, tool_sets, on_first_turn_done=self._title_writer.begin if writes_titles else None
        )
        self._user_answers = UserAnswers(context, self.turn_supervisor)

    async def open(self, *, resume_any_chat: bool = False) -> None:
        """End abandoned turns, then start the heartbeat and listen for stop requests from other processes.

        With ``resume_any_chat``, this process can load the tools of every chat, and also resumes turns whose
        approvals were all answered although nobody resumed them.
        """
        await self.turn_supervisor.open()
        if resume_any_chat:
            self._user_answers.start_resuming()

    async def preload(self, model: str | None = None) -> None:
        """Load the libraries and the model that the first turn needs, if a model is configured.

        Model errors are suppressed here; the turn itself reports them.
        """
        if model is not None or self.models.default_for(LOCAL_PRINCIPAL) is not None:
            with suppress(ModelError):
                await self.models.loader.load_in_thread(*MODEL_MODULES)
                await self.models.preload(model)

    async def close(self) -> None:
        """Stop all turns of this process as interrupted. Takes bounded time; may be called twice."""
        await self._user_answers.close()
        await self.turn_supervisor.close()
        await self._title_writer.close()

    # Chats.

    async def create(
        self,
        owner: str,
        *,
        agent: str | None = None,
        model: str | None = None,
        choice: Iterable[str] | None = None,
        title: str = "",
    ) -> Chat:
        """Create a chat. Raises NoSuchModel, or ChatRefused for an unknown agent."""
        draft = self.draft(owner, agent=agent, model=model, choice=choice, title=title)
        async with draft as opened:
            await self._store.create(opened.chat)
            opened.is_stored = True
            return opened.chat

    @asynccontextmanager
    async def draft(
        self,
        owner: str,
        *,
        agent: str | None = None,
        model: str | None = None,
        choice: Iterable[str] | None = None,
        title: str = "",
        user: User | None = None,
    ) -> AsyncGenerator[OpenChat]:
        """Yield a new chat. It is forgotten unless a turn starts in it. ``user`` is the owner, if they have
        just been authenticated. Raises the errors of ``create``."""
        id, now = secrets.token_hex(12), self._clock()
        chat = Chat(
            id,
            owner,
            make_title(title, _MAX_TITLE_CHARACTERS),
            now,
            now,
            agent,
            model,
            _normalize_choice(choice),
        )
        opened = OpenChat(chat, await self._load_tool_set(chat, user), is_stored=False)
        try:
            yield opened
        finally:
            if not opened.is_stored:
                await self._tool_sets.release_chat(id)

    async def get(self, owner: str, chat_id: str) -> Chat:
        """Return one of the owner's chats. Raises NoSuchChat."""
        chat = await self._store.get(owner, chat_id)
        if chat is None:
            raise NoSuchChat(_NO_CHAT_MESSAGE, hint="it may have been deleted")
        return chat

    async def list(
        self,
        owner: str,
        *,
        search_text: str | None = None,
        before: tuple[float, str] | None = None,
        limit: int = 50,
    ) -> Sequence[Chat]:
        """Return the owner's chats, most recently changed first.

        ``search_text`` searches titles and messages. ``before`` is ``(updated_at, id)`` of the last chat of
        the previous page.
        """
        return await self._store.list_chats(owner, search_text=search_text, before=before, limit=limit)

    async def change(
        self,
        owner: str,
        chat_id: str,
        *,
        title: str | Unchanged = UNCHANGED,
        agent: str | Unchanged | None = UNCHANGED,
        model: str | Unchanged | None = UNCHANGED,
        choice: Iterable[str] | Unchanged | None = UNCHANGED,
    ) -> Chat:
        """Change a chat's title, agent, model or tools, from its next turn on.

        Raises the errors of ``create``.
        """
        chat = await self.get(owner, chat_id)
        requested = {
            "title": title if title is UNCHANGED else make_title(title, _MAX_TITLE_CHARACTERS),
            "agent": agent,
            "model": model,
            "choice": choice if choice is UNCHANGED else _normalize_choice(choice),
        }
        changed: Mapping[str, Any] = {key: each for key, each in requested.items() if each is not UNCHANGED}
        chat = replace(chat, **changed)
        if changed.keys() & {"agent", "model"}:
            await self._load_tool_set(chat)
        if not await self._store.change(chat):
            raise NoSuchChat(_NO_CHAT_MESSAGE, hint="it may have been deleted")
        return chat

    async def get_caller(self, owner: str, chat_id: str | None) -> Caller:
        """Return the caller of a chat, or of a chat without an agent. Raises NoSuchChat and ChatRefused."""
        chat = None if chat_id is None else await self.get(owner, chat_id)
        return (await self._tool_sets.load_tool_set(owner, chat)).caller

    async def open_chat(self, chat: Chat, user: User | None = None) -> OpenChat:
        """Return a stored chat with its tools. ``user`` is the owner, if they have just been authenticated.

        Raises ChatRefused.
        """
        tool_set = await self._tool_sets.load_tool_set(chat.owner, chat, user=user)
        return OpenChat(chat, tool_set, is_stored=True)

    async def _load_tool_set(self, chat: Chat, user: User | None = None) -> ToolSet:
        """Return the tools of a chat. Raises NoSuchModel, or ChatRefused for an unknown agent."""
        tool_set = await self._tool_sets.load_tool_set(chat.owner, chat, user=user)
        if chat.model is not None:
            self.models.pick(chat.model, tool_set.caller.principal)
        return tool_set

    async def delete(self, owner: str, chat_id: str) -> None:
        """Stop the chat's turn, delete the chat with all its events, and close its connections."""
        # The turn first: until it has ended it writes to the chat and uses its connections.
        await self.turn_supervisor.stop(await self.get(owner, chat_id), STOPPED_BY_USER)
        await self._store.delete(owner, chat_id)
        await self._tool_sets.release_chat(chat_id)

    # Turns.

    async def send(
        self, owner: str, chat: str | OpenChat, text: str, attachment_ids: Sequence[str] = ()
    ) -> int:
        """Send a message and start a turn in which the model answers it. Return the turn's number.

        ``chat`` is the id of a chat, or an open one. Raises ChatBusy, NoSuchModel, ChatRefused or
        AttachmentRefused.
        """
        start = UserMessage(_check_message(text))
        opened = chat if isinstance(chat, OpenChat) else await self.open_chat(await self.get(owner, chat))
        return await self._start_turn(opened, start, attachment_ids)

    async def run_tool(
        self,
        owner: str,
        chat: str | OpenChat,
        name: str,
        arguments: JsonObject,
        tool: ToolView | None = None,
    ) -> int:
        """Start a turn that calls a tool as the user, without a model. Return the turn's number.

        ``chat`` is the id of a chat, or an open one. ``tool`` is the tool, if it has just been listed in the
        chat for its owner. Raises ChatBusy or ChatRefused.
        """
        if not is_storable_json(dict(arguments)):
            raise ChatRefused(
                "the arguments contain a value that cannot be stored",
                hint="use integers of up to 64 bits and valid Unicode; pass larger numbers as strings",
            )
        start = ManualCall(sanitize_text(name), dict(arguments))
        opened = chat if isinstance(chat, OpenChat) else await self.open_chat(await self.get(owner, chat))
        # Tools are listed regardless of the chat's selection, which counts for calls.
        return await self._start_turn(opened, start, tool=tool if opened.chat.choice is None else None)

    # Alternatives. Each turn follows another one, so the turns of a chat form a tree. ``Chat.turn`` is
    # the last turn of the chosen branch, which pages show and models read.

    async def retry(self, owner: str, chat_id: str, turn: int | None = None) -> int:
        """Run a turn of the chosen branch again, the last one by default. Return the new turn's number.

        The new turn is an alternative to that one, and becomes the end of the chosen branch. Raises
        NoSuchChat for an unknown turn, ChatChanged if another branch is chosen, and the errors of ``send``.
        """
        chat = await self.get(owner, chat_id)
        turn = chat.turn if turn is None else turn
        return await self._start_alternative(chat, turn, await self.get_turn_start(owner, chat_id, turn))

    async def edit(
        self,
        owner: str,
        chat_id: str,
        turn: int,
        text: str,
        attachment_ids: Sequence[str] = (),
        *,
        parent: int | None = None,
    ) -> int:
        """Send the message of a turn of the chosen branch with another text. Return the new turn's number.

        As for ``retry``, both are kept. The attachments stay, and others are added. ``parent`` is the turn
        that the edited one followed when it was read, if known: a turn that was deleted since is then found
        to be replaced. Raises ChatRefused if the turn is not a message, and the errors of ``retry`` and
        ``send``.
        """
        chat = await self.get(owner, chat_id)
        if parent is not None:
            tree = await self._store.get_turn_tree(chat_id)
            if turn not in tree.parents:
                raise await self._build_change_error(chat, tree.successor(parent, chat.turn))
        start = await self.get_turn_start(owner, chat_id, turn)
        if not isinstance(start, UserMessage):
            raise ChatRefused("only messages can be edited", hint="run the tool again with other arguments")
        edited = replace(start, text=_check_message(text))
        return await self._start_alternative(chat, turn, edited, attachment_ids)

    async def choose(self, owner: str, chat_id: str, turn: int) -> Chat:
        """Choose the branch of an alternative, to the newest turn that follows it. Return the chat.

        Raises NoSuchChat, or ChatBusy while a turn is running or waiting.
        """
        chat, tree = await self.get(owner, chat_id), await self._store.get_turn_tree(chat_id)
        if turn not in tree.parents:
            raise _no_such_turn()
        await self.turn_supervisor.switch_branch(chat, tree.newest_end(turn))
        return await self.get(owner, chat_id)

    async def delete_alternative(
        self, owner: str, chat_id: str, turn: int, *, newest: int | None = None
    ) -> Chat:
        """Delete a turn and those that follow it, and choose another alternative instead. Return the chat.

        ``newest`` is the newest of these turns that the user has seen, if known. Raises NoSuchChat,
        ChatRefused if there is no other alternative, ChatBusy while a turn is running or waiting, and
        ChatChanged if there are newer turns than ``newest`` or another branch was chosen meanwhile.
        """
        chat, tree = await self.get(owner, chat_id), await self._store.get_turn_tree(chat_id)
        if turn not in tree.parents:
            raise _no_such_turn()
        alternatives = tree.alternatives(turn)
        if len(alternatives) < 2:
            raise ChatRefused("this message has no other version", hint="delete the chat instead")
        deleted, end = tree.subtree(turn), chat.turn
        if newest is not None and deleted[-1] > newest:
            raise ChatChanged(
                "this version has been continued since you loaded it",
                turn=deleted[-1],
                hint="review its newer turns, then try again",
            )
        if end in deleted:
            at = alternatives.index(turn)
            end = tree.newest_end(alternatives[at - 1] if at else alternatives[1])
        await self.turn_supervisor.switch_branch(chat, end, deleted)
        return await self.get(owner, chat_id)

    async def get_turn_tree(self, owner: str, chat_id: str) -> TurnTree:
        """Return all turns of a chat."""
        await self.get(owner, chat_id)
        return await self._store.get_turn_tree(chat_id)

    async def get_turn_start(self, owner: str, chat_id: str, turn: int) -> UserMessage | ManualCall:
        """Return the message or tool call that began a turn. Raises NoSuchChat, or ChatRefused for 0."""
        await self.get(owner, chat_id)
        if not turn:
            raise ChatRefused("the chat has no message yet", hint="write a message")
        events = await self._store.list_events(chat_id, after=turn - 1, limit=1)
        start = events[0].data if events and events[0].seq == turn else None
        if not isinstance(start, UserMessage | ManualCall):
            raise _no_such_turn()
        return start

    async def _start_alternative(
        self, chat: Chat, turn: int, start: UserMessage | ManualCall, attachment_ids: Sequence[str] = ()
    ) -> int:
        tree = await self._store.get_turn_tree(chat.id)
        if turn not in tree.branch(chat.turn):
            raise await self._build_change_error(chat, tree.replacement(turn, chat.turn))
        fork = Fork(tree.parents[turn], chat.turn)
        opened = await self.open_chat(chat)
        return await self._start_turn(opened, replace(start, again=turn), attachment_ids, fork)

    async def _build_change_error(self, chat: Chat, shown: int | None) -> ChatChanged:
        """Return the error for a turn in whose place the chat shows another one."""
        newer = None if shown is None else await self.get_turn_start(chat.owner, chat.id, shown)
        return ChatChanged(
            "the chat now shows another version of this message",
            turn=shown,
            text=newer.text if isinstance(newer, UserMessage) else None,
            hint="it was edited, retried, switched or deleted elsewhere; review that version first",
        )

    async def _start_turn(
        self,
        opened: OpenChat,
        start: UserMessage | ManualCall,
        attachment_ids: Sequence[str] = (),
        fork: Fork | None = None,
        tool: ToolView | None = None,
    ) -> int:
        chat, tool_set, is_new = opened.chat, opened.tool_set, not opened.is_stored
        text = start.text if isinstance(start, UserMessage) else start.name
        unsent_ids: Sequence[str] = ()
        if isinstance(start, UserMessage):
            # Before anything is stored, so that a missing model leaves no empty chat behind.
            picked_model = self.models.pick(resolve_model_id(chat, tool_set), tool_set.caller.principal)
            model = picked_model.choice.id
            start = replace(start, model=model, agent=chat.agent)
        if is_new:
            if not chat.title:
                chat = opened.chat = replace(chat, title=make_title(text, MAX_DERIVED_TITLE_CHARACTERS))
            await self._store.create(chat)
            opened.is_stored = True
        try:
            if attachment_ids and isinstance(start, UserMessage):
                model = self.models.pick(start.model, tool_set.caller.principal).choice
                attachments, unsent_ids = await self.attachments.bind(
                    chat.owner, attachment_ids, chat.id, model
                )
                start = replace(start, attachments=(*start.attachments, *attachments))
            events: list[EventData] = [start]
            if isinstance(start, ManualCall):
                tool_set = tool_set.for_operator()
                call = tool_set.build_call_request(start.name, start.arguments, tool=tool)
                # A call of an unknown tool is added by the turn, which searches for the tool first.
                events += [call] if call.tool is not None else []
            number = await self.turn_supervisor.begin(
                chat,
                tool_set,
                [NewChatEvent.from_data(each) for each in events],
                fork,
                is_allowed=tool is not None and tool.shown and not tool.asks,
            )
        except ToolyardError:
            # The person can then send them with the next message. A chat that was made for this turn goes
            # with it.
            if unsent_ids:
                await self.attachments.unbind(chat.owner, unsent_ids)
            if is_new:
                await self.delete(chat.owner, chat.id)
            raise
        if not chat.title:
            # The user may have renamed or deleted the chat since it was read.
            current = await self._store.get(chat.owner, chat.id)
            if current is not None and not current.title:
                title = make_title(text, MAX_DERIVED_TITLE_CHARACTERS)
                await self._store.change(replace(current, title=title))
        return number

    async def stop_turn(self, owner: str, chat_id: str) -> None:
        """Stop the chat's running or waiting turn, if any, in any process."""
        chat = await self.get(owner, chat_id)
        if chat.state is not TurnState.IDLE:
            await self.turn_supervisor.stop(chat, STOPPED_BY_USER)

    async def answer_approval(
        self,
        owner: str,
        approval_id: str,
        *,
        yes: bool,
        remember: GrantScope | None = None,
        unattended: bool = False,
    ) -> Approval:
        """Approve or deny a pending call, and return it; the last missing answer resumes the turn.

        ``unattended`` says that a call is denied because nobody could be asked.
        Raises NoSuchChat for an unknown approval, ChatRefused if it was already answered.
        """
        return await self._user_answers.answer_approval(owner, approval_id, yes, remember, unattended)

    async def resume_if_answered(self, owner: str, chat_id: str) -> None:
        """Resume a waiting turn whose approvals are all answered, if the process that stored the answers has
        exited.
        """
        chat = await self.get(owner, chat_id)
        if chat.state is TurnState.WAITING:
            await self._user_answers.resume_if_answered(chat)

    async def answer_question(
        self, owner: str, chat_id: str, question_id: str, action: str, content: JsonObject | None
    ) -> None:
        """Answer a server's question with ``accept``, ``decline`` or ``cancel``.

        Raises NoSuchChat if the question does not exist or was already answered.
        """
        await self._user_answers.answer_question(await self.get(owner, chat_id), question_id, action, content)

    async def stop_all_turns(self, owner: str) -> None:
        """Stop all turns of a user, in any process, for example when the account is disabled."""
        before: tuple[float, str] | None = None
        while chats := await self._store.list_chats(owner, before=before, limit=_CHATS_PER_PAGE):
            for chat in chats:
                if chat.state is not TurnState.IDLE:
                    await self.turn_supervisor.stop(chat, STOPPED_BY_USER)
            before = (chats[-1].updated_at, chats[-1].id)

    # Events and results.

    async def list_events(
        self, owner: str, chat_id: str, *, after: int = 0, limit: int = 1_000
    ) -> Sequence[ChatEvent]:
        """Return events after a sequence number, in order. Raises NoSuchChat, as do the methods below."""
        await self.get(owner, chat_id)
        return await self._store.list_events(chat_id, after=after, limit=limit)

    async def list_latest_events(
        self,
        owner: str,
        chat_id: str,
        *,
        last_turn: int | None = None,
        before: int | None = None,
        limit: int = 200,
    ) -> Sequence[ChatEvent]:
        """Return the last events before a sequence number in a branch, the chosen one by default, in order.

        The page starts with the first event of a turn, so it may be longer than ``limit``.
        """
        chat = await self.get(owner, chat_id)
        last = chat.turn if last_turn is None else last_turn
        return await self._store.list_latest_events(chat_id, last, before=before, limit=limit)

    async def find_branch_end(self, owner: str, chat_id: str, before: int) -> int:
        """Return the last turn of the branch that was chosen before an event."""
        await self.get(owner, chat_id)
        return await self._store.find_branch_end(chat_id, before)

    async def wait_for_events(
        self, owner: str, chat_id: str, after: int, seconds: float
    ) -> Sequence[ChatEvent]:
        """Return events after a sequence number as soon as there are any; none after ``seconds`` without
        events.
        """
        await self.get(owner, chat_id)
        return await self._store.wait_for_events(chat_id, after, seconds)

    async def get_full_result(self, owner: str, chat_id: str, seq: int) -> FullResult | None:
        """Return the full result of a RESULT event, or None if the event at ``seq`` is not a RESULT."""
        await self.get(owner, chat_id)
        events = await self._store.list_events(chat_id, after=seq - 1, limit=1)
        result = events[0].data if events and events[0].seq == seq else None
        if not isinstance(result, CallResult):
            return None
        payload = await self._store.get_payload(chat_id, seq) if events[0].has_payload else None
        return read_full_result(result, payload)

    async def list_tools(
        self,
        owner: str,
        chat: str | None,
        *,
        for_person: bool = False,
    ) -> Sequence[ToolView]:
        """Return every known tool, and for a hidden tool the reason given by the rule that hides it.

        ``chat`` is the id of a chat, whose selection of tools is ignored; or None for the tools that a chat
        without an agent would have. ``for_person`` decides for calls by the owner, not by the chat's model.
        """
        stored = None if chat is None else replace(await self.get(owner, chat), choice=None)
        tool_set = await self._tool_sets.load_tool_set(owner, stored)
        if for_person or not self.models.choices_for(tool_set.caller.principal):
            tool_set = tool_set.for_operator(ignores_choice=True)
        return await tool_set.list_views()

    async def find_tool(self, owner: str, opened: OpenChat | None, name: str) -> ToolView | None:
        """Return a tool for calls by the owner as ``list_tools`` does, or None if there is no such tool.

        ``opened`` is a chat, or None for the tools that a chat without an agent would have.
        """
        tool_set = await self._tool_sets.load_tool_set(owner, None) if opened is None else opened.tool_set
        return await tool_set.for_operator(ignores_choice=True).find_view(name)


def _check_message(text: str) -> str:
    """Return the text of a message as it is stored. Raises ChatRefused."""
    text = sanitize_text(text)
    if not text.strip():
        raise ChatRefused("the message is empty", hint="write a message")
    if len(text) > _MAX_MESSAGE_CHARACTERS:
        raise ChatRefused(
            f"the message has {len(text):,} characters; the maximum is {_MAX_MESSAGE_CHARACTERS:,}"
        )
    return text


def _no_such_turn() -> NoSuchChat:
    return NoSuchChat("message not found", hint="it may have been deleted; reload the chat")


def _normalize_choice(tool_ids: Iterable[str] | None) -> tuple[str, ...] | None:
    if tool_ids is None:
        return None
    choice = tuple(sorted({sanitize_text(each) for each in tool_ids}))
    if len(choice) > _MAX_CHOSEN_TOOLS:
        raise ChatRefused(f"{len(choice):,} tools were selected; the maximum is {_MAX_CHOSEN_TOOLS:,}")
    return choice
