"""Native tools: they are for chats. No bundle selects them, since bundles are selections of servers."""

from __future__ import annotations

from toolyard.policy.rule import Always, Rule
from toolyard.types.decision import Outcome

__all__ = ["native_rule"]

TITLE = "native"


def native_rule(chat: bool) -> Rule:
    """Hide Toolyard's own tools from everyone but chats."""
    if chat:
        return Always(TITLE, Outcome.PASS, "a native tool, and this is a chat; bundles do not concern it")
    return Always(TITLE, Outcome.HIDE, "a native tool, which only chats have")
