"""Chats and their events as rows, and back again."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import select

from toolyard.store.errors import Unstorable
from toolyard.store.sql.casefold import folded
from toolyard.store.sql.columns import LONG, clean_text
from toolyard.store.sql.json_text import json_text, whole_text
from toolyard.store.sql.tables import chat_events, chats
from toolyard.types.chat import Chat, Event, Kind, NewEvent, TurnState

__all__ = ["CHATS", "EVENTS", "Line", "chat_from", "chat_values", "event_from", "packed", "unpacked"]

_SEARCHED = frozenset({Kind.USER, Kind.SAID})
_LARGEST = 500_000_000
"""Bytes that both databases take as one value, with room to spare."""

CHATS = select(
    chats.c.id,
    chats.c.owner,
    chats.c.title,
    chats.c.created_at,
    chats.c.updated_at,
    chats.c.agent,
    chats.c.model,
    chats.c.choice,
    chats.c.state,
    chats.c.turn,
    chats.c.last,
)
EVENTS = select(
    chat_events.c.chat_id,
    chat_events.c.seq,
    chat_events.c.turn,
    chat_events.c.kind,
    chat_events.c.at,
    chat_events.c.part,
    chat_events.c.body,
    chat_events.c.kept.is_not(None).label("has_kept"),
)


@dataclass(frozen=True, slots=True)
class Line:
    """A new event, as far as it can be written down before its number is known."""

    kind: Kind
    part: str
    body: str
    words: str | None
    kept: bytes

    @classmethod
    def of(cls, event: NewEvent) -> Line:
        """Raises Unstorable for what is larger than a database takes."""
        body = json_text(event.body)
        if max(len(body), len(event.kept)) > _LARGEST:
            raise Unstorable(f"an event of more than {_LARGEST:,} bytes cannot be stored")
        words = _words(event.body.get("text")) if event.kind in _SEARCHED else None
        return cls(event.kind, whole_text(event.part).replace("\0", "\ufffd"), body, words, event.kept)

    @property
    def weight(self) -> int:
        """About how many bytes it takes."""
        return len(self.body) + len(self.kept)

    def row(self, chat_id: str, seq: int, turn: int, at: float) -> dict[str, Any]:
        """With the number that it got."""
        return {
            "chat_id": chat_id,
            "seq": seq,
            "turn": turn,
            "kind": self.kind.value,
            "at": at,
            "part": self.part,
            "words": self.words,
            "body": self.body,
            "kept": packed(self.kept) if self.kept else None,
        }

    def event(self, chat_id: str, seq: int, turn: int, at: float) -> Event:
        """As it will be read."""
        return Event(chat_id, seq, turn, self.kind, at, orjson.loads(self.body), self.part, bool(self.kept))


def _words(text: object) -> str | None:
    return clean_text(folded(text[:LONG]), LONG) if isinstance(text, str) else None


def packed(kept: bytes) -> bytes:
    """Quickly rather than tightly."""
    return zlib.compress(kept, 1)


def unpacked(kept: bytes) -> bytes:
    """What was packed."""
    return zlib.decompress(kept)


def event_from(row: Any) -> Event:
    """From a row of EVENTS."""
    body = orjson.loads(row.body)
    return Event(row.chat_id, row.seq, row.turn, Kind(row.kind), row.at, body, row.part, bool(row.has_kept))


def chat_from(row: Any) -> Chat:
    """From a row of CHATS."""
    return Chat(
        id=row.id,
        owner=row.owner,
        title=row.title,
        created_at=row.created_at,
        updated_at=row.updated_at,
        agent=row.agent,
        model=row.model,
        choice=row.choice,
        state=TurnState(row.state),
        turn=row.turn,
        last=row.last,
    )


def chat_values(chat: Chat) -> dict[str, Any]:
    """What its owner may change."""
    title = clean_text(chat.title, LONG)
    return {
        "title": title,
        "title_key": folded(title),
        "agent": chat.agent,
        "model": chat.model,
        "choice": chat.choice,
    }
