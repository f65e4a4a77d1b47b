"""Appending of events to many chats in one transaction.

The rows of the chats are locked first. Under that lock each request is checked and gets its event numbers,
and its changes are collected; then each kind of change is written with one statement for the whole batch.
Since numbers are assigned under the lock, events become visible in the order of their numbers, and "all
events after 17" is a complete answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sqlalchemy import Connection, LargeBinary, Select, bindparam, cast, delete, func, or_, select, update

from toolyard.errors import ChatChanged, ChatError, ChatQuotaExceeded, NoSuchChat, NotHeld
from toolyard.store.repositories.chat_rows import ChatQuota, PreparedEvent, chat_usage
from toolyard.store.sql.dialects import insert_many, update_many
from toolyard.store.sql.tables import chat_events, chats
from toolyard.types.chat import TRANSIENT_KINDS, ChatEvent, Fork, TurnState

__all__ = ["AppendRequest", "AppendedEvents", "append_events", "database_time"]


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """Request to append events to a chat, which may also claim or release it."""

    chat_id: str
    prepared_events: Sequence[PreparedEvent]
    size_bytes: int
    """Approximate size of the events."""
    appended_at: float
    runner: str | None = None
    """Runner that holds or claims the chat; None appends regardless of its runner."""
    expected_state: TurnState | None = None
    """Claim the chat if it is in this state."""
    new_turn: bool = False
    fork: Fork | None = None
    """Place of the new turn; None: after the last turn of the chosen branch."""
    switch_to: int | None = None
    """Last turn of the branch to choose."""
    deleted_turns: Sequence[int] = ()
    """Turns whose events are deleted, if the branch that ``fork`` names is still chosen."""
    next_state: TurnState = TurnState.RUNNING
    """State after the events; any other than RUNNING releases the chat."""


@dataclass(frozen=True, slots=True)
class AppendedEvents:
    """Appended events with their sizes in bytes, and the number of the event before them."""

    after: int
    events: Sequence[ChatEvent]
    sizes: Sequence[int]


@dataclass(slots=True)
class _ChatRow:
    """Locked row of a chat, with the changes of the batch applied."""

    id: str
    state: TurnState
    turn: int
    last: int
    runner: str | None
    updated_at: float
    stop_asked: bool
    owner: str
    bytes: int

    def values(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "state": self.state.value,
            "turn": self.turn,
            "last": self.last,
            "runner": self.runner,
            "updated_at": self.updated_at,
            "stop_asked": self.stop_asked,
            "bytes": self.bytes,
        }


@dataclass(slots=True)
class _BatchedWrites:
    """Changes of all requests in a batch, to be written together."""

    rows: dict[str, _ChatRow]
    changed_rows: dict[str, _ChatRow] = field(default_factory=dict[str, _ChatRow])
    claimed_ids: set[str] = field(default_factory=set[str])
    new_event_rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    replacements: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    deletions: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


# Rows are locked in the order of their ids, so that two batches cannot deadlock.
_SELECT_CHATS_FOR_UPDATE = (
    select(
        chats.c.id,
        chats.c.state,
        chats.c.turn,
        chats.c.last,
        chats.c.runner,
        chats.c.updated_at,
        chats.c.stop_asked,
        chats.c.owner,
        chats.c.bytes,
    )
    .where(chats.c.id.in_(bindparam("ids", expanding=True)))
    .order_by(chats.c.id)
    .with_for_update()
)
_IS_REPLACED = (
    chat_events.c.chat_id == bindparam("of"),
    chat_events.c.seq >= bindparam("from_turn"),
    chat_events.c.seq < bindparam("before"),
    chat_events.c.part == bindparam("of_part"),
    or_(*(chat_events.c.kind == kind.value for kind in sorted(TRANSIENT_KINDS))),
)
_IS_DELETED = (
    chat_events.c.chat_id == bindparam("of"),
    chat_events.c.turn.in_(bindparam("turns", expanding=True)),
)
_DELETE_REPLACED_EVENTS = delete(chat_events).where(*_IS_REPLACED)
_DELETE_TURNS = delete(chat_events).where(*_IS_DELETED)


@cache
def _build_byte_sums(dialect_name: str) -> tuple[Select[int], Select[int]]:
    """Return the queries for the bytes of replaced events, and of deleted turns."""
    body, kept = chat_events.c.body, chat_events.c.kept
    if dialect_name == "sqlite":
        body_bytes, kept_bytes = func.length(cast(body, LargeBinary)), func.length(kept)
    else:
        body_bytes, kept_bytes = func.octet_length(body), func.octet_length(kept)
    # Transient events have only a body, so the column ``kept`` need not be measured.
    replaced = select(func.coalesce(func.sum(body_bytes), 0)).where(*_IS_REPLACED)
    event_bytes = body_bytes + func.coalesce(kept_bytes, 0)
    return replaced, select(func.coalesce(func.sum(event_bytes), 0)).where(*_IS_DELETED)


def database_time(connection: Connection, local_time: float) -> Any:
    """Return a time that all replicas agree on: PostgreSQL's clock, or with SQLite the local one."""
    if connection.dialect.name == "sqlite":
        return local_time
    return func.extract("epoch", func.clock_timestamp())


