"""Rule: a disabled or closed server offers no tools."""

from __future__ import annotations

from toolyard.policy.rule import ConstantRule, Rule
from toolyard.types.decision import RuleOutcome
from toolyard.types.server import Server
from toolyard.types.status import State

__all__ = ["state_rule"]

STATE_RULE_TITLE = "state"


def state_rule(server: Server, state: State) -> Rule:
    """Refuse the tools of a disabled or closed server.

    A server that failed or needs credentials keeps its tools. Its calls return the cause, and the list of
    tools, on which the prompt caches of models depend, stays stable.
    """
    if server.disabled_reason is not None:
        return ConstantRule(
            STATE_RULE_TITLE,
            RuleOutcome.REFUSE,
            f"server '{server.id}' is disabled: {server.disabled_reason}",
        )
    if not server.enabled or state is State.DISABLED:
        return ConstantRule(STATE_RULE_TITLE, RuleOutcome.REFUSE, f"server '{server.id}' is disabled")
    if state is State.CLOSED:
        return ConstantRule(STATE_RULE_TITLE, RuleOutcome.REFUSE, f"server '{server.id}' is closed")
    return ConstantRule(
        STATE_RULE_TITLE, RuleOutcome.PASS, f"server '{server.id}' is enabled; its state is {state.value}"
    )
