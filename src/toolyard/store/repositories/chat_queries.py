"""Events of a chat, and chats by the words in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, exists, func, or_, select

from toolyard.store.repositories.chat_rows import EVENTS, unpacked
from toolyard.store.sql.casefold import folded
from toolyard.store.sql.tables import chat_events, chats

__all__ = ["LAST", "existing", "latest_of", "matching", "read_events", "read_kept"]

LAST = 2**62
"""More than any number of an event."""
_WORDS, _LETTERS = 12, 500
"""What is looked for at most; SQLite takes patterns of 50,000 bytes."""
_AT_ONCE = 500

_OF = chat_events.c.chat_id == bindparam("of")
_AFTER = (
    EVENTS.where(_OF, chat_events.c.seq > bindparam("after"))
    .order_by(chat_events.c.seq)
    .limit(bindparam("most"))
)
_BETWEEN = EVENTS.where(
    _OF, chat_events.c.seq >= bindparam("start"), chat_events.c.seq < bindparam("before")
).order_by(chat_events.c.seq)
_BACKWARDS = (
    select(chat_events.c.seq, chat_events.c.turn)
    .where(_OF, chat_events.c.seq < bindparam("before"))
    .order_by(chat_events.c.seq.desc())
    .limit(bindparam("most"))
)
_COUNT = select(func.count()).where(
    _OF, chat_events.c.seq >= bindparam("start"), chat_events.c.seq < bindparam("before")
)
_KEPT = select(chat_events.c.seq, chat_events.c.kept).where(
    _OF, chat_events.c.seq.in_(bindparam("seqs", expanding=True)), chat_events.c.kept.is_not(None)
)


def read_events(connection: Connection, chat_id: str, after: int, limit: int) -> Sequence[Any]:
    """Rows of EVENTS, in order."""
    values = {"of": chat_id, "after": max(-1, min(after, LAST)), "most": limit}
    return connection.execute(_AFTER, values).all()


def existing(connection: Connection, chat_ids: Sequence[str]) -> set[str]:
    """Which of these chats there are."""
    found: set[str] = set()
    for start in range(0, len(chat_ids), _AT_ONCE):
        some = chats.c.id.in_(chat_ids[start : start + _AT_ONCE])
        found |= set(connection.execute(select(chats.c.id).where(some)).scalars())
    return found


def latest_of(connection: Connection, chat_id: str, before: int | None, limit: int) -> Sequence[Any]:
    """Rows of EVENTS, in order, from the beginning of a turn on; about ``limit`` of them."""
    end = LAST if before is None else max(0, min(before, LAST))
    seen = connection.execute(_BACKWARDS, {"of": chat_id, "before": end, "most": limit}).all()
    if not seen:
        return ()
    start = _start(connection, chat_id, seen, limit)
    return connection.execute(_BETWEEN, {"of": chat_id, "start": start, "before": end}).all()


def _start(connection: Connection, chat_id: str, seen: Sequence[Any], limit: int) -> int:
    """The turn of the oldest event, unless that is long and another turn begins among those seen."""
    first = seen[-1]
    more = connection.execute(_COUNT, {"of": chat_id, "start": first.turn, "before": first.seq}).scalar_one()
    if more > limit:
        return next((row.seq for row in reversed(seen) if row.seq == row.turn), first.turn)
    return first.turn


def read_kept(connection: Connection, chat_id: str, seqs: Sequence[int]) -> dict[int, bytes]:
    """What was kept aside, by number."""
    wanted = sorted({seq for seq in seqs if 0 < seq < LAST})
    found: dict[int, bytes] = {}
    for start in range(0, len(wanted), _AT_ONCE):
        values = {"of": chat_id, "seqs": wanted[start : start + _AT_ONCE]}
        found |= {row.seq: unpacked(row.kept) for row in connection.execute(_KEPT, values)}
    return found


def matching(words: str) -> list[Any]:
    """Conditions on chats: each word stands in the title or in something that was said."""
    return [_holding(word[:_LETTERS]) for word in folded(words.replace("\0", " ")).split()[:_WORDS]]


def _holding(word: str) -> Any:
    said = exists().where(chat_events.c.chat_id == chats.c.id, _in(chat_events.c.words, word))
    return or_(_in(chats.c.title_key, word), said)


def _in(column: Any, word: str) -> Any:
    return column.contains(word, autoescape=True)
