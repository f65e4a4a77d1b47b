"""Rule: allowlist and denylist in the entry of a server, which apply to every caller."""

from __future__ import annotations

from toolyard.policy.allow_deny import AllowDenyLists, build_allow_deny_rule
from toolyard.policy.rule import ConstantRule, Rule
from toolyard.types.decision import RuleOutcome
from toolyard.types.server import Server

__all__ = ["server_rule"]

SERVER_RULE_TITLE = "server"


def server_rule(server: Server) -> Rule:
    """Refuse tools that are not in allowTools or that are in denyTools of the server."""
    if server.allow_tools is None and not server.deny_tools:
        return ConstantRule(
            SERVER_RULE_TITLE, RuleOutcome.PASS, "the server has neither allowTools nor denyTools"
        )
    entry = AllowDenyLists(f"server '{server.id}'", server.allow_tools, server.deny_tools)
    return build_allow_deny_rule(SERVER_RULE_TITLE, RuleOutcome.REFUSE, [entry])
