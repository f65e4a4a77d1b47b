"""Chats, for every door: talk, run tools, answer what is asked, and see what happened. Each for its owner."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from typing import Any, Final

from toolyard.agents.chat.approval_grants import Remember
from toolyard.agents.chat.chat_backend import ChatYard
from toolyard.agents.chat.chat_settings import ChatRules
from toolyard.agents.chat.elicitation import Questions
from toolyard.agents.chat.errors import ChatRefused, NoSuchChat
from toolyard.agents.chat.human_answers import Answering
from toolyard.agents.chat.result_event import Kept, read_kept
from toolyard.agents.chat.resumption import Resuming
from toolyard.agents.chat.runner_id import runner_id
from toolyard.agents.chat.sanitize import clean, fits_in_json
from toolyard.agents.chat.storage import ApprovalStore, ChatStore
from toolyard.agents.chat.tool_picker import ToolView, tool_views
from toolyard.agents.chat.turn import TALKING, Desk, wanted_model
from toolyard.agents.chat.turn_runner import STOPPED, Running
from toolyard.agents.models.available_models import Models
from toolyard.agents.models.errors import ModelError
from toolyard.types.chat import Chat, Event, Kind, NewEvent, TurnState
from toolyard.types.tool import JsonObject

__all__ = ["UNCHANGED", "Chats", "Kept", "Remember", "ToolView", "Unchanged"]

_TITLE = 60
_LONGEST_TITLE = 200
_LONGEST_MESSAGE = 1_000_000
_MOST_CHOSEN = 5_000
_PAGE = 500
_NO_CHAT = "there is no such chat"


class Unchanged(Enum):
    """The type of ``UNCHANGED``."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED
"""Says of a field that it stays as it is, where None has a meaning."""


