"""Native tools: they are for chats. No bundle selects them, since bundles are selections of servers."""

from __future__ import annotations

from toolyard.policy.rule import ConstantRule, Rule
from toolyard.types.decision import RuleOutcome

__all__ = ["native_rule"]

NATIVE_RULE_TITLE = "native"


def native_rule(in_chat: bool) -> Rule:
    """Hide Toolyard's own tools from everyone but chats."""
    if in_chat:
        return ConstantRule(
            NATIVE_RULE_TITLE,
            RuleOutcome.PASS,
            "a native tool, and this is a chat; bundles do not concern it",
        )
    return ConstantRule(NATIVE_RULE_TITLE, RuleOutcome.HIDE, "a native tool, which only chats have")
