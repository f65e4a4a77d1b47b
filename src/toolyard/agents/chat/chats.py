"""Chats, for every door: talk, run tools, answer what is asked, and see what happened. Each for its owner."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from typing import Any, Final

from toolyard.agents.chat.approval_grants import GrantScope
from toolyard.agents.chat.chat_backend import ChatBackend
from toolyard.agents.chat.elicitation import ServerQuestions
from toolyard.agents.chat.errors import ChatRefused, NoSuchChat
from toolyard.agents.chat.human_answers import HumanAnswers, TurnResumer
from toolyard.agents.chat.result_event import FullResult, read_full_result
from toolyard.agents.chat.runner_id import create_runner_id
from toolyard.agents.chat.sanitize import is_storable_json, sanitize_text
from toolyard.agents.chat.storage import ApprovalStore, ChatStore
from toolyard.agents.chat.tool_picker import ToolView, list_tool_views
from toolyard.agents.chat.turn import MODEL_MODULES, TurnContext, resolve_model_id
from toolyard.agents.chat.turn_limits import ChatLimits
from toolyard.agents.chat.turn_runner import STOPPED_BY_USER, TurnRunner
from toolyard.agents.models.available_models import Models
from toolyard.agents.models.errors import ModelError
from toolyard.types.chat import Chat, ChatEvent, Kind, NewChatEvent, TurnState
from toolyard.types.tool import JsonObject

__all__ = ["UNCHANGED", "ChatService", "FullResult", "GrantScope", "ToolView", "Unchanged"]

_MAX_DERIVED_TITLE_CHARACTERS = 60
_MAX_TITLE_CHARACTERS = 200
_MAX_MESSAGE_CHARACTERS = 1_000_000
_MAX_CHOSEN_TOOLS = 5_000
_CHATS_PER_PAGE = 500
_NO_CHAT_MESSAGE = "there is no such chat"


class Unchanged(Enum):
    """The type of ``UNCHANGED``."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED
"""Says of a field that it stays as it is, where None has a meaning."""


