"""Storage of pending approvals and of standing approvals (grants)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson
from sqlalchemy import Connection, and_, delete, or_, select, update
from sqlalchemy.exc import IntegrityError

from toolyard.errors import NoSuchChat
from toolyard.store.repositories.row_limits import delete_all_but_newest
from toolyard.store.sql.columns import MAX_TEXT_CHARACTERS, clean_text
from toolyard.store.sql.dialects import violated_constraint
from toolyard.store.sql.executor import DatabaseExecutor
from toolyard.store.sql.json_text import json_text
from toolyard.store.sql.tables import approvals, grants
from toolyard.types.approval import Approval, Grant, select_usable_grants
from toolyard.types.clock import CLOCK_SKEW_SECONDS
from toolyard.types.tool import JsonObject

__all__ = ["SqlApprovalStore"]

_ORPHAN_MAX_AGE_SECONDS = 30 * 86_400.0
"""Age after which an approval that belongs to no chat is deleted, answered or not."""

_MAX_ANSWERED_PER_OWNER = 200
"""Maximum number of answered approvals without a chat. A program may answer its own in a loop."""
_MAX_GRANTS_PER_OWNER = 500
_MAX_SEARCHED_APPROVALS = 500
"""Maximum number of answered approvals among which the last one of a tool is searched."""


class SqlApprovalStore:
    """ApprovalStore in SQL tables."""

    def __init__(
        self,
        executor: DatabaseExecutor,
        *,
        max_answered_per_owner: int = _MAX_ANSWERED_PER_OWNER,
        max_grants_per_owner: int = _MAX_GRANTS_PER_OWNER,
    ) -> None:
        self._executor = executor
        self._max_answered_per_owner = max_answered_per_owner
        self._max_grants_per_owner = max_grants_per_owner

    async def add(self, approval: Approval) -> None:
        """Add an approval, and delete old ones without a chat. Those of a chat stay as long as the chat.

        Raises NoSuchChat if the chat was deleted.
        """

        def work(connection: Connection) -> None:
            is_old = approvals.c.asked_at < approval.asked_at - _ORPHAN_MAX_AGE_SECONDS
            connection.execute(delete(approvals).where(approvals.c.chat_id.is_(None), is_old))
            _insert_for_chat(connection, approvals.insert().values(**_approval_values(approval)))

        await self._executor.write(work)

    async def find(self, owner: str, approval_id: str) -> Approval | None:
        query = select(approvals).where(_owner_condition(approvals, owner, approval_id))
        row = await self._executor.read_or_default(
            lambda connection: connection.execute(query).one_or_none(), None
        )
        return None if row is None else _approval_from_row(row)

    async def find_last_approved(self, owner: str, tool: str) -> Approval | None:
        """Return the last call of a tool that a user approved, if it is among the last answered ones."""
        answered = (approvals.c.owner == owner) & approvals.c.answered_at.is_not(None)
        # The name of a tool may be too long for an index.
        columns = (approvals.c.id, approvals.c.tool, approvals.c.yes, approvals.c.answered_at)
        newest_first = select(*columns).where(answered).order_by(approvals.c.answered_at.desc())
        recent = newest_first.limit(_MAX_SEARCHED_APPROVALS).subquery()
        found = (
            select(recent.c.id)
            .where(recent.c.tool == _clean_tool_name(tool), recent.c.yes.is_(True))
            .order_by(recent.c.answered_at.desc(), recent.c.id)
            .limit(1)
        )
        query = select(approvals).where(approvals.c.id.in_(found))
        row = await self._executor.read_or_default(
            lambda connection: connection.execute(query).one_or_none(), None
        )
        return None if row is None else _approval_from_row(row)

    async def list_pending(self, owner: str) -> Sequence[Approval]:
        is_waiting = (approvals.c.owner == owner) & approvals.c.answered_at.is_(None)
        query = select(approvals).where(is_waiting).order_by(approvals.c.asked_at, approvals.c.id)
        # Arguments may be long: decode them in the executor's thread.
        return await self._executor.read_or_default(
            lambda connection: [_approval_from_row(row) for row in connection.execute(query)], ()
        )

    async def answer(
        self, owner: str, approval_id: str, *, yes: bool, at: float, grant: Grant | None
    ) -> bool:
        """Answer a pending approval, and delete the owner's oldest answered ones and grants beyond a limit.

        Raises NoSuchChat if the chat of the grant was deleted.
        """
        is_waiting = _owner_condition(approvals, owner, approval_id) & approvals.c.answered_at.is_(None)

        def work(connection: Connection) -> bool:
            statement = update(approvals).where(is_waiting).values(answered_at=at, yes=yes)
            # The condition is part of the update: of two answers at the same time, one finds no row.
            if not connection.execute(statement).rowcount:
                return False
            if grant is not None:
                connection.execute(delete(grants).where(grants.c.owner == owner, grants.c.expires_at <= at))
                _insert_for_chat(connection, grants.insert().values(**_grant_values(grant)))
                own_grants = grants.c.owner == owner
                delete_all_but_newest(
                    connection, grants, own_grants, grants.c.created_at, self._max_grants_per_owner
                )
            answered = and_(
                approvals.c.owner == owner,
                approvals.c.chat_id.is_(None),
                approvals.c.answered_at.is_not(None),
            )
            delete_all_but_newest(
                connection, approvals, answered, approvals.c.answered_at, self._max_answered_per_owner
            )
            return True

        return await self._executor.write_or_default(work, False)

    async def list_grants(self, owner: str, now: float) -> Sequence[Grant]:
        """Return the valid grants of a user, newest first."""
        return await self._read_grants(_valid_grants_condition(owner, now))

    async def revoke(self, owner: str, grant_id: str) -> bool:
        statement = delete(grants).where(_owner_condition(grants, owner, grant_id))
        return (
            await self._executor.write_or_default(
                lambda connection: connection.execute(statement).rowcount, 0
            )
            > 0
        )

    async def use_grant(
        self,
        owner: str,
        tool: str,
        definition_hash: str,
        fits: Callable[[JsonObject], bool],
        chat_id: str | None,
        now: float,
    ) -> Grant | None:
        tool = _clean_tool_name(tool)
        found = await self._read_grants(_valid_grants_condition(owner, now) & (grants.c.tool == tool))
        # A concurrent request may use up a grant between the query and its use; then try the next one.
        for grant in select_usable_grants(found, tool, definition_hash, fits, chat_id):
            if (used := await self._use_once(grant)) is not None:
                return used
        return None

    async def _use_once(self, grant: Grant) -> Grant | None:
        """Use a grant once; None if it was used up or revoked by a concurrent request."""
        if grant.uses is None:
            return grant
        statement = (
            # Decremented in the database and not from the value read before, so that concurrent calls cannot
            # use the same last use.
            update(grants).where(grants.c.id == grant.id).values(uses=grants.c.uses - 1).returning(grants)
        )

        def work(connection: Connection) -> Any:
            row = connection.execute(statement).one_or_none()
            # The last use deletes the grant, so that queries find only usable ones.
            if row is not None and row.uses <= 0:
                connection.execute(delete(grants).where(grants.c.id == grant.id))
            return row

        row = await self._executor.write(work)
        return None if row is None else _grant_from_row(row)

    async def _read_grants(self, condition: Any) -> list[Grant]:
        query = select(grants).where(condition).order_by(grants.c.created_at.desc(), grants.c.id)
        rows = await self._executor.read_or_default(lambda connection: connection.execute(query).all(), ())
        return [_grant_from_row(row) for row in rows]


def _insert_for_chat(connection: Connection, statement: Any) -> None:
    try:
        connection.execute(statement)
    except IntegrityError as error:
        if violated_constraint(error) != "reference":
            raise
        raise NoSuchChat("the chat no longer exists", hint="it was deleted") from None


def _owner_condition(table: Any, owner: str, row_id: str) -> Any:
    return (table.c.id == row_id) & (table.c.owner == owner)


def _valid_grants_condition(owner: str, now: float) -> Any:
    has_uses = or_(grants.c.uses.is_(None), grants.c.uses > 0)
    # A grant created while the clock was ahead would last longer than allowed, by the same amount.
    is_plausible = grants.c.created_at <= now + CLOCK_SKEW_SECONDS
    return and_(grants.c.owner == owner, grants.c.expires_at > now, is_plausible, has_uses)


def _clean_tool_name(tool: str) -> str:
    """Make the name of a tool storable. The hash of the definition identifies the tool."""
    return clean_text(tool, MAX_TEXT_CHARACTERS)


def _approval_values(approval: Approval) -> dict[str, Any]:
    return {
        "id": approval.id,
        "owner": approval.owner,
        "tool": _clean_tool_name(approval.tool),
        "name": clean_text(approval.name, MAX_TEXT_CHARACTERS),
        "definition_hash": approval.definition_hash,
        "arguments": json_text(approval.arguments),
        "reason": clean_text(approval.reason, MAX_TEXT_CHARACTERS),
        "asked_at": approval.asked_at,
        "chat_id": approval.chat_id,
        "call_id": None if approval.call_id is None else clean_text(approval.call_id, MAX_TEXT_CHARACTERS),
        "answered_at": approval.answered_at,
        "yes": approval.yes,
    }


def _approval_from_row(row: Any) -> Approval:
    return Approval(**{**row._mapping, "arguments": orjson.loads(row.arguments)})


def _grant_values(grant: Grant) -> dict[str, Any]:
    return {
        "id": grant.id,
        "owner": grant.owner,
        "tool": _clean_tool_name(grant.tool),
        "name": clean_text(grant.name, MAX_TEXT_CHARACTERS),
        "definition_hash": grant.definition_hash,
        "predicate": json_text(grant.predicate),
        "created_at": grant.created_at,
        "expires_at": grant.expires_at,
        "chat_id": grant.chat_id,
        "uses": grant.uses,
    }


def _grant_from_row(row: Any) -> Grant:
    return Grant(**{**row._mapping, "predicate": orjson.loads(row.predicate)})
