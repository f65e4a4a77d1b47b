"""What is appended to a turn that ends before it is done, so that its chat can go on from there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from toolyard.agents.chat.result_event import failure_event
from toolyard.agents.chat.turn_snapshot import TurnSnapshot
from toolyard.types.chat import ChatEvent, Kind, NewChatEvent, TurnOutcome

__all__ = ["INTERRUPTED_MESSAGE", "TurnEnd", "build_closing_events", "end_event"]

INTERRUPTED_MESSAGE = "interrupted; the outcome is unknown"

_UNFINISHED_CALL_MESSAGES = {
    TurnOutcome.STOPPED: "stopped by the person; what the tool did until then is not known",
    TurnOutcome.INTERRUPTED: INTERRUPTED_MESSAGE,
    TurnOutcome.LIMIT: "not called: a limit ended the turn",
    TurnOutcome.FAILED: "not finished: the turn failed",
    TurnOutcome.DONE: "not finished: the turn is over",
}

_UNAPPROVED_CALL_MESSAGE = "not called: the turn ended before the person said yes or no"


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """Why a turn is over, in words where there is more to say."""

    why: TurnOutcome
    error: str | None = None
    hint: str | None = None


def build_closing_events(events: Iterable[ChatEvent], end: TurnEnd, now: float) -> list[NewChatEvent]:
    """What a turn with these events lacks: what arrived of an answer in one piece, a result for every call,
    an answer for every question, and the end. Nothing for a turn that is over."""
    standing = TurnSnapshot.from_events(events)
    if standing.is_ended:
        return []
    return [
        *_complete_partial_answers(standing),
        *_close_open_items(standing, end.why),
        end_event(end, standing.first_event, now),
    ]


def end_event(end: TurnEnd, first_event: ChatEvent | None, now: float) -> NewChatEvent:
    """The last event of a turn."""
    seconds = 0.0 if first_event is None else max(0.0, now - first_event.at)
    body: dict[str, Any] = {
        "why": end.why.value,
        "error": end.error,
        "hint": end.hint,
        "seconds": round(seconds, 3),
    }
    return NewChatEvent(Kind.END, body)


def _complete_partial_answers(snapshot: TurnSnapshot) -> Iterator[NewChatEvent]:
    for part, piece in snapshot.partial_answers.items():
        # Calls that were still being written are not among the pieces: nobody made them.
        body = {"text": piece.text, "reasoning": piece.reasoning, "model": None, "calls": 0}
        yield NewChatEvent(Kind.MODEL_MESSAGE, body, part=part)


def _close_open_items(snapshot: TurnSnapshot, outcome: TurnOutcome) -> Iterator[NewChatEvent]:
    for question in snapshot.open_question_ids:
        yield NewChatEvent(Kind.QUESTION_ANSWER, {"id": question, "action": "cancel"})
    for call in snapshot.open_calls:
        waits = call.approval is not None and call.yes is None
        yield failure_event(
            call.id, _UNAPPROVED_CALL_MESSAGE if waits else _UNFINISHED_CALL_MESSAGES[outcome]
        )
