"""Rows of chats and their events: conversion to records and back, queries, and limits on number and size.

Each chat has a byte counter that is updated in the transactions that write its events, so usage is never
summed over events. Limits are checked when a chat or a turn starts. A running turn may finish, and may exceed
them once.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import orjson
from sqlalchemy import Connection, bindparam, exists, func, or_, select

from toolyard.errors import ChatQuotaExceeded
from toolyard.store.errors import Unstorable
from toolyard.store.repositories.rows import batches
from toolyard.store.sql.stored_values import (
    MAX_TEXT_CHARACTERS,
    clean_text,
    fold_case,
    json_text,
    repair_surrogates,
)
from toolyard.store.sql.tables import chat_events, chats
from toolyard.types.chat import Chat, ChatEvent, Kind, NewChatEvent, TurnState, TurnTree
from toolyard.types.plurals import format_count

__all__ = [
    "MAX_SEQ",
    "SELECT_CHATS",
    "SELECT_EVENTS",
    "ChatQuota",
    "ChatUsage",
    "PreparedEvent",
    "build_search_conditions",
    "chat_from_row",
    "chat_usage",
    "chat_values",
    "event_from_row",
    "find_branch_end",
    "find_existing_chats",
    "read_events",
    "read_latest_events",
    "read_payloads",
    "read_turn_tree",
]


_SEARCHABLE_KINDS = frozenset({Kind.USER, Kind.MODEL_MESSAGE})
_COMPRESSION_LEVEL = 1
"""The fastest one."""
_MAX_VALUE_BYTES = 500_000_000
"""Maximum size of one value, safely within the limits of both databases."""

_CHAT_FIELDS = [each.name for each in fields(Chat)]
SELECT_CHATS = select(*(chats.c[name] for name in _CHAT_FIELDS))
SELECT_EVENTS = select(
    chat_events.c.chat_id,
    chat_events.c.seq,
    chat_events.c.turn,
    chat_events.c.kind,
    chat_events.c.at,
    chat_events.c.part,
    chat_events.c.body,
    chat_events.c.kept.is_not(None).label("has_payload"),
    chat_events.c.parent,
)


@dataclass(frozen=True, slots=True)
class PreparedEvent:
    """Serialized new event that has no number yet. Prepared outside the transaction to keep that short."""

    kind: Kind
    part: str
    body: str
    words: str | None
    payload: bytes

    @classmethod
    def from_new_event(cls, event: NewChatEvent) -> PreparedEvent:
        """Serialize an event. Raises Unstorable if it is too large."""
        body, part = json_text(event.body), event.part
        if max(len(body), len(event.payload)) > _MAX_VALUE_BYTES:
            raise Unstorable(
                f"the event is too large to be stored: the maximum is {_MAX_VALUE_BYTES:,} bytes"
            )
        words = _searchable_text(event.body.get("text")) if event.kind in _SEARCHABLE_KINDS else None
        if part:
            part = repair_surrogates(part).replace("\0", "\ufffd")
        return cls(event.kind, part, body, words, event.payload)

    def number(
        self, chat_id: str, seq: int, turn: int, at: float, parent: int | None
    ) -> tuple[dict[str, Any], ChatEvent]:
        """Return the row of the event with its number, and the event as a reader of the row will get it."""
        row = {
            "chat_id": chat_id,
            "seq": seq,
            "turn": turn,
            "kind": self.kind.value,
            "at": at,
            "part": self.part,
            "words": self.words,
            "body": self.body,
            "kept": zlib.compress(self.payload, _COMPRESSION_LEVEL) if self.payload else None,
            "parent": parent,
        }
        body = orjson.loads(self.body)
        return row, ChatEvent(chat_id, seq, turn, self.kind, at, body, self.part, bool(self.payload), parent)


def _searchable_text(text: object) -> str | None:
    return (
        clean_text(fold_case(text[:MAX_TEXT_CHARACTERS]), MAX_TEXT_CHARACTERS)
        if isinstance(text, str)
        else None
    )


def event_from_row(row: Any) -> ChatEvent:
    """Build an event from a row of ``SELECT_EVENTS``."""
    body = orjson.loads(row.body)
    return ChatEvent(
        row.chat_id,
        row.seq,
        row.turn,
        Kind(row.kind),
        row.at,
        body,
        row.part,
        bool(row.has_payload),
        row.parent,
    )


def chat_from_row(row: Any) -> Chat:
    """Build a chat from a row of ``SELECT_CHATS``."""
    values: dict[str, Any] = {name: getattr(row, name) for name in _CHAT_FIELDS}
    values["state"] = TurnState(row.state)
    return Chat(**values)


def chat_values(chat: Chat) -> dict[str, Any]:
    """Return the columns that the owner of a chat may change."""
    title = clean_text(chat.title, MAX_TEXT_CHARACTERS)
    return {
        "title": title,
        "title_key": fold_case(title),
        "agent": chat.agent,
        "model": chat.model,
        "choice": chat.choice,
    }


MAX_SEQ = 2**62
"""Upper bound of event numbers, which both databases can store."""
_MAX_SEARCH_WORDS, _MAX_WORD_CHARACTERS = 12, 500
"""Limits of a search; SQLite allows patterns of 50,000 bytes."""

_IN_CHAT = chat_events.c.chat_id == bindparam("of", type_=chats.c.id.type)
_SELECT_AFTER = (
    SELECT_EVENTS.where(_IN_CHAT, chat_events.c.seq > bindparam("after"))
    .order_by(chat_events.c.seq)
    .limit(bindparam("most"))
)
_IN_TURNS = (
    _IN_CHAT,
    chat_events.c.turn.in_(bindparam("turns", expanding=True)),
    # It stands between the events of other turns.
    chat_events.c.kind != Kind.SWITCH.value,
)
_SELECT_BETWEEN = SELECT_EVENTS.where(
    *_IN_TURNS, chat_events.c.seq >= bindparam("start"), chat_events.c.seq < bindparam("before")
).order_by(chat_events.c.seq)
_SELECT_SEQS_BACKWARDS = (
    select(chat_events.c.seq, chat_events.c.turn)
    .where(*_IN_TURNS, chat_events.c.seq < bindparam("before"))
    .order_by(chat_events.c.seq.desc())
    .limit(bindparam("most"))
)
_COUNT_BETWEEN = select(func.count()).where(
    *_IN_TURNS, chat_events.c.seq >= bindparam("start"), chat_events.c.seq < bindparam("before")
)
_SELECT_TURNS = (
    select(chat_events.c.seq, chat_events.c.parent)
    .where(_IN_CHAT, chat_events.c.seq == chat_events.c.turn)
    .order_by(chat_events.c.seq)
)
_SELECT_BRANCH_END = (
    select(chat_events.c.turn)
    .where(
        _IN_CHAT,
        chat_events.c.seq < bindparam("before"),
        or_(chat_events.c.seq == chat_events.c.turn, chat_events.c.kind == Kind.SWITCH.value),
    )
    .order_by(chat_events.c.seq.desc())
    .limit(1)
)
_SELECT_KEPT = select(chat_events.c.seq, chat_events.c.kept).where(
    _IN_CHAT, chat_events.c.seq.in_(bindparam("seqs", expanding=True)), chat_events.c.kept.is_not(None)
)


def read_events(connection: Connection, chat_id: str, after: int, limit: int) -> Sequence[Any]:
    """Return rows of ``SELECT_EVENTS`` after a number, in order."""
    values = {"of": chat_id, "after": max(-1, min(after, MAX_SEQ)), "most": limit}
    return connection.execute(_SELECT_AFTER, values).all()


def find_existing_chats(connection: Connection, chat_ids: Sequence[str]) -> set[str]:
    """Return those of the ids that belong to existing chats."""
    existing: set[str] = set()
    for batch in batches(chat_ids):
        existing |= set(connection.execute(select(chats.c.id).where(chats.c.id.in_(batch))).scalars())
    return existing


def read_turn_tree(connection: Connection, chat_id: str) -> TurnTree:
    """Return all turns of a chat."""
    rows = connection.execute(_SELECT_TURNS, {"of": chat_id})
    return TurnTree.from_rows((row.seq, row.parent) for row in rows)


def find_branch_end(connection: Connection, chat_id: str, before: int) -> int:
    """Return the last turn of the branch that was chosen before an event; 0 if there was none."""
    return connection.execute(_SELECT_BRANCH_END, {"of": chat_id, "before": before}).scalar() or 0


def read_latest_events(
    connection: Connection, chat_id: str, last_turn: int, before: int | None, limit: int
) -> Sequence[Any]:
    """Return about ``limit`` of the latest rows of ``SELECT_EVENTS`` in the branch to a turn, in order, from
    the start of a turn."""
    end = MAX_SEQ if before is None else max(0, min(before, MAX_SEQ))
    branch = [turn for turn in read_turn_tree(connection, chat_id).branch(last_turn) if turn < end]
    # Each turn has at least one event.
    values = {"of": chat_id, "turns": branch[-max(limit, 1) :], "before": end}
    latest = connection.execute(_SELECT_SEQS_BACKWARDS, {**values, "most": limit}).all()
    if not latest:
        return ()
    start = _find_start_seq(connection, values, latest, limit)
    return connection.execute(_SELECT_BETWEEN, {**values, "start": start}).all()


def _find_start_seq(
    connection: Connection, values: Mapping[str, Any], latest: Sequence[Any], limit: int
) -> int:
    """Return the start of the oldest event's turn.

    If that turn is longer than the limit, return the first later turn that starts among the rows, if any.
    """
    oldest = latest[-1]
    within = {**values, "start": oldest.turn, "before": oldest.seq}
    if connection.execute(_COUNT_BETWEEN, within).scalar_one() > limit:
        return next((row.seq for row in reversed(latest) if row.seq == row.turn), oldest.turn)
    return oldest.turn


def read_payloads(connection: Connection, chat_id: str, seqs: Sequence[int]) -> dict[int, bytes]:
    """Return the separately stored data of events, by event number."""
    valid_seqs = sorted({seq for seq in seqs if 0 < seq < MAX_SEQ})
    payloads: dict[int, bytes] = {}
    for batch in batches(valid_seqs):
        rows = connection.execute(_SELECT_KEPT, {"of": chat_id, "seqs": batch})
        payloads |= {row.seq: zlib.decompress(row.kept) for row in rows}
    return payloads


def build_search_conditions(words: str) -> list[Any]:
    """Build conditions on chats: each word occurs in the title or in a message."""
    return [
        _word_condition(word[:_MAX_WORD_CHARACTERS])
        for word in fold_case(words.replace("\0", " ")).split()[:_MAX_SEARCH_WORDS]
    ]


def _word_condition(word: str) -> Any:
    in_message = exists().where(
        chat_events.c.chat_id == chats.c.id, _column_contains(chat_events.c.words, word)
    )
    return or_(_column_contains(chats.c.title_key, word), in_message)


def _column_contains(column: Any, word: str) -> Any:
    return column.contains(word, autoescape=True)


_NOTICE_RATIO = 0.8
"""Share of a limit from which users see a warning."""
_NOTICE_ADVICE = "Delete chats that you no longer need, or ask an admin to raise the limit."


@dataclass(frozen=True, slots=True)
class ChatUsage:
    """Number and bytes of one user's chats, and the bytes of all users."""

    chats: int
    bytes: int
    bytes_in_all: int