def append_events(
    connection: Connection, requests: Sequence[AppendRequest], local_time: float, quota: ChatQuota
) -> list[AppendedEvents | ChatError | None]:
    """Append the events of all requests.

    Return for each request its events, the error that refused it, or None if it could not claim the chat. A
    refused request does not affect the others.
    """
    # SQLAlchemy omits FOR UPDATE for SQLite, which has no row locks: there the write transaction as a whole
    # is exclusive.
    locked_rows = connection.execute(
        _SELECT_CHATS_FOR_UPDATE, {"ids": sorted({request.chat_id for request in requests})}
    )
    rows = {row.id: _ChatRow(row.id, TurnState(row.state), *row[2:]) for row in locked_rows}
    batch = _BatchedWrites(rows)
    outcomes = [
        (_check_quota(connection, quota, batch, request) if request.new_turn else None)
        or _apply_request(batch, request)
        for request in requests
    ]
    # One statement for each kind of change, whatever the number of requests.
    if batch.new_event_rows:
        insert_many(connection, chat_events, batch.new_event_rows)
    # Measure the replaced events before they are deleted, to keep the byte counter right. Most calls have no
    # progress that their result replaces.
    sum_replaced, sum_deleted = _build_byte_sums(connection.dialect.name)
    for replaced in batch.replacements:
        if replaced_bytes := int(connection.execute(sum_replaced, replaced).scalar_one()):
            batch.rows[replaced["of"]].bytes -= replaced_bytes
            connection.execute(_DELETE_REPLACED_EVENTS, replaced)
    for deleted in batch.deletions:
        batch.rows[deleted["of"]].bytes -= int(connection.execute(sum_deleted, deleted).scalar_one())
        connection.execute(_DELETE_TURNS, deleted)
    if batch.changed_rows:
        update_many(connection, chats, "id", [row.values() for row in batch.changed_rows.values()])
    if batch.claimed_ids:
        statement = update(chats).where(chats.c.id.in_(sorted(batch.claimed_ids)))
        # The claim counts as a heartbeat. Otherwise the heartbeat of the previous turn, perhaps days old,
        # would make another replica take the turn for abandoned at once.
        connection.execute(statement.values(beat_at=database_time(connection, local_time)))
    return outcomes


def _check_quota(
    connection: Connection, quota: ChatQuota, batch: _BatchedWrites, request: AppendRequest
) -> ChatQuotaExceeded | None:
    """Return an error if a quota is used up. The request starts a turn."""
    row = batch.rows.get(request.chat_id)
    if row is None:
        return None
    try:
        quota.check(chat_usage(connection, row.owner))
    except ChatQuotaExceeded as error:
        return error
    return None


def _apply_request(batch: _BatchedWrites, request: AppendRequest) -> AppendedEvents | ChatError | None:
    row = batch.rows.get(request.chat_id)
    if request.expected_state is not None:
        if row is None or row.state is not request.expected_state:
            return None
        if request.fork is not None and request.fork.last != row.turn:
            return ChatChanged(
                "the chat has been changed since you loaded it", hint="reload the chat, then try again"
            )
        # A stop request that came too late for the previous run must not stop this one.
        row.state, row.runner, row.stop_asked = TurnState.RUNNING, request.runner, False
        batch.claimed_ids.add(row.id)
    elif request.runner is not None:
        # The claim is checked in the same transaction as the write. A runner that was paused and replaced
        # meanwhile gets this error with its next write, and cannot mix its events with those of the new one.
        if row is None or row.state is not TurnState.RUNNING or row.runner != request.runner:
            return NotHeld(
                "this process no longer runs the turn",
                hint="the chat was deleted, or the turn was considered interrupted",
            )
    elif row is None:
        return NoSuchChat("chat not found", hint="it may have been deleted")
    batch.changed_rows[row.id] = row
    if request.deleted_turns:
        batch.deletions.append({"of": row.id, "turns": list(request.deleted_turns)})
    appended = _append_to_batch(batch, row, request)
    if request.runner is not None and request.next_state is not TurnState.RUNNING:
        row.state, row.runner = request.next_state, None
    return appended


def _append_to_batch(batch: _BatchedWrites, row: _ChatRow, request: AppendRequest) -> AppendedEvents:
    after = row.last
    parent = row.turn if request.fork is None else request.fork.parent
    # A turn is identified by the number of its first event.
    if request.new_turn and request.prepared_events:
        row.turn = after + 1
    elif request.switch_to is not None:
        row.turn = request.switch_to
    events: list[ChatEvent] = []
    for seq, prepared in enumerate(request.prepared_events, after + 1):
        event_row, event = prepared.number(
            row.id, seq, row.turn, request.appended_at, parent if seq == row.turn else None
        )
        row.bytes += len(event_row["body"].encode()) + len(event_row["kept"] or b"")
        batch.new_event_rows.append(event_row)
        events.append(event)
        if prepared.part and prepared.kind not in TRANSIENT_KINDS:
            replaced = {"of": row.id, "from_turn": row.turn, "before": seq, "of_part": prepared.part}
            batch.replacements.append(replaced)
    if events:
        row.last, row.updated_at = events[-1].seq, request.appended_at
    return AppendedEvents(after, events, [len(prepared.body) for prepared in request.prepared_events])
