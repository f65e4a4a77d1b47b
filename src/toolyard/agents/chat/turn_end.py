"""Limits of a turn, and the events that close one. Pure functions of the turn's snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from toolyard.agents.chat.result_event import failure_event
from toolyard.agents.chat.turn_snapshot import TurnSnapshot, call_key
from toolyard.config.settings.table import Settings
from toolyard.types.chat import ModelMessage, NewChatEvent, QuestionAnswer, TurnEnd, TurnOutcome

__all__ = [
    "IDENTICAL_CALL_LIMIT",
    "INTERRUPTED_MESSAGE",
    "ChatLimits",
    "build_closing_events",
    "build_end_event",
    "find_reached_limit",
    "find_refused_calls",
    "find_repeated_call",
]


@dataclass(frozen=True, slots=True)
class ChatLimits:
    """Limits of one turn."""

    max_steps: int = 30
    """Model requests per turn, if the agent does not set its own maximum."""
    token_budget: int = 1_000_000
    """Input and output tokens after which a turn makes no further model request."""
    max_parallel_calls: int = 16
    """Calls of one turn that run at the same time."""
    max_calls_per_answer: int = 64
    """Calls of one answer that are made; the others get an error result."""
    question_timeout_seconds: float = 600.0
    """Time that a user has to answer a server's question."""
    max_questions_per_call: int = 20
    """Questions, including sampling requests, that a server may send during one call."""
    max_open_questions: int = 4
    """Unanswered questions that one call may have at the same time."""
    max_sampling_tokens: int = 8_192
    """Output tokens of the answer to one sampling request; a server may request fewer."""

    @classmethod
    def from_settings(cls, settings: Settings) -> ChatLimits:
        """Return the limits of these settings."""
        return cls(max_steps=settings.max_steps, token_budget=settings.turn_token_budget)


IDENTICAL_CALL_LIMIT = 3
"""Occurrence of an identical call (same name and arguments) from which on it is refused."""


def find_reached_limit(snapshot: TurnSnapshot, limits: ChatLimits, max_steps: int | None) -> TurnEnd | None:
    """Return the limit that ends the turn before its next model request, or None."""
    step_limit = max_steps or limits.max_steps
    if snapshot.steps >= step_limit:
        return TurnEnd(
            TurnOutcome.LIMIT,
            f"the turn reached its limit of {step_limit} model requests",
            "send a message to continue; max_steps sets the limit, for all agents or for one",
        )
    if snapshot.usage.tokens >= limits.token_budget:
        return TurnEnd(
            TurnOutcome.LIMIT,
            f"this turn has used {snapshot.usage.tokens:,} tokens; the limit is {limits.token_budget:,}",
            "send a message to continue; turn_token_budget sets the limit",
        )
    return None


def find_repeated_call(snapshot: TurnSnapshot) -> TurnEnd | None:
    """Return the end of a turn whose model repeats a call already refused as a repetition, or None."""
    counts = snapshot.count_completed_calls()
    for call in snapshot.open_calls:
        # Calls with an approval passed this check before the approval was requested.
        if call.approval is None and counts[call_key(call.request)] >= IDENTICAL_CALL_LIMIT:
            return TurnEnd(
                TurnOutcome.LIMIT,
                f"the model repeated the same call of '{call.request.name[:64]}' too often",
                "tell it what to do instead",
            )
    return None


def find_refused_calls(snapshot: TurnSnapshot, limits: ChatLimits) -> Mapping[str, str]:
    """Return the open calls that are refused: the message for the model, by call id.

    Calls with an approval passed this check before the approval was requested.
    """
    counts = snapshot.count_completed_calls()
    refusals: dict[str, str] = {}
    unreviewed = [call.request for call in snapshot.open_calls if call.approval is None]
    for number, call in enumerate(unreviewed, 1):
        key = call_key(call)
        counts[key] += 1
        if number > limits.max_calls_per_answer:
            refusals[call.id] = (
                f"not called: an answer may contain at most {limits.max_calls_per_answer} calls; "
                "request the others in your next answer"
            )
        elif counts[key] >= IDENTICAL_CALL_LIMIT:
            refusals[call.id] = (
                "not called: the same call with the same arguments was already made in this turn, and its "
                "result is above; repeating it again ends the turn"
            )
    return refusals


# Closing.

INTERRUPTED_MESSAGE = "interrupted; the outcome is unknown"

_UNFINISHED_CALL_MESSAGES: Mapping[str, str] = {
    TurnOutcome.STOPPED: "stopped by the user; the tool may have taken effect before",
    TurnOutcome.INTERRUPTED: INTERRUPTED_MESSAGE,
    TurnOutcome.LIMIT: "not called: a limit ended the turn",
    TurnOutcome.FAILED: "not finished: the turn failed",
    TurnOutcome.DONE: "not finished: the turn is over",
}

_UNAPPROVED_CALL_MESSAGE = "not called: the turn ended before the user approved or denied it"


def build_closing_events(snapshot: TurnSnapshot, end: TurnEnd, now: float) -> list[NewChatEvent]:
    """Return the events that complete a turn: partial answers, missing results, cancelled questions, and the
    end.

    Empty for a turn that has ended.
    """
    if snapshot.end is not None:
        return []
    return [
        *_complete_partial_answers(snapshot),
        *_close_open_items(snapshot, end.why),
        build_end_event(snapshot, end, now),
    ]


def build_end_event(snapshot: TurnSnapshot, end: TurnEnd, now: float) -> NewChatEvent:
    """Return the last event of a turn, with its duration."""
    seconds = 0.0 if snapshot.start is None else round(max(0.0, now - snapshot.at), 3)
    return NewChatEvent.from_data(replace(end, seconds=seconds))


def _complete_partial_answers(snapshot: TurnSnapshot) -> Iterator[NewChatEvent]:
    for answer in snapshot.answers:
        if answer.seq is None:
            # Tool calls still being streamed are not among the fragments, and were not made.
            yield NewChatEvent.from_data(ModelMessage(answer.text, answer.reasoning), answer.part)


def _close_open_items(snapshot: TurnSnapshot, outcome: str) -> Iterator[NewChatEvent]:
    for asked in snapshot.open_questions:
        yield NewChatEvent.from_data(QuestionAnswer(asked.question.id, "cancel"))
    # Model providers refuse a history in which a call has no result, so that every open call gets one.
    # Otherwise the chat could not continue.
    for call in snapshot.open_calls:
        is_unanswered = call.approval is not None and call.approved is None
        yield failure_event(
            call.request.id,
            _UNAPPROVED_CALL_MESSAGE if is_unanswered else _UNFINISHED_CALL_MESSAGES[outcome],
        )
