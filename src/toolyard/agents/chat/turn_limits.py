"""What keeps a turn from going on for ever. Pure: it looks at how far the turn is, and says why not."""

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
    """What bounds a turn."""

    max_steps: int = 30
    """Model requests in one turn, where the agent sets no number."""
    token_budget: int = 1_000_000
    """Tokens, read and written, after which a turn asks the model no more."""
    max_parallel_calls: int = 16
    """Calls of one turn that run at the same time."""
    max_calls_per_answer: int = 64
    """Calls of one answer that are made; the rest are answered with an error."""
    question_timeout_seconds: float = 600.0
    """How long a server that asks the person something waits for them."""
    max_questions_per_call: int = 20
    """Questions, model requests included, that a server may ask during one call."""
    max_open_questions: int = 4
    """Questions of one call that may wait for an answer at the same time."""

    @classmethod
    def from_settings(cls, settings: Settings) -> ChatLimits:
        """The rules that the settings name."""
        return cls(max_steps=settings.max_steps, token_budget=settings.turn_token_budget)


IDENTICAL_CALL_LIMIT = 3
"""The time at which a call with the same arguments is not made, but answered with an error."""


def find_reached_limit(snapshot: TurnSnapshot, limits: ChatLimits, max_steps: int | None) -> TurnEnd | None:
    """None: the model may be asked once more. Otherwise the limit that was reached."""
    most = max_steps or limits.max_steps
    if snapshot.steps >= most:
        return TurnEnd(
            TurnOutcome.LIMIT,
            f"the model was asked {most} times in this turn, which is the limit",
            "send a message to let it go on; max_steps sets the limit, for all or for one agent",
        )
    if snapshot.tokens >= limits.token_budget:
        return TurnEnd(
            TurnOutcome.LIMIT,
            f"this turn has used {snapshot.tokens:,} tokens; the limit is {limits.token_budget:,}",
            "send a message to let it go on; turn_token_budget sets the limit",
        )
    return None


def find_repeated_call(snapshot: TurnSnapshot) -> TurnEnd | None:
    """The limit that is reached where the model asks again for a call that was refused as a repetition."""
    for call in snapshot.open_calls:
        # One that waited for an approval was looked at before it was asked about.
        if (
            call.approval is None
            and snapshot.made[call_key(call.name, call.arguments)] >= IDENTICAL_CALL_LIMIT
        ):
            return TurnEnd(
                TurnOutcome.LIMIT,
                f"the model asked for the same call of '{call.name[:64]}' again and again",
                "tell it what to do instead",
            )
    return None


def find_refused_calls(
    calls: Iterable[OpenCall], call_counts: Counter[bytes], limits: ChatLimits
) -> Mapping[str, str]:
    """The calls of one answer that are not made, by id, with the words for the model."""
    seen = call_counts.copy()
    refused: dict[str, str] = {}
    for number, call in enumerate(calls, 1):
        key = call_key(call.name, call.arguments)
        seen[key] += 1
        if number > limits.max_calls_per_answer:
            refused[call.id] = (
                f"not called: an answer may have {limits.max_calls_per_answer} calls, and this one has more; "
                "ask for the rest in the next answer"
            )
        elif seen[key] >= IDENTICAL_CALL_LIMIT:
            refused[call.id] = (
                "not called: the same call with the same arguments was made before in this turn, and its "
                "result is above; another such call ends the turn"
            )
    return refused
