"""Rule: native tools are available in chats only. Bundles do not apply, because they select servers."""

from __future__ import annotations

from toolyard.policy.rule import ConstantRule, Rule
from toolyard.types.decision import RuleOutcome

__all__ = ["native_rule"]

NATIVE_RULE_TITLE = "native"


def native_rule(in_chat: bool) -> Rule:
    """Hide the native tools from callers outside a chat."""
    if in_chat:
        return ConstantRule(
            NATIVE_RULE_TITLE,
            RuleOutcome.PASS,
            "native tools are available in chats; bundles do not apply to them",
        )
    return ConstantRule(NATIVE_RULE_TITLE, RuleOutcome.HIDE, "native tools are available in chats only")
