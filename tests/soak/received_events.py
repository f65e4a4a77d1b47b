"""The events of a chat as somebody heard them, beside those that the database has."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.soak.request_outcomes import Tally

from toolyard.types.chat import TRANSIENT_KINDS


@dataclass
class ReceivedEvents:
    """What was streamed of one chat: each event once, in the order of its number."""

    last: int = 0
    seen: dict[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])
    """By number: the kind, and what tells whether it is the same."""

    def hear(self, event: Any, tally: Tally) -> None:
        """One more."""
        tally.event("streamed")
        if event["seq"] <= self.last:
            tally.event("twice", f"{event['kind']} {event['seq']} came after {self.last}")
            return
        self.last = event["seq"]
        self.seen[self.last] = (event["kind"], _print(event))

    def compare(self, stored_events: Sequence[Any], tally: Tally, chat_id: str) -> None:
        """With what the database has. Pieces are taken back once the whole is there; nothing else is."""
        numbers = {event["seq"] for event in stored_events}
        for event in stored_events:
            seen_event = self.seen.get(event["seq"])
            # A title may be written after the end of the turn, when nobody listens any more.
            if seen_event is None and event["kind"] == "title":
                continue
            if seen_event is None:
                tally.event("lost", f"chat {chat_id}: {event['kind']} {event['seq']} was never streamed")
            elif seen_event[1] != _print(event):
                tally.event("changed", f"chat {chat_id}: {event['kind']} {event['seq']}")
        for number, (kind, _) in self.seen.items():
            if number not in numbers and kind not in TRANSIENT_KINDS:
                tally.event("lost", f"chat {chat_id}: {kind} {number} was streamed and is not stored")
        # Pieces whose whole was there before anybody read them; the whole was streamed.
        tally.event("folded", count=max(0, self.last - len(self.seen.keys() | numbers)))


def _print(event: Any) -> int:
    return hash(json.dumps(event, sort_keys=True))
