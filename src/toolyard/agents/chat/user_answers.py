"""Process a user's answers: approvals of calls, and answers to servers' questions."""

from __future__ import annotations

import asyncio
import logging

import orjson

from toolyard.agents.chat.approval_grants import GrantScope, create_grant, describe_grant_scope, grant_covers
from toolyard.agents.chat.errors import ChatRefused, NoSuchChat
from toolyard.agents.chat.server_questions import question_answer_event
from toolyard.agents.chat.storable_values import is_storable_json
from toolyard.agents.chat.turn import TurnServices
from toolyard.agents.chat.turn_log import read_turn
from toolyard.agents.chat.turn_snapshot import TurnSnapshot
from toolyard.agents.chat.turn_supervisor import TurnSupervisor, repeat_forever
from toolyard.errors import ToolyardError
from toolyard.types.approval import Approval, Grant
from toolyard.types.chat import ApprovalAnswer, Chat, NewChatEvent
from toolyard.types.timestamps import is_recent
from toolyard.types.tool import JsonObject

__all__ = ["UserAnswers"]

log = logging.getLogger("toolyard.chat")

_RESUME_INTERVAL_SECONDS = 60.0
"""Time between two searches for resumable turns."""
_ANSWER_ACTIONS = ("accept", "decline", "cancel")
_MAX_CONTENT_BYTES = 64_000
_ANSWER_DELIVERY_SECONDS = 30.0
"""Time after which the process that stored an answer is assumed not to append it to the chat any more."""