class ChatService:
    """The chats of one process's doors. ``open`` first, ``close`` at the end."""

    def __init__(
        self,
        store: ChatStore,
        approvals: ApprovalStore,
        models: Models,
        backend: ChatBackend,
        limits: ChatLimits,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.questions = ServerQuestions(store, limits)
        """Puts what servers ask to the people whose calls are under way."""
        self.models = models
        self._store = store
        self._backend = backend
        self._clock = clock
        desk = TurnContext(store, approvals, models, self.questions, limits, create_runner_id(), clock)
        self._turn_runner = TurnRunner(desk, backend)
        self._human_answers = HumanAnswers(desk, self._turn_runner)
        self._turn_resumer = TurnResumer(store, self._human_answers)

    async def open(self, *, resume_any_chat: bool = False) -> None:
        """Begin: turns that were left behind are ended, stops that are asked for elsewhere are heard.
        ``everybodys``: this process can work on any chat, and goes on with those that only seem to wait."""
        await self._turn_runner.open()
        if resume_any_chat:
            self._turn_resumer.open()

    async def preload(self, model: str | None = None) -> None:
        """Load what the first turn with this model, or the default, needs, before somebody waits for it;
        without a model, nothing. What is wrong is told in the turn."""
        if model is not None or self.models.default is not None:
            with suppress(ModelError):
                await self.models.loader.load_in_thread(*MODEL_MODULES)
                await self.models.preload(model)

    async def close(self) -> None:
        """End: turns that run here end as interrupted. Bounded; may be called twice."""
        await self._turn_resumer.close()
        await self._turn_runner.close()

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
        """A new chat. Raises NoSuchModel, or ChatRefused for an agent that there is not."""
        now = self._clock()
        chat = Chat(
            secrets.token_hex(12),
            owner,
            _make_title(title),
            now,
            now,
            agent,
            model,
            _normalize_choice(choice),
        )
        await self._check_agent_and_model(chat)
        await self._store.create(chat)
        return chat

    async def get(self, owner: str, chat_id: str) -> Chat:
        """One of the owner's chats. Raises NoSuchChat."""
        found = await self._store.get(owner, chat_id)
        if found is None:
            raise NoSuchChat(_NO_CHAT_MESSAGE, hint="it may have been deleted")
        return found

    async def list(
        self,
        owner: str,
        *,
        search_text: str | None = None,
        before: tuple[float, str] | None = None,
        limit: int = 50,
    ) -> Sequence[Chat]:
        """The owner's chats, the one that changed last first. See ChatStore."""
        return await self._store.chats(owner, search_text=search_text, before=before, limit=limit)

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
        """Change what a chat is called and uses, from its next turn on. Raises as ``create`` does."""
        chat = await self.get(owner, chat_id)
        given = {
            "title": title if title is UNCHANGED else _make_title(title),
            "agent": agent,
            "model": model,
            "choice": choice if choice is UNCHANGED else _normalize_choice(choice),
        }
        changed: Mapping[str, Any] = {key: each for key, each in given.items() if each is not UNCHANGED}
        chat = replace(chat, **changed)
        if changed.keys() & {"agent", "model"}:
            await self._check_agent_and_model(chat)
        if not await self._store.change(chat):
            raise NoSuchChat(_NO_CHAT_MESSAGE, hint="it may have been deleted")
        return chat

    async def _check_agent_and_model(self, chat: Chat) -> None:
        await self._backend.load_tool_set(chat)
        if chat.model is not None:
            self.models.pick(chat.model)

    async def delete(self, owner: str, chat_id: str) -> None:
        """Delete a chat with all that was said in it; its turn is stopped, its connections are closed."""
        await self._turn_runner.stop(await self.get(owner, chat_id), STOPPED_BY_USER)
        await self._store.delete(owner, chat_id)
        await self._backend.release_chat(chat_id)

    # Turns.

    async def send(self, owner: str, chat_id: str, text: str) -> int:
        """Say something; the model answers in a turn of its own, whose number this is. Raises ChatBusy,
        NoSuchModel, ChatRefused."""
        text = sanitize_text(text)
        if not text.strip():
            raise ChatRefused("the message is empty", hint="write something")
        if len(text) > _MAX_MESSAGE_CHARACTERS:
            raise ChatRefused(
                f"the message has {len(text):,} characters; {_MAX_MESSAGE_CHARACTERS:,} is the most"
            )
        return await self._start_model_turn(await self.get(owner, chat_id), text, None)

    async def _start_model_turn(self, chat: Chat, text: str, repeated_turn: int | None) -> int:
        toolbox = await self._backend.load_tool_set(chat)
        model = self.models.pick(resolve_model_id(chat, toolbox)).choice.id
        body = {"text": text, "model": model, "agent": chat.agent, "again": repeated_turn}
        number = await self._turn_runner.begin(chat, toolbox, [NewChatEvent(Kind.USER, body)])
        await self._set_missing_title(chat, text)
        return number

    async def run_tool(self, owner: str, chat_id: str, name: str, arguments: JsonObject) -> int:
        """Call a tool as the person, without a model; the turn's number. Raises ChatBusy, ChatRefused."""
        if not is_storable_json(dict(arguments)):
            raise ChatRefused(
                "the arguments hold something that a chat cannot keep",
                hint="it keeps whole numbers of 64 bits and whole characters; a string holds longer digits",
            )
        return await self._start_tool_turn(
            await self.get(owner, chat_id), sanitize_text(name), arguments, None
        )

    async def _start_tool_turn(
        self, chat: Chat, name: str, arguments: JsonObject, repeated_turn: int | None
    ) -> int:
        toolbox = await self._backend.load_tool_set(chat)
        body = {"name": name, "arguments": dict(arguments), "again": repeated_turn}
        number = await self._turn_runner.begin(chat, toolbox, [NewChatEvent(Kind.RUN, body)])
        await self._set_missing_title(chat, name)
        return number

    async def retry(self, owner: str, chat_id: str) -> int:
        """Run the last turn again, from what began it. What it came to the first time stays in the page, and
        no model is told of it any more. Raises as ``send`` does."""
        chat = await self.get(owner, chat_id)
        begun = await self._store.list_events(chat.id, after=chat.turn - 1, limit=1) if chat.turn else ()
        if not begun:
            raise ChatRefused("there is nothing to retry", hint="write something")
        body = begun[0].body
        if begun[0].kind is Kind.RUN:
            return await self._start_tool_turn(chat, str(body["name"]), body["arguments"], chat.turn)
        return await self._start_model_turn(chat, str(body["text"]), chat.turn)

    async def _set_missing_title(self, chat: Chat, text: str) -> None:
        now = None if chat.title else await self._store.get(chat.owner, chat.id)
        if now is not None and not now.title:
            await self._store.change(replace(now, title=_make_title(text, _MAX_DERIVED_TITLE_CHARACTERS)))

    async def stop(self, owner: str, chat_id: str) -> None:
        """Stop the turn that runs or waits, if one does, in whichever process."""
        chat = await self.get(owner, chat_id)
        if chat.state is not TurnState.IDLE:
            await self._turn_runner.stop(chat, STOPPED_BY_USER)

    async def answer_approval(
        self, owner: str, approval_id: str, *, yes: bool, remember: GrantScope | None = None
    ) -> None:
        """Say yes or no to a call that waits; the turn goes on with the last answer it waits for. Raises
        NoSuchChat where there is no such approval, ChatRefused where it was answered."""
        await self._human_answers.answer_approval(owner, approval_id, yes, remember)

    async def resume_if_answered(self, owner: str, chat_id: str) -> None:
        """Go on with a turn that waits though all was answered, where whoever answered is gone."""
        chat = await self.get(owner, chat_id)
        if chat.state is TurnState.WAITING:
            await self._human_answers.resume_if_answered(chat)

    async def answer_question(
        self, owner: str, chat_id: str, question_id: str, action: str, content: JsonObject | None
    ) -> None:
        """Answer what a server asks: ``accept``, ``decline`` or ``cancel``. Raises NoSuchChat where there is
        no such question, or it was answered."""
        await self._human_answers.answer_question(
            await self.get(owner, chat_id), question_id, action, content
        )

    async def stop_all_turns(self, owner: str) -> None:
        """Somebody may use nothing any more: their turns are stopped, in whichever process."""
        before: tuple[float, str] | None = None
        while chats := await self._store.chats(owner, before=before, limit=_CHATS_PER_PAGE):
            for chat in chats:
                if chat.state is not TurnState.IDLE:
                    await self._turn_runner.stop(chat, STOPPED_BY_USER)
            before = (chats[-1].updated_at, chats[-1].id)

    # What happened.

    async def list_events(
        self, owner: str, chat_id: str, *, after: int = 0, limit: int = 1_000
    ) -> Sequence[ChatEvent]:
        """Events after a number, in order. Raises NoSuchChat, as all of these do."""
        await self.get(owner, chat_id)
        return await self._store.list_events(chat_id, after=after, limit=limit)

    async def list_latest_events(
        self, owner: str, chat_id: str, *, before: int | None = None, limit: int = 200
    ) -> Sequence[ChatEvent]:
        """The last events before a number. See ChatStore."""
        await self.get(owner, chat_id)
        return await self._store.list_latest_events(chat_id, before=before, limit=limit)

    async def wait_for_events(
        self, owner: str, chat_id: str, after: int, seconds: float
    ) -> Sequence[ChatEvent]:
        """Events after a number, as soon as there are any. See ChatStore."""
        await self.get(owner, chat_id)
        return await self._store.wait_for_events(chat_id, after, seconds)

    async def result(self, owner: str, chat_id: str, seq: int) -> FullResult | None:
        """The whole of a RESULT event; None where that number has none."""
        await self.get(owner, chat_id)
        found = await self._store.list_events(chat_id, after=seq - 1, limit=1)
        if not found or found[0].seq != seq or found[0].kind is not Kind.RESULT:
            return None
        kept = await self._store.kept(chat_id, seq) if found[0].has_kept else None
        return read_full_result(found[0].body, kept)

    async def tools(self, owner: str, chat_id: str) -> Sequence[ToolView]:
        """Every tool that is known, with the words of the rule that hides it where one does. What the person
        ticked in this chat hides nothing here."""
        return await self._list_tool_views(await self.get(owner, chat_id))

    async def offered(self, owner: str, *, agent: str | None = None) -> Sequence[ToolView]:
        """The same, as a chat would have them that is yet to begin."""
        chat = Chat(secrets.token_hex(12), owner, "", 0.0, 0.0, agent)
        try:
            return await self._list_tool_views(chat)
        finally:
            await self._backend.release_chat(chat.id)

    async def _list_tool_views(self, chat: Chat) -> Sequence[ToolView]:
        toolbox = await self._backend.load_tool_set(replace(chat, choice=None))
        return await list_tool_views(toolbox if self.models.choices else toolbox.for_operator())


def _make_title(text: str, max_characters: int = _MAX_TITLE_CHARACTERS) -> str:
    """The first line that says something, shortened."""
    lines = (" ".join(line.split()) for line in sanitize_text(text).splitlines())
    first = next((line for line in lines if line), "")
    return first if len(first) <= max_characters else f"{first[: max_characters - 1].rstrip()}…"


def _normalize_choice(tool_ids: Iterable[str] | None) -> tuple[str, ...] | None:
    if tool_ids is None:
        return None
    found = tuple(sorted({sanitize_text(each) for each in tool_ids}))
    if len(found) > _MAX_CHOSEN_TOOLS:
        raise ChatRefused(f"{len(found):,} tools were chosen; {_MAX_CHOSEN_TOOLS:,} is the most")
    return found
