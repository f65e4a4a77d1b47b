"""Agent patterns: what an agent's ``tools:`` and ``mode:`` leave, by exposed name."""

from __future__ import annotations

from dataclasses import dataclass

from toolyard.policy.agent_patterns import Patterns, patterns
from toolyard.policy.rule import Always, Candidate, Rule
from toolyard.types.agent import Agent
from toolyard.types.decision import Outcome, Surface

__all__ = ["agent_rule"]

TITLE = "agent"


def agent_rule(agent: Agent | None, surface: Surface) -> Rule:
    """Hide what the agent's patterns leave out; in meta mode, everything from its direct tools."""
    if agent is None:
        return Always(TITLE, Outcome.PASS, "no agent")
    if agent.mode == "meta" and surface is Surface.MODEL_DIRECT:
        return Always(TITLE, Outcome.HIDE, f"agent '{agent.id}' reaches its tools through the meta tools")
    if agent.tools is None:
        return Always(TITLE, Outcome.PASS, f"agent '{agent.id}' has no tools list, which means all")
    return _PatternRule(agent.id, patterns(agent.tools))


@dataclass(frozen=True, slots=True)
class _PatternRule:
    agent: str
    patterns: Patterns
    title: str = TITLE
    otherwise: Outcome = Outcome.HIDE

    def passes(self, tool: Candidate) -> bool:
        return self.patterns.allows(tool.name)

    def reason(self, tool: Candidate) -> str:
        text = self.patterns.deciding(tool.name)
        if text is None:
            return f"no pattern of agent '{self.agent}' matches '{tool.name}'"
        return f"'{text}' is the last pattern of agent '{self.agent}' that matches '{tool.name}'"
