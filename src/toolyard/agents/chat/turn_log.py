"""What a turn has come to so far: its events, as they were written, and what was kept aside with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from toolyard.agents.chat.event_writer import EventWriter
from toolyard.agents.chat.storage import ChatStore
from toolyard.agents.chat.turn_snapshot import TurnSnapshot
from toolyard.types.chat import TRANSIENT_KINDS, ChatEvent, Kind, NewChatEvent, TurnState

__all__ = ["TurnLog", "find_kept_seqs", "read_chat_events", "read_turn_events"]

_EVENTS_PER_PAGE = 1_000


class TurnLog:
    """The events of one turn, read once and kept up with what is appended."""

    def __init__(self, event_writer: EventWriter, events: Iterable[ChatEvent]) -> None:
        self.event_writer = event_writer
        self.events = [event for event in events if event.kind not in TRANSIENT_KINDS]
        self.kept: dict[int, bytes] = {}

    @property
    def chat_id(self) -> str:
        return self.event_writer.chat_id

    def build_snapshot(self) -> TurnSnapshot:
        """How far the turn is."""
        return TurnSnapshot.from_events(self.events)

    async def append(
        self, events: Sequence[NewChatEvent], *, next_state: TurnState = TurnState.RUNNING
    ) -> None:
        """Write these down. Raises NotHeld, or what the store raises."""
        written = await self.event_writer.append(events, next_state=next_state)
        self.events += written
        self.kept |= {done.seq: new.kept for new, done in zip(events, written, strict=True) if new.kept}


async def read_chat_events(
    store: ChatStore, chat_id: str, *, after: int = 0, before: int | None = None
) -> list[ChatEvent]:
    """The events of a chat between two numbers, in order."""
    found: list[ChatEvent] = []
    while True:
        page = await store.list_events(chat_id, after=after, limit=_EVENTS_PER_PAGE)
        found += page if before is None else [event for event in page if event.seq < before]
        if len(page) < _EVENTS_PER_PAGE or (before is not None and page[-1].seq >= before):
            return found
        after = page[-1].seq


async def read_turn_events(store: ChatStore, chat_id: str, turn: int) -> list[ChatEvent]:
    """The events of one turn."""
    return [event for event in await read_chat_events(store, chat_id, after=turn - 1) if event.turn == turn]


def find_kept_seqs(events: Iterable[ChatEvent]) -> list[int]:
    """The numbers of the events whose kept parts a model is told."""
    return [
        event.seq for event in events if event.has_kept and event.kind in (Kind.MODEL_MESSAGE, Kind.RESULT)
    ]
