"""Conversion of chats and their events to rows and back."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import select

from toolyard.store.errors import Unstorable
from toolyard.store.sql.casefold import fold_case
from toolyard.store.sql.columns import MAX_TEXT_CHARACTERS, clean_text
from toolyard.store.sql.json_text import json_text, repair_surrogates
from toolyard.store.sql.tables import chat_events, chats
from toolyard.types.chat import Chat, ChatEvent, Kind, NewChatEvent, TurnState

__all__ = [
    "SELECT_CHATS",
    "SELECT_EVENTS",
    "PreparedEvent",
    "chat_from_row",
    "chat_values",
    "compress_bytes",
    "decompress_bytes",
    "event_from_row",
]

_SEARCHABLE_KINDS = frozenset({Kind.USER, Kind.MODEL_MESSAGE})
_MAX_VALUE_BYTES = 500_000_000
"""Maximum size of one value, safely within the limits of both databases."""

SELECT_CHATS = select(
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
SELECT_EVENTS = select(
    chat_events.c.chat_id,
    chat_events.c.seq,
    chat_events.c.turn,
    chat_events.c.kind,
    chat_events.c.at,
    chat_events.c.part,
    chat_events.c.body,
    chat_events.c.kept.is_not(None).label("has_kept"),
    chat_events.c.parent,
)


@dataclass(frozen=True, slots=True)
class PreparedEvent:
    """Serialized new event that has no number yet. Prepared outside the transaction to keep that short."""

    kind: Kind
    part: str
    body: str
    words: str | None
    kept: bytes

    @classmethod
    def from_new_event(cls, event: NewChatEvent) -> PreparedEvent:
        """Serialize an event. Raises Unstorable if it is too large."""
        body = json_text(event.body)
        if max(len(body), len(event.kept)) > _MAX_VALUE_BYTES:
            raise Unstorable(f"an event of more than {_MAX_VALUE_BYTES:,} bytes cannot be stored")
        words = _searchable_text(event.body.get("text")) if event.kind in _SEARCHABLE_KINDS else None
        return cls(event.kind, repair_surrogates(event.part).replace("\0", "\ufffd"), body, words, event.kept)

    @property
    def size_bytes(self) -> int:
        """Approximate size."""
        return len(self.body) + len(self.kept)

    def to_row(self, chat_id: str, seq: int, turn: int, at: float, parent: int | None) -> dict[str, Any]:
        """Return the row of the event with its number."""
        return {
            "chat_id": chat_id,
            "seq": seq,
            "turn": turn,
            "kind": self.kind.value,
            "at": at,
            "part": self.part,
            "words": self.words,
            "body": self.body,
            "kept": compress_bytes(self.kept) if self.kept else None,
            "parent": parent,
        }

    def to_event(self, chat_id: str, seq: int, turn: int, at: float, parent: int | None) -> ChatEvent:
        """Return the event as a reader of its row will get it."""
        return ChatEvent(
            chat_id, seq, turn, self.kind, at, orjson.loads(self.body), self.part, bool(self.kept), parent
        )


def _searchable_text(text: object) -> str | None:
    return (
        clean_text(fold_case(text[:MAX_TEXT_CHARACTERS]), MAX_TEXT_CHARACTERS)
        if isinstance(text, str)
        else None
    )


def compress_bytes(data: bytes) -> bytes:
    """Compress at the fastest level."""
    return zlib.compress(data, 1)


def decompress_bytes(data: bytes) -> bytes:
    """Reverse ``compress_bytes``."""
    return zlib.decompress(data)


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
        bool(row.has_kept),
        row.parent,
    )


def chat_from_row(row: Any) -> Chat:
    """Build a chat from a row of ``SELECT_CHATS``."""
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
    """Return the columns that the owner of a chat may change."""
    title = clean_text(chat.title, MAX_TEXT_CHARACTERS)
    return {
        "title": title,
        "title_key": fold_case(title),
        "agent": chat.agent,
        "model": chat.model,
        "choice": chat.choice,
    }
