"""Rule: limits of the API token that authenticated a call, in addition to the rights of its owner."""

from __future__ import annotations

from dataclasses import dataclass

from toolyard.policy.agent_patterns import ToolPatterns, compile_patterns
from toolyard.policy.glob import compile_globs
from toolyard.policy.rule import Candidate, ConstantRule, Rule
from toolyard.types.account import TokenScope
from toolyard.types.agent import Agent
from toolyard.types.decision import RuleOutcome
from toolyard.types.server import Server

__all__ = ["scope_covers_server", "scope_covers_slug", "token_rule"]

TOKEN_RULE_TITLE = "token"


def token_rule(scope: TokenScope, server: Server, agent: Agent | None) -> Rule:
    """Hide servers, tools and agents outside the scope of the token."""
    if scope.agents is not None and (agent is None or not compile_globs(scope.agents)(agent.id)):
        agents = ", ".join(scope.agents) or "none"
        return ConstantRule(
            TOKEN_RULE_TITLE, RuleOutcome.HIDE, f"the token is limited to these agents: {agents}"
        )
    if not scope_covers_server(scope, server):
        return ConstantRule(
            TOKEN_RULE_TITLE, RuleOutcome.HIDE, f"the token does not include server '{server.id}'"
        )
    if scope.tools is None:
        return ConstantRule(TOKEN_RULE_TITLE, RuleOutcome.PASS, "the token includes all tools of this server")
    return _TokenPatternRule(compile_patterns(scope.tools))


def scope_covers_server(scope: TokenScope | None, server: Server) -> bool:
    """Return whether a token includes a server, by the id of a configured one or the slug of an instance."""
    return scope_covers_slug(scope, server.id if server.instance is None else server.instance.slug)


def scope_covers_slug(scope: TokenScope | None, slug: str) -> bool:
    """Return whether a token includes an instance with this slug."""
    return scope is None or scope.servers is None or bool(compile_globs(scope.servers)(slug))


@dataclass(frozen=True, slots=True)
class _TokenPatternRule:
    patterns: ToolPatterns
    title: str = TOKEN_RULE_TITLE
    fail_outcome: RuleOutcome = RuleOutcome.HIDE

    def passes(self, tool: Candidate) -> bool:
        return self.patterns.allows(tool.name)

    def reason(self, tool: Candidate) -> str:
        text = self.patterns.deciding_pattern(tool.name)
        if text is None:
            return f"no pattern of the token matches '{tool.name}'"
        return f"'{text}' is the last pattern of the token that matches '{tool.name}'"
