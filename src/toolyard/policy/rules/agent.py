"""Rule: the ``tools:`` patterns (over exposed names) and the ``mode:`` of an agent."""

from __future__ import annotations

from dataclasses import dataclass

from toolyard.policy.agent_patterns import ToolPatterns, compile_patterns
from toolyard.policy.rule import Candidate, ConstantRule, Rule
from toolyard.types.agent import Agent
from toolyard.types.decision import RuleOutcome, Surface

__all__ = ["agent_rule"]

AGENT_RULE_TITLE = "agent"


def agent_rule(agent: Agent | None, surface: Surface) -> Rule:
    """Hide tools that the agent's patterns do not allow; in meta mode, hide all from its direct tools."""
    if agent is None:
        return ConstantRule(AGENT_RULE_TITLE, RuleOutcome.PASS, "no agent")
    if agent.mode == "meta" and surface is Surface.MODEL_DIRECT:
        return ConstantRule(
            AGENT_RULE_TITLE, RuleOutcome.HIDE, f"agent '{agent.id}' uses its tools through the meta tools"
        )
    if agent.tools is None:
        return ConstantRule(
            AGENT_RULE_TITLE, RuleOutcome.PASS, f"agent '{agent.id}' has no tools list, so it has all tools"
        )
    return _AgentPatternRule(agent.id, compile_patterns(agent.tools))


@dataclass(frozen=True, slots=True)
class _AgentPatternRule:
    agent: str
    patterns: ToolPatterns
    title: str = AGENT_RULE_TITLE
    fail_outcome: RuleOutcome = RuleOutcome.HIDE

    def passes(self, tool: Candidate) -> bool:
        return self.patterns.allows(tool.name)

    def reason(self, tool: Candidate) -> str:
        text = self.patterns.deciding_pattern(tool.name)
        if text is None:
            return f"no pattern of agent '{self.agent}' matches '{tool.name}'"
        return f"'{text}' is the last pattern of agent '{self.agent}' that matches '{tool.name}'"
