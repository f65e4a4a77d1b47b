"""What a turn has come to so far: its events, as they were written, and what was kept aside with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from toolyard.agents.chat.event_writer import Scribe
from toolyard.agents.chat.storage import ChatStore
from toolyard.agents.chat.turn_snapshot import Standing
from toolyard.types.chat import PIECES, Event, Kind, NewEvent, TurnState

__all__ = ["Record", "read_chat", "read_turn", "seqs_kept"]

_PAGE = 1_000


class Record:
    """The events of one turn, read once and kept up with what is appended."""

    def __init__(self, scribe: Scribe, events: Iterable[Event]) -> None:
        self.scribe = scribe
        self.events = [event for event in events if event.kind not in PIECES]
        self.kept: dict[int, bytes] = {}

    @property
    def chat_id(self) -> str:
        return self.scribe.chat_id

    def standing(self) -> Standing:
        """How far the turn is."""
        return Standing.of(self.events)

    async def append(self, events: Sequence[NewEvent], *, then: TurnState = TurnState.RUNNING) -> None:
        """Write these down. Raises NotHeld, or what the store raises."""
        written = await self.scribe.append(events, then=then)
        self.events += written
        self.kept |= {done.seq: new.kept for new, done in zip(events, written, strict=True) if new.kept}


async def read_chat(
    store: ChatStore, chat_id: str, *, after: int = 0, before: int | None = None
) -> list[Event]:
    """The events of a chat between two numbers, in order."""
    found: list[Event] = []
    while True:
        page = await store.events(chat_id, after=after, limit=_PAGE)
        found += page if before is None else [event for event in page if event.seq < before]
        if len(page) < _PAGE or (before is not None and page[-1].seq >= before):
            return found
        after = page[-1].seq


async def read_turn(store: ChatStore, chat_id: str, turn: int) -> list[Event]:
    """The events of one turn."""
    return [event for event in await read_chat(store, chat_id, after=turn - 1) if event.turn == turn]


def seqs_kept(events: Iterable[Event]) -> list[int]:
    """The numbers of the events whose kept parts a model is told."""
    return [event.seq for event in events if event.has_kept and event.kind in (Kind.SAID, Kind.RESULT)]