@dataclass(frozen=True, slots=True)
class ChatQuota:
    """Limits on chats; 0 means no limit."""

    chats: int = 0
    """Chats of one user."""
    bytes: int = 0
    """Bytes of one user."""
    bytes_in_all: int = 0
    """Bytes of all users."""

    def check(self, usage: ChatUsage, *, new_chat: bool = False) -> None:
        """Raise ChatQuotaExceeded if a limit is reached."""
        if new_chat and self.chats and usage.chats >= self.chats:
            raise ChatQuotaExceeded(
                f"the limit of {format_count(self.chats, 'chat')} is reached",
                hint="delete chats that you no longer need, or ask an admin to raise chat_limit",
            )
        if self.bytes and usage.bytes >= self.bytes:
            raise ChatQuotaExceeded(
                f"your chats use {_format_bytes(usage.bytes)}; the limit is {_format_bytes(self.bytes)}",
                hint="delete chats that you no longer need, or ask an admin to raise chat_bytes_limit",
            )
        if self.bytes_in_all and usage.bytes_in_all >= self.bytes_in_all:
            raise ChatQuotaExceeded(
                "the storage for all chats is used up",
                hint="ask an admin to delete chats, or to raise chat_bytes_limit_all",
            )

    def notice(self, usage: ChatUsage) -> str | None:
        """Return a warning if usage is close to a limit; otherwise None."""
        if self.bytes and usage.bytes >= _NOTICE_RATIO * self.bytes:
            used, limit = _format_bytes(usage.bytes), _format_bytes(self.bytes)
            return f"Your chats use {used} of {limit}. {_NOTICE_ADVICE}"
        if self.chats and usage.chats >= _NOTICE_RATIO * self.chats:
            return f"You have {usage.chats:,} of {format_count(self.chats, 'chat')}. {_NOTICE_ADVICE}"
        if self.bytes_in_all and usage.bytes_in_all >= _NOTICE_RATIO * self.bytes_in_all:
            return f"The storage for the chats of all users is almost used up. {_NOTICE_ADVICE}"
        return None


_SELECT_BYTES_IN_ALL = select(func.coalesce(func.sum(chats.c.bytes), 0))
_SELECT_USAGE = _SELECT_BYTES_IN_ALL.add_columns(func.count()).where(chats.c.owner == bindparam("of"))


def chat_usage(connection: Connection, owner: str) -> ChatUsage:
    """Return the usage of a user, from the counters of the chats."""
    own_bytes, count = connection.execute(_SELECT_USAGE, {"of": owner}).one()
    bytes_in_all = connection.execute(_SELECT_BYTES_IN_ALL).scalar_one()
    return ChatUsage(int(count), int(own_bytes), int(bytes_in_all))


def _format_bytes(count: int) -> str:
    for unit, size in (("GB", 1_000_000_000), ("MB", 1_000_000)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count / 1_000:.1f} kB"
