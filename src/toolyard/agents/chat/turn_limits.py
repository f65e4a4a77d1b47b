"""Limits of a turn, and the checks whether it has reached them. Pure functions of the turn's snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from toolyard.agents.chat.turn_snapshot import TurnSnapshot, call_key
from toolyard.config.settings.table import Settings
from toolyard.types.chat import TurnEnd, TurnOutcome
from toolyard.types.plurals import format_count

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
            f"the turn reached its limit of {format_count(step_limit, 'model request')}",
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
                "tell the model what to do instead",
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
                "not called: an answer may contain at most "
                f"{format_count(limits.max_calls_per_answer, 'call')}; "
                "request the others in your next answer"
            )
        elif counts[key] >= IDENTICAL_CALL_LIMIT:
            refusals[call.id] = (
                "not called: the same call with the same arguments was already made in this turn, and its "
                "result is above; repeating it again ends the turn"
            )
    return refusals
