"""New events of many chats in one transaction: who may write them, their numbers, and what they replace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, LargeBinary, bindparam, cast, delete, func, or_, select, update

from toolyard.agents.chat.errors import ChatError, ChatQuotaExceeded, NoSuchChat, NotHeld
from toolyard.store.repositories.chat_quota import ChatQuota, chat_usage
from toolyard.store.repositories.chat_rows import Line
from toolyard.store.sql.bulk_insert import insert_many, update_many
from toolyard.store.sql.tables import chat_events, chats
from toolyard.types.chat import PIECES, Event, TurnState

__all__ = ["Request", "Written", "now", "write"]


@dataclass(frozen=True, slots=True)
class Request:
    """Events that somebody wants to append to a chat."""

    chat_id: str
    lines: Sequence[Line]
    at: float
    runner: str | None = None
    """Who holds the chat, or takes it; None: whoever holds it."""
    was: TurnState | None = None
    """The chat is taken, if it is in this state."""
    new_turn: bool = False
    then: TurnState = TurnState.RUNNING

    @property
    def weight(self) -> int:
        """About how many bytes it takes."""
        return sum(line.weight for line in self.lines)


@dataclass(frozen=True, slots=True)
class Written:
    """The events, and the number of the one before them."""

    after: int
    events: Sequence[Event]
    weights: Sequence[int]


@dataclass(slots=True)
class _Row:
    """What a chat's row says, and will say."""

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
class _Batch:
    """What the statements will be about."""

    rows: dict[str, _Row]
    touched: dict[str, _Row] = field(default_factory=dict[str, _Row])
    taken: set[str] = field(default_factory=set[str])
    inserted: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    replaced: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


# In the order of their ids, so that two who lock several never wait for each other.
_LOCKED = (
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
_REPLACED = (
    chat_events.c.chat_id == bindparam("of"),
    chat_events.c.seq >= bindparam("from_turn"),
    chat_events.c.seq < bindparam("before"),
    chat_events.c.part == bindparam("of_part"),
    or_(*(chat_events.c.kind == kind.value for kind in sorted(PIECES))),
)
_REPLACE = delete(chat_events).where(*_REPLACED)
# Pieces hold text only, never a kept result.
_REPLACED_BYTES = select(
    func.coalesce(func.sum(func.length(cast(chat_events.c.body, LargeBinary))), 0)
).where(*_REPLACED)
_REPLACED_BYTES_POSTGRESQL = select(func.coalesce(func.sum(func.octet_length(chat_events.c.body)), 0)).where(
    *_REPLACED
)


def now(connection: Connection, clock: float) -> Any:
    """The time that all replicas agree on: PostgreSQL's own, or that of this machine."""
    if connection.dialect.name == "sqlite":
        return clock
    return func.extract("epoch", func.clock_timestamp())


def write(
    connection: Connection, requests: Sequence[Request], clock: float, quota: ChatQuota
) -> list[Written | ChatError | None]:
    """What came of each: its events, why it may not append, or None where a chat could not be taken."""
    found = connection.execute(_LOCKED, {"ids": sorted({request.chat_id for request in requests})})
    rows = {row.id: _Row(row.id, TurnState(row.state), *row[2:]) for row in found}
    batch = _Batch(rows)
    outcomes = [_within(connection, quota, batch, request) or _one(batch, request) for request in requests]
    if batch.inserted:
        insert_many(connection, chat_events, batch.inserted)
    for replaced in batch.replaced:
        batch.rows[replaced["of"]].bytes -= _replaced_bytes(connection, replaced)
    if batch.replaced:
        connection.execute(_REPLACE, batch.replaced)
    if batch.touched:
        update_many(connection, chats, "id", [row.values() for row in batch.touched.values()])
    if batch.taken:
        beating = update(chats).where(chats.c.id.in_(sorted(batch.taken)))
        connection.execute(beating.values(beat_at=now(connection, clock)))
    return outcomes


def _within(
    connection: Connection, quota: ChatQuota, batch: _Batch, request: Request
) -> ChatQuotaExceeded | None:
    """Why a turn may not begin, if a limit is reached."""
    row = batch.rows.get(request.chat_id)
    if not request.new_turn or row is None:
        return None
    try:
        quota.check(chat_usage(connection, row.owner))
    except ChatQuotaExceeded as error:
        return error
    return None


def _replaced_bytes(connection: Connection, replaced: dict[str, Any]) -> int:
    sqlite = connection.dialect.name == "sqlite"
    query = _REPLACED_BYTES if sqlite else _REPLACED_BYTES_POSTGRESQL
    return int(connection.execute(query, replaced).scalar_one())


def _one(batch: _Batch, request: Request) -> Written | ChatError | None:
    row = batch.rows.get(request.chat_id)
    if request.was is not None:
        if row is None or row.state is not request.was:
            return None
        row.state, row.runner, row.stop_asked = TurnState.RUNNING, request.runner, False
        batch.taken.add(row.id)
    elif request.runner is not None:
        if row is None or row.state is not TurnState.RUNNING or row.runner != request.runner:
            return NotHeld(
                "the turn is not this process's any more",
                hint="the chat was deleted, or the turn was taken for interrupted",
            )
    elif row is None:
        return NoSuchChat("there is no such chat", hint="it may have been deleted")
    batch.touched[row.id] = row
    written = _append(batch, row, request)
    if request.runner is not None and request.then is not TurnState.RUNNING:
        row.state, row.runner = request.then, None
    return written


def _append(batch: _Batch, row: _Row, request: Request) -> Written:
    after = row.last
    if request.new_turn and request.lines:
        row.turn = after + 1
    events: list[Event] = []
    for seq, line in enumerate(request.lines, after + 1):
        inserted = line.row(row.id, seq, row.turn, request.at)
        row.bytes += len(inserted["body"].encode()) + len(inserted["kept"] or b"")
        batch.inserted.append(inserted)
        events.append(line.event(row.id, seq, row.turn, request.at))
        if line.part and line.kind not in PIECES:
            replaced = {"of": row.id, "from_turn": row.turn, "before": seq, "of_part": line.part}
            batch.replaced.append(replaced)
    if events:
        row.last, row.updated_at = events[-1].seq, request.at
    return Written(after, events, [len(line.body) for line in request.lines])