class Chats:
    """The chats of one process's doors. ``open`` first, ``close`` at the end."""

    def __init__(
        self,
        store: ChatStore,
        approvals: ApprovalStore,
        models: Models,
        yard: ChatYard,
        rules: ChatRules,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.questions = Questions(store, rules)
        """Puts what servers ask to the people whose calls are under way."""
        self.models = models
        self._store = store
        self._yard = yard
        self._clock = clock
        desk = Desk(store, approvals, models, self.questions, rules, runner_id(), clock)
        self._running = Running(desk, yard)
        self._answering = Answering(desk, self._running)
        self._resuming = Resuming(store, self._answering)

    async def open(self, *, everybodys: bool = False) -> None:
        """Begin: turns that were left behind are ended, stops that are asked for elsewhere are heard.
        ``everybodys``: this process can work on any chat, and goes on with those that only seem to wait."""
        await self._running.open()
        if everybodys:
            self._resuming.open()

    async def warm(self, model: str | None = None) -> None:
        """Load what the first turn with this model, or the default, needs, before somebody waits for it;
        without a model, nothing. What is wrong is told in the turn."""
        if model is not None or self.models.default is not None:
            with suppress(ModelError):
                await self.models.loading.loaded(*TALKING)
                await self.models.warm(model)

    async def close(self) -> None:
        """End: turns that run here end as interrupted. Bounded; may be called twice."""
        await self._resuming.close()
        await self._running.close()

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
        chat = Chat(secrets.token_hex(12), owner, _title(title), now, now, agent, model, _choice(choice))
        await self._check(chat)
        await self._store.create(chat)
        return chat

    async def get(self, owner: str, chat_id: str) -> Chat:
        """One of the owner's chats. Raises NoSuchChat."""
        found = await self._store.get(owner, chat_id)
        if found is None:
            raise NoSuchChat(_NO_CHAT, hint="it may have been deleted")
        return found

    async def list(
        self,
        owner: str,
        *,
        words: str | None = None,
        before: tuple[float, str] | None = None,
        limit: int = 50,
    ) -> Sequence[Chat]:
        """The owner's chats, the one that changed last first. See ChatStore."""
        return await self._store.chats(owner, words=words, before=before, limit=limit)

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
            "title": title if title is UNCHANGED else _title(title),
            "agent": agent,
            "model": model,
            "choice": choice if choice is UNCHANGED else _choice(choice),
        }
        changed: Mapping[str, Any] = {key: each for key, each in given.items() if each is not UNCHANGED}
        chat = replace(chat, **changed)
        if changed.keys() & {"agent", "model"}:
            await self._check(chat)
        if not await self._store.change(chat):
            raise NoSuchChat(_NO_CHAT, hint="it may have been deleted")
        return chat

    async def _check(self, chat: Chat) -> None:
        await self._yard.toolbox(chat)
        if chat.model is not None:
            self.models.pick(chat.model)

    async def delete(self, owner: str, chat_id: str) -> None:
        """Delete a chat with all that was said in it; its turn is stopped, its connections are closed."""
        await self._running.stop(await self.get(owner, chat_id), STOPPED)
        await self._store.delete(owner, chat_id)
        await self._yard.leave(chat_id)

    # Turns.

    async def send(self, owner: str, chat_id: str, text: str) -> int:
        """Say something; the model answers in a turn of its own, whose number this is. Raises ChatBusy,
        NoSuchModel, ChatRefused."""
        text = clean(text)
        if not text.strip():
            raise ChatRefused("the message is empty", hint="write something")
        if len(text) > _LONGEST_MESSAGE:
            raise ChatRefused(f"the message has {len(text):,} characters; {_LONGEST_MESSAGE:,} is the most")
        return await self._send(await self.get(owner, chat_id), text, None)

    async def _send(self, chat: Chat, text: str, again: int | None) -> int:
        toolbox = await self._yard.toolbox(chat)
        model = self.models.pick(wanted_model(chat, toolbox)).choice.id
        body = {"text": text, "model": model, "agent": chat.agent, "again": again}
        number = await self._running.begin(chat, toolbox, [NewEvent(Kind.USER, body)])
        await self._name(chat, text)
        return number

    async def run(self, owner: str, chat_id: str, name: str, arguments: JsonObject) -> int:
        """Call a tool as the person, without a model; the turn's number. Raises ChatBusy, ChatRefused."""
        if not fits_in_json(dict(arguments)):
            raise ChatRefused(
                "the arguments hold something that a chat cannot keep",
                hint="it keeps whole numbers of 64 bits and whole characters; a string holds longer digits",
            )
        return await self._run(await self.get(owner, chat_id), clean(name), arguments, None)

    async def _run(self, chat: Chat, name: str, arguments: JsonObject, again: int | None) -> int:
        toolbox = await self._yard.toolbox(chat)
        body = {"name": name, "arguments": dict(arguments), "again": again}
        number = await self._running.begin(chat, toolbox, [NewEvent(Kind.RUN, body)])
        await self._name(chat, name)
        return number

    async def retry(self, owner: str, chat_id: str) -> int:
        """Run the last turn again, from what began it. What it came to the first time stays in the page, and
        no model is told of it any more. Raises as ``send`` does."""
        chat = await self.get(owner, chat_id)
        begun = await self._store.events(chat.id, after=chat.turn - 1, limit=1) if chat.turn else ()
        if not begun:
            raise ChatRefused("there is nothing to retry", hint="write something")
        body = begun[0].body
        if begun[0].kind is Kind.RUN:
            return await self._run(chat, str(body["name"]), body["arguments"], chat.turn)
        return await self._send(chat, str(body["text"]), chat.turn)

    async def _name(self, chat: Chat, words: str) -> None:
        now = None if chat.title else await self._store.get(chat.owner, chat.id)
        if now is not None and not now.title:
            await self._store.change(replace(now, title=_title(words, _TITLE)))

    async def stop(self, owner: str, chat_id: str) -> None:
        """Stop the turn that runs or waits, if one does, in whichever process."""
        chat = await self.get(owner, chat_id)
        if chat.state is not TurnState.IDLE:
            await self._running.stop(chat, STOPPED)

    async def answer(
        self, owner: str, approval_id: str, *, yes: bool, remember: Remember | None = None
    ) -> None:
        """Say yes or no to a call that waits; the turn goes on with the last answer it waits for. Raises
        NoSuchChat where there is no such approval, ChatRefused where it was answered."""
        await self._answering.answer(owner, approval_id, yes, remember)

    async def take_up(self, owner: str, chat_id: str) -> None:
        """Go on with a turn that waits though all was answered, where whoever answered is gone."""
        chat = await self.get(owner, chat_id)
        if chat.state is TurnState.WAITING:
            await self._answering.take_up(chat)

    async def respond(
        self, owner: str, chat_id: str, question_id: str, action: str, content: JsonObject | None
    ) -> None:
        """Answer what a server asks: ``accept``, ``decline`` or ``cancel``. Raises NoSuchChat where there is
        no such question, or it was answered."""
        await self._answering.respond(await self.get(owner, chat_id), question_id, action, content)

    async def leave(self, owner: str) -> None:
        """Somebody may use nothing any more: their turns are stopped, in whichever process."""
        before: tuple[float, str] | None = None
        while chats := await self._store.chats(owner, before=before, limit=_PAGE):
            for chat in chats:
                if chat.state is not TurnState.IDLE:
                    await self._running.stop(chat, STOPPED)
            before = (chats[-1].updated_at, chats[-1].id)

    # What happened.

    async def events(
        self, owner: str, chat_id: str, *, after: int = 0, limit: int = 1_000
    ) -> Sequence[Event]:
        """Events after a number, in order. Raises NoSuchChat, as all of these do."""
        await self.get(owner, chat_id)
        return await self._store.events(chat_id, after=after, limit=limit)

    async def latest(
        self, owner: str, chat_id: str, *, before: int | None = None, limit: int = 200
    ) -> Sequence[Event]:
        """The last events before a number. See ChatStore."""
        await self.get(owner, chat_id)
        return await self._store.latest(chat_id, before=before, limit=limit)

    async def wait(self, owner: str, chat_id: str, after: int, seconds: float) -> Sequence[Event]:
        """Events after a number, as soon as there are any. See ChatStore."""
        await self.get(owner, chat_id)
        return await self._store.wait(chat_id, after, seconds)

    async def result(self, owner: str, chat_id: str, seq: int) -> Kept | None:
        """The whole of a RESULT event; None where that number has none."""
        await self.get(owner, chat_id)
        found = await self._store.events(chat_id, after=seq - 1, limit=1)
        if not found or found[0].seq != seq or found[0].kind is not Kind.RESULT:
            return None
        kept = await self._store.kept(chat_id, seq) if found[0].has_kept else None
        return read_kept(found[0].body, kept)

    async def tools(self, owner: str, chat_id: str) -> Sequence[ToolView]:
        """Every tool that is known, with the words of the rule that hides it where one does. What the person
        ticked in this chat hides nothing here."""
        return await self._views(await self.get(owner, chat_id))

    async def offered(self, owner: str, *, agent: str | None = None) -> Sequence[ToolView]:
        """The same, as a chat would have them that is yet to begin."""
        chat = Chat(secrets.token_hex(12), owner, "", 0.0, 0.0, agent)
        try:
            return await self._views(chat)
        finally:
            await self._yard.leave(chat.id)

    async def _views(self, chat: Chat) -> Sequence[ToolView]:
        toolbox = await self._yard.toolbox(replace(chat, choice=None))
        return await tool_views(toolbox if self.models.choices else toolbox.as_person())


def _title(words: str, longest: int = _LONGEST_TITLE) -> str:
    """The first line that says something, shortened."""
    lines = (" ".join(line.split()) for line in clean(words).splitlines())
    first = next((line for line in lines if line), "")
    return first if len(first) <= longest else f"{first[: longest - 1].rstrip()}…"


def _choice(ids: Iterable[str] | None) -> tuple[str, ...] | None:
    if ids is None:
        return None
    found = tuple(sorted({clean(each) for each in ids}))
    if len(found) > _MOST_CHOSEN:
        raise ChatRefused(f"{len(found):,} tools were chosen; {_MOST_CHOSEN:,} is the most")
    return found
