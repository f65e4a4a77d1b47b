"""Query for everything that waits for a person, without arguments and forms, which may be large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, case, func, literal, select, union_all

from toolyard.store.sql.executor import DatabaseExecutor
from toolyard.store.sql.tables import approvals, chat_events, chats, proposals, questions
from toolyard.types.approval import PendingItem, PendingKind
from toolyard.types.chat import Kind, TurnState
from toolyard.types.proposal import ProposalState

__all__ = ["SqlPendingItems"]

_MAX_ITEMS = 100


class SqlPendingItems:
    """Reads the pending items of a person."""

    def __init__(self, executor: DatabaseExecutor) -> None:
        self._executor = executor

    async def list(self, owner: str, now: float, *, with_proposals: bool = False) -> Sequence[PendingItem]:
        """Return the items of a person, oldest first, at most 100; with those of admins on request.

        Raises StoreError.
        """
        open_approvals = select(
            literal(PendingKind.APPROVAL.value), approvals.c.id, approvals.c.name, approvals.c.asked_at
        ).where(approvals.c.owner == owner, approvals.c.answered_at.is_(None), approvals.c.chat_id.is_(None))
        open_questions = select(
            literal(PendingKind.QUESTION.value), questions.c.id, questions.c.server, questions.c.asked_at
        ).where(questions.c.owner == owner, questions.c.expires_at > now)
        active_chats = _select_active_chats(owner)
        open_proposals = select(
            literal(PendingKind.PROPOSAL.value), proposals.c.id, proposals.c.name, proposals.c.created_at
        ).where(proposals.c.state == ProposalState.OPEN.value)
        selected = (active_chats, open_approvals, open_questions, open_proposals)
        query = union_all(*selected[: 4 if with_proposals else 3]).order_by("since").limit(_MAX_ITEMS)

        def work(connection: Connection) -> Sequence[PendingItem]:
            return [PendingItem(PendingKind(kind), *rest) for kind, *rest in connection.execute(query)]

        return await self._executor.read(work)


def _select_active_chats(owner: str) -> Any:
    # A turn keeps running while a server's question is open, unlike while a call needs approval.
    has_question = _count_events(Kind.QUESTION) > _count_events(Kind.QUESTION_ANSWER)
    is_waiting = (chats.c.state == TurnState.WAITING.value) | has_question
    kind = case((is_waiting, PendingKind.WAITING_CHAT.value), else_=PendingKind.RUNNING_CHAT.value)
    columns = (kind.label("kind"), chats.c.id, chats.c.title, chats.c.updated_at.label("since"))
    return select(*columns).where(chats.c.owner == owner, chats.c.state != TurnState.IDLE.value)


def _count_events(kind: Kind) -> Any:
    """Count the events of a kind in the last turn of the chat."""
    is_in_turn = (chat_events.c.chat_id == chats.c.id) & (chat_events.c.seq >= chats.c.turn)
    return select(func.count()).where(is_in_turn, chat_events.c.kind == kind.value).scalar_subquery()
