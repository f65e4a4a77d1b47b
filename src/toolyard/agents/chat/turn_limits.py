"""Limits that end a turn or refuse its calls. Pure functions of the turn's snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from toolyard.agents.chat.turn_end import TurnEnd
from toolyard.agents.chat.turn_snapshot import OpenCall, TurnSnapshot, call_key
from toolyard.config.settings.table import Settings
from toolyard.types.chat import TurnOutcome

__all__ = [
    "IDENTICAL_CALL_LIMIT",
    "ChatLimits",
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
    if snapshot.tokens >= limits.token_budget:
        return TurnEnd(
            TurnOutcome.LIMIT,
            f"this turn has used {snapshot.tokens:,} tokens; the limit is {limits.token_budget:,}",
            "send a message to continue; turn_token_budget sets the limit",
        )
    return None


def find_repeated_call(snapshot: TurnSnapshot) -> TurnEnd | None:
    """Return the end of a turn whose model repeats a call already refused as a repetition, or None."""
    for call in snapshot.open_calls:
        # Calls with an approval passed this check before the approval was requested.
        if (
            call.approval_id is None
            and snapshot.call_counts[call_key(call.name, call.arguments)] >= IDENTICAL_CALL_LIMIT
        ):
            return TurnEnd(
                TurnOutcome.LIMIT,
                f"the model repeated the same call of '{call.name[:64]}' too often",
                "tell it what to do instead",
            )
    return None


def find_refused_calls(
    calls: Iterable[OpenCall], call_counts: Counter[bytes], limits: ChatLimits
) -> Mapping[str, str]:
    """Return the calls of one answer that are refused: the message for the model, by call id."""
    counts = call_counts.copy()
    refusals: dict[str, str] = {}
    for number, call in enumerate(calls, 1):
        key = call_key(call.name, call.arguments)
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
