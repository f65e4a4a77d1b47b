"""Queries for the events of a chat, and for chats that contain given words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, exists, func, or_, select

from toolyard.store.repositories.chat_rows import SELECT_EVENTS, decompress_bytes
from toolyard.store.sql.casefold import fold_case
from toolyard.store.sql.tables import chat_events, chats
from toolyard.types.chat import Kind, TurnTree

__all__ = [
    "MAX_SEQ",
    "build_search_conditions",
    "find_branch_end",
    "find_existing_chats",
    "read_events",
    "read_kept",
    "read_latest_events",
    "read_turn_tree",
]

MAX_SEQ = 2**62
"""Upper bound of event numbers, which both databases can store."""
_MAX_SEARCH_WORDS, _MAX_WORD_CHARACTERS = 12, 500
"""Limits of a search; SQLite allows patterns of 50,000 bytes."""
_MAX_IDS_PER_QUERY = 500

_IN_CHAT = chat_events.c.chat_id == bindparam("of")
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
    for start in range(0, len(chat_ids), _MAX_IDS_PER_QUERY):
        in_batch = chats.c.id.in_(chat_ids[start : start + _MAX_IDS_PER_QUERY])
        existing |= set(connection.execute(select(chats.c.id).where(in_batch)).scalars())
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


def read_kept(connection: Connection, chat_id: str, seqs: Sequence[int]) -> dict[int, bytes]:
    """Return the separately stored data of events, by event number."""
    valid_seqs = sorted({seq for seq in seqs if 0 < seq < MAX_SEQ})
    kept: dict[int, bytes] = {}
    for start in range(0, len(valid_seqs), _MAX_IDS_PER_QUERY):
        values = {"of": chat_id, "seqs": valid_seqs[start : start + _MAX_IDS_PER_QUERY]}
        kept |= {row.seq: decompress_bytes(row.kept) for row in connection.execute(_SELECT_KEPT, values)}
    return kept


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
