"""Rules: tools enabled on an instance, and tools selected in a chat, by the server's own names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from toolyard.policy.rule import Candidate, ConstantRule, Rule
from toolyard.types.decision import RuleOutcome

__all__ = ["choice_rule", "instance_rule"]

INSTANCE_RULE_TITLE = "instance"
CHAT_RULE_TITLE = "chat"


def instance_rule(names: Iterable[str] | None) -> Rule:
    """Hide tools that are not enabled on the instance. None: no filter, all tools; empty: none."""
    if names is None:
        return ConstantRule(INSTANCE_RULE_TITLE, RuleOutcome.PASS, "no instance filter applies")
    return _SelectedToolsRule(INSTANCE_RULE_TITLE, "enabled on the instance", frozenset(names))


def choice_rule(server_id: str, ids: Iterable[str] | None) -> Rule:
    """Hide tools that are not selected in the chat. ``ids`` are canonical; None: no selection, all tools."""
    if ids is None:
        return ConstantRule(CHAT_RULE_TITLE, RuleOutcome.PASS, "the chat has no selection of tools")
    prefix = f"{server_id}/"
    names = frozenset(each.removeprefix(prefix) for each in ids if each.startswith(prefix))
    return _SelectedToolsRule(CHAT_RULE_TITLE, "selected in the chat", names)


@dataclass(frozen=True, slots=True)
class _SelectedToolsRule:
    title: str
    criterion: str
    names: frozenset[str]
    fail_outcome: RuleOutcome = RuleOutcome.HIDE

    def passes(self, tool: Candidate) -> bool:
        return tool.definition.name in self.names

    def reason(self, tool: Candidate) -> str:
        verb = "is" if self.passes(tool) else "is not"
        return f"'{tool.definition.name}' {verb} {self.criterion}"
