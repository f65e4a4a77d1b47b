"""Rule: a quarantined tool is available to no caller."""

from __future__ import annotations

from dataclasses import dataclass

from toolyard.policy.rule import Candidate
from toolyard.types.decision import RuleOutcome

__all__ = ["DefinitionRule"]


@dataclass(frozen=True, slots=True)
class DefinitionRule:
    """Refuse a tool that the catalogue or the lock has quarantined."""

    title: str = "definition"
    fail_outcome: RuleOutcome = RuleOutcome.REFUSE

    def passes(self, tool: Candidate) -> bool:
        return tool.quarantine is None

    def reason(self, tool: Candidate) -> str:
        return "not in quarantine" if tool.quarantine is None else f"in quarantine: {tool.quarantine}"
