"""Server allow and deny: what the server's own entry lets through, for every caller."""

from __future__ import annotations

from toolyard.policy.allow_deny import AllowDenyLists, build_allow_deny_rule
from toolyard.policy.rule import ConstantRule, Rule
from toolyard.types.decision import RuleOutcome
from toolyard.types.server import Server

__all__ = ["server_rule"]

SERVER_RULE_TITLE = "server"


def server_rule(server: Server) -> Rule:
    """Refuse what the server's allowTools leave out or its denyTools name."""
    if server.allow_tools is None and not server.deny_tools:
        return ConstantRule(
            SERVER_RULE_TITLE, RuleOutcome.PASS, "the server has neither allowTools nor denyTools"
        )
    entry = AllowDenyLists(f"server '{server.id}'", server.allow_tools, server.deny_tools)
    return build_allow_deny_rule(SERVER_RULE_TITLE, RuleOutcome.REFUSE, [entry])
