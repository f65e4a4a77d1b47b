"""The API token that a call came with: what it is limited to, whatever its owner may use."""

from __future__ import annotations

from dataclasses import dataclass

from toolyard.policy.agent_patterns import Patterns, patterns
from toolyard.policy.glob import any_of
from toolyard.policy.rule import Always, Candidate, Rule
from toolyard.types.account import TokenScope
from toolyard.types.agent import Agent
from toolyard.types.decision import Outcome
from toolyard.types.server import Server

__all__ = ["covers", "covers_slug", "token_rule"]

TITLE = "token"


def token_rule(scope: TokenScope, server: Server, agent: Agent | None) -> Rule:
    """Hide what the token leaves out: other servers, other tools, and everything but its agents."""
    if scope.agents is not None and (agent is None or not any_of(scope.agents)(agent.id)):
        wanted = ", ".join(scope.agents) or "none"
        return Always(TITLE, Outcome.HIDE, f"the token is for these agents only: {wanted}")
    if not covers(scope, server):
        return Always(TITLE, Outcome.HIDE, f"the token is not for server '{server.id}'")
    if scope.tools is None:
        return Always(TITLE, Outcome.PASS, "the token leaves out no tool of this server")
    return _Tools(patterns(scope.tools))


def covers(scope: TokenScope | None, server: Server) -> bool:
    """Whether a token is for this server: a glob names the id of one of the configuration, or the slug of an
    instance."""
    return covers_slug(scope, server.id if server.instance is None else server.instance.slug)


def covers_slug(scope: TokenScope | None, slug: str) -> bool:
    """Whether a token is for an instance with this slug."""
    return scope is None or scope.servers is None or bool(any_of(scope.servers)(slug))


@dataclass(frozen=True, slots=True)
class _Tools:
    patterns: Patterns
    title: str = TITLE
    otherwise: Outcome = Outcome.HIDE

    def passes(self, tool: Candidate) -> bool:
        return self.patterns.allows(tool.name)

    def reason(self, tool: Candidate) -> str:
        text = self.patterns.deciding(tool.name)
        if text is None:
            return f"no pattern of the token matches '{tool.name}'"
        return f"'{text}' is the last pattern of the token that matches '{tool.name}'"
