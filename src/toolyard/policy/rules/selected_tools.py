"""Instance filter and chat choice: tools that a person ticked, by the server's own names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from toolyard.policy.rule import Candidate, ConstantRule, Rule
from toolyard.types.decision import RuleOutcome

__all__ = ["choice_rule", "instance_rule"]

INSTANCE_RULE_TITLE = "instance"
CHAT_RULE_TITLE = "chat"


def instance_rule(names: Iterable[str] | None) -> Rule:
    """Hide what an instance's filter leaves out. None: no filter, all; empty: none."""
    if names is None:
        return ConstantRule(INSTANCE_RULE_TITLE, RuleOutcome.PASS, "no instance filter")
    return _SelectedToolsRule(INSTANCE_RULE_TITLE, "the instance's filter", frozenset(names))


def choice_rule(server_id: str, ids: Iterable[str] | None) -> Rule:
    """Hide what was not chosen for the chat. ``ids`` are canonical; None: nothing was chosen, all stay."""
    if ids is None:
        return ConstantRule(CHAT_RULE_TITLE, RuleOutcome.PASS, "no choice was made in the chat")
    own = f"{server_id}/"
    names = frozenset(each.removeprefix(own) for each in ids if each.startswith(own))
    return _SelectedToolsRule(CHAT_RULE_TITLE, "the chat's choice", names)


@dataclass(frozen=True, slots=True)
class _SelectedToolsRule:
    title: str
    source: str
    names: frozenset[str]
    fail_outcome: RuleOutcome = RuleOutcome.HIDE

    def passes(self, tool: Candidate) -> bool:
        return tool.definition.name in self.names

    def reason(self, tool: Candidate) -> str:
        verb = "has" if self.passes(tool) else "does not have"
        return f"{self.source} {verb} '{tool.definition.name}'"