class UserAnswers:
    """Processes answers in whichever process received them."""

    def __init__(self, context: TurnServices, turn_supervisor: TurnSupervisor) -> None:
        self._context = context
        self.turn_supervisor = turn_supervisor
        self._resume_task: asyncio.Task[None] | None = None

    def start_resuming(self) -> None:
        """Resume answered turns in the background, beginning with those left before this process started.

        For a process that can load the tools of every chat.
        """
        work = repeat_forever(self._resume_answered_turns)
        self._resume_task = asyncio.get_running_loop().create_task(work)

    async def close(self) -> None:
        """Stop the background task."""
        if self._resume_task is not None:
            self._resume_task.cancel()
            await asyncio.wait([self._resume_task])

    async def _resume_answered_turns(self) -> None:
        for chat in await self._context.store.find_resumable():
            try:
                await self.resume_if_answered(chat)
            except ToolyardError as error:
                # One failing turn must not prevent the others from being resumed.
                log.warning("chat %s: a waiting turn cannot be resumed: %s", chat.id, error.cause)
        await asyncio.sleep(_RESUME_INTERVAL_SECONDS)

    # Approvals.

    async def answer_approval(
        self, owner: str, approval_id: str, yes: bool, remember: GrantScope | None, unattended: bool = False
    ) -> Approval:
        """Store an answer, append it to the chat, and resume the turn if it was the last missing one.

        Returns the approval as it was before. Raises NoSuchChat for an unknown approval, ChatRefused if it
        was already answered.
        """
        approval = await self._context.approvals.find(owner, approval_id)
        if approval is None:
            raise NoSuchChat("approval not found", hint="its chat may have been deleted")
        if approval.chat_id is None:
            await self._store_answer(approval, yes, remember)
            return approval
        chat = await self._context.store.get(owner, approval.chat_id)
        snapshot = await self._read_snapshot(chat)
        if chat is None or approval_id not in snapshot.pending_approval_ids:
            await self._close_stale_approval(approval)
            raise ChatRefused(
                "this call is no longer waiting for an answer", hint="open the chat to see its state"
            )
        # The answer is stored in two steps, approval and event, which may be interrupted in between. The
        # first step decides; repeating the second one writes the same answer.
        if approval.answered_at is None:
            grant = await self._store_answer(approval, yes, remember)
        else:
            # The answer was stored, but the process that stored it could not append it to the chat. The
            # stored answer counts.
            yes, remember, grant = approval.yes is True, None, None
        await self._context.store.append_without_claim(
            chat.id, [_approval_answer_event(approval, yes, remember, unattended)]
        )
        if grant is not None and remember is not None:
            await self._answer_covered_calls(chat, snapshot, approval_id, grant)
        # Read again, since two answers may arrive at the same time in two processes: the later one resumes
        # the turn. If both do, the claim lets one of them through.
        if not (await self._read_snapshot(chat)).pending_approval_ids:
            await self.turn_supervisor.resume(chat)
        return approval

    async def resume_if_answered(self, chat: Chat) -> None:
        """Resume a waiting turn if all its approvals were answered some time ago."""
        for id in (await self._read_snapshot(chat)).pending_approval_ids:
            approval = await self._context.approvals.find(chat.owner, id)
            if approval is None or approval.answered_at is None:
                return
            # The process that stored the answer may be about to append it. Appending here as well would
            # duplicate it.
            if is_recent(approval.answered_at, self._context.clock(), _ANSWER_DELIVERY_SECONDS):
                return
            await self._context.store.append_without_claim(
                chat.id, [_approval_answer_event(approval, approval.yes is True, None)]
            )
        await self.turn_supervisor.resume(chat)

    async def _read_snapshot(self, chat: Chat | None) -> TurnSnapshot:
        if chat is None:
            return TurnSnapshot()
        return await read_turn(self._context.store, chat.id, chat.turn)

    async def _store_answer(self, approval: Approval, yes: bool, remember: GrantScope | None) -> Grant | None:
        now = self._context.clock()
        grant = create_grant(approval, remember, now) if yes else None
        stored = await self._context.approvals.answer(
            approval.owner, approval.id, yes=yes, at=now, grant=grant
        )
        if not stored:
            raise ChatRefused("this approval was already answered", hint="open the chat to see its state")
        return grant

    async def _close_stale_approval(self, approval: Approval) -> None:
        """Deny an approval that no turn waits for, so that it is no longer listed as pending."""
        now = self._context.clock()
        await self._context.approvals.answer(approval.owner, approval.id, yes=False, at=now, grant=None)

    async def _answer_covered_calls(
        self, chat: Chat, snapshot: TurnSnapshot, answered_approval_id: str, grant: Grant
    ) -> None:
        """Approve the other pending calls of the turn that a new grant covers."""
        now = self._context.clock()
        for id in snapshot.pending_approval_ids:
            other = None if id == answered_approval_id else await self._context.approvals.find(chat.owner, id)
            if other is None or not grant_covers(grant, other, now):
                continue
            if await self._context.approvals.answer(chat.owner, id, yes=True, at=now, grant=None):
                await self._context.store.append_without_claim(
                    chat.id, [_approval_answer_event(other, True, None)]
                )

    # Questions from servers.

    async def answer_question(
        self, chat: Chat, question_id: str, action: str, content: JsonObject | None
    ) -> None:
        """Append the answer to a server's question. Raises NoSuchChat or ChatRefused."""
        if action not in _ANSWER_ACTIONS:
            raise ChatRefused(
                f"'{action[:40]}' is not a valid action; use one of {', '.join(_ANSWER_ACTIONS)}"
            )
        answer_content = None if content is None else dict(content)
        if answer_content is not None and (
            not is_storable_json(answer_content) or len(orjson.dumps(answer_content)) > _MAX_CONTENT_BYTES
        ):
            raise ChatRefused("the answer cannot be sent: it is too long, or not valid JSON")
        open_questions = (await self._read_snapshot(chat)).open_questions
        if all(asked.question.id != question_id for asked in open_questions):
            raise NoSuchChat("question not found, or already answered", hint="open the chat to see its state")
        await self._context.store.append_without_claim(
            chat.id, [question_answer_event(question_id, action, answer_content)]
        )


def _approval_answer_event(
    approval: Approval, yes: bool, remember: GrantScope | None, unattended: bool = False
) -> NewChatEvent:
    remembered = describe_grant_scope(remember) if yes and remember is not None else None
    answer = ApprovalAnswer(approval.call_id or "", approval.id, yes, remembered, unattended)
    return NewChatEvent.from_data(answer)
