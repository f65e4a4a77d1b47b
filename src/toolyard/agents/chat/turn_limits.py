"""What keeps a turn from going on for ever. Pure: it looks at how far the turn is, and says why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from toolyard.agents.chat.chat_settings import ChatRules
from toolyard.agents.chat.turn_end import Ended
from toolyard.agents.chat.turn_snapshot import OpenCall, Standing, call_key
from toolyard.types.chat import Ending

__all__ = ["SAME", "may_ask", "refusals", "repeated"]

SAME = 3
"""The time at which a call with the same arguments is not made, but answered with an error."""


def may_ask(standing: Standing, rules: ChatRules, max_steps: int | None) -> Ended | None:
    """None: the model may be asked once more. Otherwise the limit that was reached."""
    most = max_steps or rules.max_steps
    if standing.steps >= most:
        return Ended(
            Ending.LIMIT,
            f"the model was asked {most} times in this turn, which is the limit",
            "send a message to let it go on; max_steps sets the limit, for all or for one agent",
        )
    if standing.tokens >= rules.token_budget:
        return Ended(
            Ending.LIMIT,
            f"this turn has used {standing.tokens:,} tokens; the limit is {rules.token_budget:,}",
            "send a message to let it go on; turn_token_budget sets the limit",
        )
    return None


def repeated(standing: Standing) -> Ended | None:
    """The limit that is reached where the model asks again for a call that was refused as a repetition."""
    for call in standing.calls:
        # One that waited for an approval was looked at before it was asked about.
        if call.approval is None and standing.made[call_key(call.name, call.arguments)] >= SAME:
            return Ended(
                Ending.LIMIT,
                f"the model asked for the same call of '{call.name[:64]}' again and again",
                "tell it what to do instead",
            )
    return None


def refusals(calls: Iterable[OpenCall], made: Counter[bytes], rules: ChatRules) -> Mapping[str, str]:
    """The calls of one answer that are not made, by id, with the words for the model."""
    seen = made.copy()
    refused: dict[str, str] = {}
    for number, call in enumerate(calls, 1):
        key = call_key(call.name, call.arguments)
        seen[key] += 1
        if number > rules.most_calls:
            refused[call.id] = (
                f"not called: an answer may have {rules.most_calls} calls, and this one has more; "
                "ask for the rest in the next answer"
            )
        elif seen[key] >= SAME:
            refused[call.id] = (
                "not called: the same call with the same arguments was made before in this turn, and its "
                "result is above; another such call ends the turn"
            )
    return refused
