"""Storage of requests that wait for a person: approvals of calls, with standing approvals (grants), and
questions from servers, with the answers on their way to the process that asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

import orjson
from sqlalchemy import (
    Connection,
    and_,
    bindparam,
    case,
    delete,
    func,
    literal,
    or_,
    select,
    union_all,
    update,
)

from toolyard.errors import NoSuchChat
from toolyard.store.repositories.replica_messages import SqlMailbox
from toolyard.store.repositories.rows import delete_all_but_newest
from toolyard.store.sql.dialects import raise_if_violated
from toolyard.store.sql.executor import DatabaseExecutor, Repository, transaction, transaction_by_key
from toolyard.store.sql.stored_values import MAX_TEXT_CHARACTERS, clean_text, json_text
from toolyard.store.sql.tables import approvals, chat_events, chats, grants, proposals, questions
from toolyard.types.approval import (
    Approval,
    Grant,
    PageQuestion,
    PendingItem,
    PendingKind,
    iterate_usable_grants,
)
from toolyard.types.chat import Kind, Question, TurnState
from toolyard.types.proposal import ProposalState
from toolyard.types.timestamps import CLOCK_SKEW_SECONDS
from toolyard.types.tool import JsonObject

__all__ = ["SqlApprovalStore", "SqlPendingItems", "SqlQuestionStore"]


_ORPHAN_MAX_AGE_SECONDS = 30 * 86_400.0
"""Age after which an approval that belongs to no chat is deleted, answered or not."""

_MAX_ANSWERED_PER_OWNER = 200
"""Maximum number of answered approvals without a chat. A program may answer its own in a loop."""
_MAX_GRANTS_PER_OWNER = 500
_MAX_SEARCHED_APPROVALS = 500
"""Maximum number of answered approvals among which the last one of a tool is searched."""


class SqlApprovalStore(Repository):
    """ApprovalStore in SQL tables."""

    def __init__(
        self,
        executor: DatabaseExecutor,
        *,
        max_answered_per_owner: int = _MAX_ANSWERED_PER_OWNER,
        max_grants_per_owner: int = _MAX_GRANTS_PER_OWNER,
    ) -> None:
        super().__init__(executor)
        self._max_answered_per_owner = max_answered_per_owner
        self._max_grants_per_owner = max_grants_per_owner

    @transaction
    def add(self, connection: Connection, approval: Approval) -> None:
        """Add an approval, and delete old ones without a chat. Those of a chat stay as long as the chat.

        Raises NoSuchChat if the chat was deleted.
        """
        is_old = approvals.c.asked_at < approval.asked_at - _ORPHAN_MAX_AGE_SECONDS
        connection.execute(delete(approvals).where(approvals.c.chat_id.is_(None), is_old))
        _insert_for_chat(connection, approvals.insert().values(**_approval_values(approval)))

    async def find(self, owner: str, approval_id: str) -> Approval | None:
        query = select(approvals).where(_owner_condition(approvals, owner, approval_id))
        return await self._executor.fetch_one(query, _approval_from_row)

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
        return await self._executor.fetch_one(query, _approval_from_row)

    async def list_pending(self, owner: str) -> Sequence[Approval]:
        is_waiting = (approvals.c.owner == owner) & approvals.c.answered_at.is_(None)
        query = select(approvals).where(is_waiting).order_by(approvals.c.asked_at, approvals.c.id)
        # Arguments may be long: decode them in the executor's thread.
        return await self._executor.read_or_default(
            lambda connection: [_approval_from_row(row) for row in connection.execute(query)], ()
        )

    @transaction_by_key(False)
    def answer(
        self,
        connection: Connection,
        owner: str,
        approval_id: str,
        *,
        yes: bool,
        at: float,
        grant: Grant | None,
    ) -> bool:
        """Answer a pending approval, and delete the owner's oldest answered ones and grants beyond a limit.

        Raises NoSuchChat if the chat of the grant was deleted.
        """
        is_waiting = _owner_condition(approvals, owner, approval_id) & approvals.c.answered_at.is_(None)
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

    async def list_grants(self, owner: str, now: float) -> Sequence[Grant]:
        """Return the valid grants of a user, newest first."""
        return await self._read_grants(_valid_grants_condition(owner, now))

    async def revoke(self, owner: str, grant_id: str) -> bool:
        statement = delete(grants).where(_owner_condition(grants, owner, grant_id))
        return await self._executor.execute_by_key(statement) > 0

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
        async for grant in iterate_usable_grants(found, tool, definition_hash, fits, chat_id):
            used = grant if grant.uses is None else await self._use_once(grant.id)
            if used is not None:
                return used
        return None

    @transaction
    def _use_once(self, connection: Connection, grant_id: str) -> Grant | None:
        """Use a grant once; None if it was used up or revoked by a concurrent request."""
        # Decremented in the database and not from the value read before, so that concurrent calls cannot use
        # the same last use.
        statement = update(grants).where(grants.c.id == grant_id).values(uses=grants.c.uses - 1)
        row = connection.execute(statement.returning(grants)).one_or_none()
        # The last use deletes the grant, so that queries find only usable ones.
        if row is not None and row.uses <= 0:
            connection.execute(delete(grants).where(grants.c.id == grant_id))
        return None if row is None else _grant_from_row(row)

    async def _read_grants(self, condition: Any) -> list[Grant]:
        query = select(grants).where(condition).order_by(grants.c.created_at.desc(), grants.c.id)
        return [_grant_from_row(row) for row in await self._executor.fetch_rows(query)]


def _insert_for_chat(connection: Connection, statement: Any) -> None:
    with raise_if_violated("reference", NoSuchChat("the chat no longer exists", hint="it was deleted")):
        connection.execute(statement)


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
        "predicate": grant.predicate_json,
        "created_at": grant.created_at,
        "expires_at": grant.expires_at,
        "chat_id": grant.chat_id,
        "uses": grant.uses,
    }


def _grant_from_row(row: Any) -> Grant:
    values = dict(row._mapping)
    return Grant(predicate_json=values.pop("predicate"), **values)


_POLL_SECONDS = 1.0
"""Interval in which an answer from another process is looked for."""


class SqlQuestionStore:
    """Open questions in a table. An answer deletes its question, and is sent encrypted as a message."""

    def __init__(self, executor: DatabaseExecutor, mailbox: SqlMailbox) -> None:
        self._executor = executor
        self._mailbox = mailbox
        self._answered: dict[str, asyncio.Event] = {}
        """Events of the questions that this process waits for."""
        self._add_lock = asyncio.Lock()

    async def add(self, page_question: PageQuestion, max_open: int) -> bool:
        """Store a question. Return False if its owner has ``max_open`` open ones. Raises StoreError."""
        values = {
            "id": page_question.id,
            "owner": page_question.owner,
            "server": clean_text(page_question.question.server, MAX_TEXT_CHARACTERS),
            "calls": json_text({"calls": list(page_question.calls)}),
            "question": json_text(asdict(page_question.question)),
            "asked_at": page_question.asked_at,
            "expires_at": page_question.expires_at,
        }
        # Servers may ask many questions at once, each of which would be counted before the others are stored.
        async with self._add_lock:
            if len(await self.list_open(page_question.owner, page_question.asked_at)) >= max_open:
                return False
            await self._executor.execute(questions.insert().values(**values))
            return True

    async def list_open(self, owner: str, now: float) -> Sequence[PageQuestion]:
        """Return the open questions of a user, oldest first."""
        is_open = (questions.c.owner == owner) & (questions.c.expires_at > now)
        query = select(questions).where(is_open).order_by(questions.c.asked_at, questions.c.id)
        return await self._executor.fetch_all(query, _question_from_row)

    async def answer(self, owner: str, question_id: str, answer: Mapping[str, Any]) -> bool:
        """Answer a question. Return False if it is not open any more. Raises StoreError."""
        if not await self._delete((questions.c.id == question_id) & (questions.c.owner == owner)):
            return False
        await self._mailbox.post(_mailbox_name(question_id), orjson.dumps(dict(answer)))
        if (event := self._answered.get(question_id)) is not None:
            event.set()
        return True

    async def close(self, question_id: str) -> None:
        """Remove a question that nobody answered, or that was withdrawn. Raises StoreError."""
        await self._delete(questions.c.id == question_id)

    async def wait_for_answer(self, question_id: str) -> Mapping[str, Any]:
        """Return the answer once there is one. Raises StoreError."""
        event = self._answered[question_id] = asyncio.Event()
        try:
            while not (messages := await self._mailbox.take(_mailbox_name(question_id))):
                try:
                    async with asyncio.timeout(_POLL_SECONDS):
                        await event.wait()
                except TimeoutError:
                    pass
            return orjson.loads(messages[0])
        finally:
            del self._answered[question_id]

    async def _delete(self, condition: Any) -> bool:
        statement = delete(questions).where(condition)
        return await self._executor.execute(statement) > 0


def _mailbox_name(question_id: str) -> str:
    return f"question {question_id}"


def _question_from_row(row: Any) -> PageQuestion:
    return PageQuestion(
        row.id,
        row.owner,
        tuple(orjson.loads(row.calls)["calls"]),
        Question(**orjson.loads(row.question)),
        row.asked_at,
        row.expires_at,
    )


_MAX_ITEMS = 100


class SqlPendingItems(Repository):
    """Reads the pending items of a person."""

    async def list(self, owner: str, now: float, *, with_proposals: bool = False) -> Sequence[PendingItem]:
        """Return the items of a person, oldest first, at most 100; with those of admins on request.

        Raises StoreError.
        """
        query = _build_pending_query(with_proposals=with_proposals)

        def read_items(connection: Connection) -> Sequence[PendingItem]:
            found = connection.execute(query, {"of": owner, "now": now})
            return [PendingItem(PendingKind(kind), *rest) for kind, *rest in found]

        return await self._executor.read(read_items)


@cache
def _build_pending_query(*, with_proposals: bool) -> Any:
    """Build the query once: every open page asks again and again, and building takes longer than running."""
    open_approvals = select(
        literal(PendingKind.APPROVAL.value), approvals.c.id, approvals.c.name, approvals.c.asked_at
    ).where(
        approvals.c.owner == bindparam("of"), approvals.c.answered_at.is_(None), approvals.c.chat_id.is_(None)
    )
    open_questions = select(
        literal(PendingKind.QUESTION.value), questions.c.id, questions.c.server, questions.c.asked_at
    ).where(questions.c.owner == bindparam("of"), questions.c.expires_at > bindparam("now"))
    open_proposals = select(
        literal(PendingKind.PROPOSAL.value), proposals.c.id, proposals.c.name, proposals.c.created_at
    ).where(proposals.c.state == ProposalState.OPEN.value)
    selected = (_select_active_chats(), open_approvals, open_questions, open_proposals)
    return union_all(*selected[: 4 if with_proposals else 3]).order_by("since").limit(_MAX_ITEMS)


def _select_active_chats() -> Any:
    # A turn keeps running while a server's question is open, unlike while a call needs approval.
    has_question = _count_events(Kind.QUESTION) > _count_events(Kind.QUESTION_ANSWER)
    is_waiting = (chats.c.state == TurnState.WAITING.value) | has_question
    kind = case((is_waiting, PendingKind.WAITING_CHAT.value), else_=PendingKind.RUNNING_CHAT.value)
    columns = (kind.label("kind"), chats.c.id, chats.c.title, chats.c.updated_at.label("since"))
    return select(*columns).where(chats.c.owner == bindparam("of"), chats.c.state != TurnState.IDLE.value)


def _count_events(kind: Kind) -> Any:
    """Count the events of a kind in the last turn of the chat."""
    is_in_turn = (chat_events.c.chat_id == chats.c.id) & (chat_events.c.seq >= chats.c.turn)
    return select(func.count()).where(is_in_turn, chat_events.c.kind == kind.value).scalar_subquery()
