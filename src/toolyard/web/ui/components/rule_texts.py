"""Texts of pages about the rules that decide on tools: a sentence for people instead of a rule's own reason.

The reasons name settings and ids, which commands and the API need. Pages show them as details only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from toolyard.policy import rules
from toolyard.types.call import Decision, DecisionStep, RuleOutcome, Verdict
from toolyard.web.ui.components.formatting import capitalize_first

__all__ = [
    "RULE_FILTERS",
    "ShownStep",
    "describe_access",
    "describe_obstacle",
    "describe_step",
    "summarize_rule",
]

_QUARANTINE_PREFIX = "in quarantine: "
_NEEDS_APPROVAL = "this tool can change data, so your approval is needed"


class _RuleTexts(NamedTuple):
    title: str
    passed: str
    obstacle: str
    summary: str
    """Two or three words, for a count of hidden tools."""


_TEXTS_BY_RULE = {
    rules.TOKEN_RULE_TITLE: _RuleTexts(
        "Token", "your token includes it", "your token does not include it", "not in your token"
    ),
    rules.STATE_RULE_TITLE: _RuleTexts(
        "Server state", "its server is enabled", "its server is disabled", "server disabled"
    ),
    rules.DEFINITION_RULE_TITLE: _RuleTexts(
        "Definition", "its definition is accepted", "its definition is blocked", "blocked until reviewed"
    ),
    rules.WRITE_RULE_TITLE: _RuleTexts(
        "Changing data",
        "it may be called without approval",
        "this tool can change data, and such tools are turned off",
        "can change data",
    ),
    rules.TRUST_RULE_TITLE: _RuleTexts(
        "Trust",
        "its server is trusted enough",
        "its server is untrusted, and an admin has not allowed this tool",
        "untrusted server",
    ),
    rules.SERVER_RULE_TITLE: _RuleTexts(
        "Server settings",
        "the settings of its server allow it",
        "it is turned off in the settings of its server",
        "turned off for the server",
    ),
    rules.BUNDLES_RULE_TITLE: _RuleTexts(
        "Bundles", "no bundle excludes it", "it is not in the selected bundles", "not in the bundles"
    ),
    rules.NATIVE_RULE_TITLE: _RuleTexts(
        "Built-in tool",
        "built-in tools are available in chats",
        "built-in tools are available in chats only",
        "in chats only",
    ),
    rules.AGENT_RULE_TITLE: _RuleTexts(
        "Agent", "no agent excludes it", "it is not among the tools of this agent", "not for this agent"
    ),
    rules.INSTANCE_RULE_TITLE: _RuleTexts(
        "Instance",
        "no instance excludes it",
        "it is turned off on its instance",
        "turned off on the instance",
    ),
    rules.CHAT_RULE_TITLE: _RuleTexts(
        "Chat", "no chat excludes it", "it is not selected in this chat", "not selected in this chat"
    ),
}


@dataclass(frozen=True, slots=True)
class ShownStep:
    """A step of a decision in words. ``detail`` is the rule's own reason, for those that decide against."""

    title: str
    text: str
    detail: str


def describe_obstacle(rule: str, reason: str) -> str:
    """Return why a tool is hidden or refused, without a capital and a full stop. Empty without a rule."""
    if rule == rules.DEFINITION_RULE_TITLE:
        return reason.removeprefix(_QUARANTINE_PREFIX)
    texts = _TEXTS_BY_RULE.get(rule)
    return reason if texts is None else texts.obstacle


def describe_step(step: DecisionStep) -> ShownStep:
    """Return a step of a decision in words."""
    texts = _TEXTS_BY_RULE.get(step.rule)
    if texts is None:
        return ShownStep(step.rule, step.reason, "")
    if step.outcome is RuleOutcome.PASS:
        return ShownStep(texts.title, texts.passed, "")
    if step.outcome is RuleOutcome.ASK:
        return ShownStep(texts.title, _NEEDS_APPROVAL, step.reason)
    return ShownStep(texts.title, describe_obstacle(step.rule, step.reason), step.reason)


def describe_access(decision: Decision) -> str:
    """Return what a person may do with a tool, and why, in one sentence."""
    decisive = decision.decisive
    if decisive is None or decision.verdict is Verdict.ALLOW:
        return "You can see and call this tool."
    text = describe_step(decisive).text
    if decision.verdict is Verdict.ASK:
        return f"{capitalize_first(text)}."
    return f"You can’t call it: {text}."


def summarize_rule(rule: str) -> str:
    """Return a rule that hides tools in a few words."""
    texts = _TEXTS_BY_RULE.get(rule)
    return rule if texts is None else texts.summary


RULE_FILTERS: Mapping[str, Callable[..., Any]] = {
    "access": describe_access,
    "obstacle": describe_obstacle,
    "step": describe_step,
}
"""The functions above as template filters."""
