"""Server allow and deny: what the server's own entry lets through, for every caller."""

from __future__ import annotations

from toolyard.policy.allow_deny import Lists, allow_deny
from toolyard.policy.rule import Always, Rule
from toolyard.types.decision import Outcome
from toolyard.types.server import Server

__all__ = ["server_rule"]

TITLE = "server"


def server_rule(server: Server) -> Rule:
    """Refuse what the server's allowTools leave out or its denyTools name."""
    if server.allow_tools is None and not server.deny_tools:
        return Always(TITLE, Outcome.PASS, "the server has neither allowTools nor denyTools")
    entry = Lists(f"server '{server.id}'", server.allow_tools, server.deny_tools)
    return allow_deny(TITLE, Outcome.REFUSE, [entry])
