"""Storage of proposed servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from sqlalchemy import Connection, delete, func, select, update

from toolyard.errors import LimitReached
from toolyard.store.repositories.rows import delete_all_but_newest
from toolyard.store.sql.executor import DatabaseExecutor, Repository, transaction
from toolyard.store.sql.stored_values import MAX_TEXT_CHARACTERS, clean_text, json_text
from toolyard.store.sql.tables import proposals, users
from toolyard.types.plurals import format_count
from toolyard.types.proposal import Proposal, ProposalState

__all__ = ["SqlProposalStore"]

_MAX_LISTED = 500
_SELECT = select(proposals, users.c.name.label("user_name")).join(users, users.c.id == proposals.c.user_id)
_IS_OPEN = proposals.c.state == ProposalState.OPEN.value


class SqlProposalStore(Repository):
    """Proposals in a table. Those of a deleted person are deleted with them."""

    def __init__(self, executor: DatabaseExecutor, *, max_open: int = 20, max_decided: int = 50) -> None:
        """``max_open`` and ``max_decided`` limit the proposals of one person: more are refused, and the
        oldest decided ones are deleted."""
        super().__init__(executor)
        self._max_open = max_open
        self._max_decided = max_decided

    @transaction
    def add(self, connection: Connection, proposal: Proposal) -> None:
        """Store a proposal. Raises LimitReached or StoreError."""
        values = {
            "id": proposal.id,
            "user_id": proposal.user_id,
            "name": clean_text(proposal.name, MAX_TEXT_CHARACTERS),
            "reason": clean_text(proposal.reason, MAX_TEXT_CHARACTERS),
            "known_id": proposal.known_id,
            "entry": None if proposal.entry is None else json_text(dict(proposal.entry)),
            "state": proposal.state.value,
            "answer": "",
            "decided_by": "",
            "created_at": proposal.created_at,
        }
        is_own = proposals.c.user_id == proposal.user_id
        count = select(func.count()).where(is_own, _IS_OPEN)
        if connection.execute(count).scalar_one() >= self._max_open:
            raise LimitReached(
                f"the limit of {format_count(self._max_open, 'open proposal')} is reached",
                hint="withdraw one, or wait until an admin has decided",
            )
        connection.execute(proposals.insert().values(**values))
        delete_all_but_newest(
            connection, proposals, is_own & ~_IS_OPEN, proposals.c.decided_at, self._max_decided
        )

    async def get(self, proposal_id: str) -> Proposal | None:
        """Return a proposal of anyone."""
        return await self._executor.fetch_one(
            _SELECT.where(proposals.c.id == proposal_id), _proposal_from_row
        )

    async def list(self, user_id: str | None = None) -> Sequence[Proposal]:
        """Return the proposals of a person, or of everyone: open ones first, then the newest, at most 500."""
        query = _SELECT.order_by(_IS_OPEN.desc(), proposals.c.created_at.desc(), proposals.c.id)
        if user_id is not None:
            query = query.where(proposals.c.user_id == user_id)
        return await self._executor.fetch_all(query.limit(_MAX_LISTED), _proposal_from_row)

    async def list_unseen(self, user_id: str) -> Sequence[Proposal]:
        """Return the decided proposals of a person that they have not seen since."""
        query = _SELECT.where(proposals.c.user_id == user_id, ~_IS_OPEN, proposals.c.seen_at.is_(None))
        return await self._executor.fetch_all(query.order_by(proposals.c.decided_at), _proposal_from_row)

    async def mark_seen(self, user_id: str, at: float) -> None:
        """Remember that a person has seen all decisions."""
        unseen = (proposals.c.user_id == user_id) & ~_IS_OPEN & proposals.c.seen_at.is_(None)
        await self._executor.execute_by_key(update(proposals).where(unseen).values(seen_at=at))

    async def decide(
        self,
        proposal_id: str,
        state: ProposalState,
        *,
        by: str,
        at: float,
        answer: str = "",
        server_id: str | None = None,
    ) -> bool:
        """Store a decision. Return False if the proposal is not open any more."""
        values = {
            "state": state.value,
            "answer": clean_text(answer, MAX_TEXT_CHARACTERS),
            "decided_by": by,
            "decided_at": at,
            "server_id": server_id,
        }
        statement = update(proposals).where(proposals.c.id == proposal_id, _IS_OPEN).values(**values)
        return await self._executor.execute_by_key(statement) > 0

    async def delete(self, user_id: str, proposal_id: str) -> bool:
        """Delete a proposal of a person. Return False if they have none with this id."""
        own = (proposals.c.id == proposal_id) & (proposals.c.user_id == user_id)
        return await self._executor.execute_by_key(delete(proposals).where(own)) > 0


def _proposal_from_row(row: Any) -> Proposal:
    values: dict[str, Any] = {**row._mapping, "state": ProposalState(row.state)}
    if row.entry is not None:
        values["entry"] = orjson.loads(row.entry)
    return Proposal(**values)
