"""Enabled and state: a server that is switched off has no tools."""

from __future__ import annotations

from toolyard.policy.rule import Always, Rule
from toolyard.types.decision import Outcome
from toolyard.types.server import Server
from toolyard.types.status import State

__all__ = ["state_rule"]

TITLE = "state"


def state_rule(server: Server, state: State) -> Rule:
    """Refuse what is disabled or closed.

    A server that failed or wants credentials keeps its tools: its calls answer with the cause, and the list
    of tools, on which prompt caches depend, does not flicker.
    """
    if server.disabled_reason is not None:
        return Always(TITLE, Outcome.REFUSE, f"server '{server.id}' is disabled: {server.disabled_reason}")
    if not server.enabled or state is State.DISABLED:
        return Always(TITLE, Outcome.REFUSE, f"server '{server.id}' is disabled")
    if state is State.CLOSED:
        return Always(TITLE, Outcome.REFUSE, f"server '{server.id}' is closed")
    return Always(TITLE, Outcome.PASS, f"server '{server.id}' is enabled, its state is {state.value}")
