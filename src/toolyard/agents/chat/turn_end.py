"""Close a turn: build the events that it lacks, so that the chat can continue afterwards."""

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
    TurnOutcome.STOPPED: "stopped by the user; the tool may have taken effect before",
    TurnOutcome.INTERRUPTED: INTERRUPTED_MESSAGE,
    TurnOutcome.LIMIT: "not called: a limit ended the turn",
    TurnOutcome.FAILED: "not finished: the turn failed",
    TurnOutcome.DONE: "not finished: the turn is over",
}

_UNAPPROVED_CALL_MESSAGE = "not called: the turn ended before the user approved or denied it"


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """Outcome of a turn, with an error and a hint where there is more to say."""

    why: TurnOutcome
    error: str | None = None
    hint: str | None = None


def build_closing_events(events: Iterable[ChatEvent], end: TurnEnd, now: float) -> list[NewChatEvent]:
    """Return the events that complete a turn: partial answers, missing results, cancelled questions, and the
    end.

    Empty for a turn that has ended.
    """
    snapshot = TurnSnapshot.from_events(events)
    if snapshot.is_ended:
        return []
    return [
        *_complete_partial_answers(snapshot),
        *_close_open_items(snapshot, end.why),
        end_event(end, snapshot.first_event, now),
    ]


def end_event(end: TurnEnd, first_event: ChatEvent | None, now: float) -> NewChatEvent:
    """Return the last event of a turn."""
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
        # Tool calls still being streamed are not among the pieces, and were not made.
        body = {"text": piece.text, "reasoning": piece.reasoning, "model": None, "calls": 0}
        yield NewChatEvent(Kind.MODEL_MESSAGE, body, part=part)


def _close_open_items(snapshot: TurnSnapshot, outcome: TurnOutcome) -> Iterator[NewChatEvent]:
    for question in snapshot.open_question_ids:
        yield NewChatEvent(Kind.QUESTION_ANSWER, {"id": question, "action": "cancel"})
    # Model providers refuse a history in which a call has no result, so that every open call gets one.
    # Otherwise the chat could not continue.
    for call in snapshot.open_calls:
        is_unanswered = call.approval_id is not None and call.approved is None
        yield failure_event(
            call.id, _UNAPPROVED_CALL_MESSAGE if is_unanswered else _UNFINISHED_CALL_MESSAGES[outcome]
        )
