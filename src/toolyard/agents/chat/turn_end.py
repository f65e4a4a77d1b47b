"""What is appended to a turn that ends before it is done, so that its chat can go on from there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from toolyard.agents.chat.result_event import failure_event
from toolyard.agents.chat.turn_snapshot import Standing
from toolyard.types.chat import Ending, Event, Kind, NewEvent

__all__ = ["INTERRUPTED", "Ended", "closing", "end_event"]

INTERRUPTED = "interrupted; the outcome is unknown"

_RESULTS = {
    Ending.STOPPED: "stopped by the person; what the tool did until then is not known",
    Ending.INTERRUPTED: INTERRUPTED,
    Ending.LIMIT: "not called: a limit ended the turn",
    Ending.FAILED: "not finished: the turn failed",
    Ending.DONE: "not finished: the turn is over",
}

_NEVER_ALLOWED = "not called: the turn ended before the person said yes or no"


@dataclass(frozen=True, slots=True)
class Ended:
    """Why a turn is over, in words where there is more to say."""

    why: Ending
    error: str | None = None
    hint: str | None = None


def closing(events: Iterable[Event], ended: Ended, now: float) -> list[NewEvent]:
    """What a turn with these events lacks: what arrived of an answer in one piece, a result for every call,
    an answer for every question, and the end. Nothing for a turn that is over."""
    standing = Standing.of(events)
    if standing.ended:
        return []
    return [*_folded(standing), *_settled(standing, ended.why), end_event(ended, standing.began, now)]


def end_event(ended: Ended, began: Event | None, now: float) -> NewEvent:
    """The last event of a turn."""
    seconds = 0.0 if began is None else max(0.0, now - began.at)
    body: dict[str, Any] = {
        "why": ended.why.value,
        "error": ended.error,
        "hint": ended.hint,
        "seconds": round(seconds, 3),
    }
    return NewEvent(Kind.END, body)


def _folded(standing: Standing) -> Iterator[NewEvent]:
    for part, piece in standing.pieces.items():
        # Calls that were still being written are not among the pieces: nobody made them.
        body = {"text": piece.text, "reasoning": piece.reasoning, "model": None, "calls": 0}
        yield NewEvent(Kind.SAID, body, part=part)


def _settled(standing: Standing, why: Ending) -> Iterator[NewEvent]:
    for question in standing.questions:
        yield NewEvent(Kind.ANSWERED, {"id": question, "action": "cancel"})
    for call in standing.calls:
        waits = call.approval is not None and call.yes is None
        yield failure_event(call.id, _NEVER_ALLOWED if waits else _RESULTS[why])
