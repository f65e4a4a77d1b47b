"""What a person answers: yes or no to a call that waits, a form that a server sent."""

from __future__ import annotations

from typing import Any

import orjson

from toolyard.agents.chat.approval_grants import Remember, Wanted, covers, granted, remembered_words
from toolyard.agents.chat.elicitation import answered_event
from toolyard.agents.chat.errors import ChatRefused, NoSuchChat
from toolyard.agents.chat.sanitize import fits_in_json
from toolyard.agents.chat.turn import Desk
from toolyard.agents.chat.turn_log import read_turn
from toolyard.agents.chat.turn_runner import Running
from toolyard.agents.chat.turn_snapshot import Standing
from toolyard.types.approval import Approval, Grant
from toolyard.types.chat import Chat, Kind, NewEvent
from toolyard.types.clock import is_recent
from toolyard.types.tool import JsonObject

__all__ = ["Answering"]

_ACTIONS = ("accept", "decline", "cancel")
_CONTENT = 64_000
_TELLING = 30.0
"""Seconds after which whoever stored an answer does not tell the chat any more."""


class Answering:
    """Takes answers, in whichever process the person reached."""

    def __init__(self, desk: Desk, running: Running) -> None:
        self._desk = desk
        self._running = running

    # Approvals.

    async def answer(self, owner: str, approval_id: str, yes: bool, remember: Remember | None) -> None:
        """See ``Chats.answer``."""
        approval = await self._desk.approvals.find(owner, approval_id)
        if approval is None:
            raise NoSuchChat("there is no such approval", hint="its chat may have been deleted")
        if approval.chat_id is None:
            await self._store(approval, yes, remember)
            return
        chat = await self._desk.store.get(owner, approval.chat_id)
        standing = await self._standing(chat)
        if chat is None or approval_id not in standing.unanswered:
            await self._forget(approval)
            raise ChatRefused("this call does not wait for an answer any more", hint="look at the chat")
        if approval.answered_at is None:
            grant = await self._store(approval, yes, remember)
        else:
            # Whoever answered could not tell the chat; what they said counts.
            yes, remember, grant = approval.yes is True, None, None
        await self._desk.store.remark(chat.id, [_told(approval, yes, remember)])
        if grant is not None and remember is not None:
            await self._cover(chat, standing, approval_id, grant)
        if not (await self._standing(chat)).unanswered:
            await self._running.go_on(chat)

    async def take_up(self, chat: Chat) -> None:
        """Go on with a turn that waits, if all that it waits for was answered a while ago."""
        for id in (await self._standing(chat)).unanswered:
            approval = await self._desk.approvals.find(chat.owner, id)
            if approval is None or approval.answered_at is None:
                return
            if is_recent(approval.answered_at, self._desk.clock(), _TELLING):
                return
            await self._desk.store.remark(chat.id, [_told(approval, approval.yes is True, None)])
        await self._running.go_on(chat)

    async def _standing(self, chat: Chat | None) -> Standing:
        if chat is None:
            return Standing()
        return Standing.of(await read_turn(self._desk.store, chat.id, chat.turn))

    async def _store(self, approval: Approval, yes: bool, remember: Remember | None) -> Grant | None:
        now = self._desk.clock()
        grant = granted(approval, remember, now) if yes else None
        stored = await self._desk.approvals.answer(approval.owner, approval.id, yes=yes, at=now, grant=grant)
        if not stored:
            raise ChatRefused("this was answered already", hint="look at the chat")
        return grant

    async def _forget(self, approval: Approval) -> None:
        """What nobody waits for shall not be listed as waiting."""
        now = self._desk.clock()
        await self._desk.approvals.answer(approval.owner, approval.id, yes=False, at=now, grant=None)

    async def _cover(self, chat: Chat, standing: Standing, answered: str, grant: Grant) -> None:
        """A yes that reaches further answers the other calls of the turn that it covers."""
        now = self._desk.clock()
        for id in standing.unanswered:
            other = None if id == answered else await self._desk.approvals.find(chat.owner, id)
            if other is None or not covers(grant, _wanted(other), chat.id, now):
                continue
            if await self._desk.approvals.answer(chat.owner, id, yes=True, at=now, grant=None):
                await self._desk.store.remark(chat.id, [_told(other, True, None)])

    # Questions of servers.

    async def respond(self, chat: Chat, question_id: str, action: str, content: JsonObject | None) -> None:
        """See ``Chats.respond``."""
        if action not in _ACTIONS:
            raise ChatRefused(f"a question is answered by {', '.join(_ACTIONS)}, not by '{action[:40]}'")
        given = None if content is None else dict(content)
        if given is not None and (not fits_in_json(given) or len(orjson.dumps(given)) > _CONTENT):
            raise ChatRefused("the answer cannot be sent: it is too long, or no JSON")
        if question_id not in (await self._standing(chat)).questions:
            raise NoSuchChat("there is no such question, or it was answered", hint="look at the chat")
        await self._desk.store.remark(chat.id, [answered_event(question_id, action, given)])


def _told(approval: Approval, yes: bool, remember: Remember | None) -> NewEvent:
    body: dict[str, Any] = {
        "id": approval.call_id,
        "approval": approval.id,
        "yes": yes,
        "remembered": remembered_words(remember) if yes and remember is not None else None,
    }
    return NewEvent(Kind.ANSWER, body)


def _wanted(approval: Approval) -> Wanted:
    return Wanted(approval.tool, approval.name, approval.definition_hash, approval.arguments, approval.reason)
