"""Rule: an untrusted server needs an allowlist, and models use it through the meta tools only."""

from __future__ import annotations

from collections.abc import Sequence

from toolyard.policy.rule import ConstantRule, Rule
from toolyard.types.decision import RuleOutcome, Surface
from toolyard.types.server import Bundle, Server, Trust

__all__ = ["trust_rule"]

TRUST_RULE_TITLE = "trust"


def trust_rule(server: Server, surface: Surface, selected: Sequence[Bundle]) -> Rule:
    """Keep the definitions of an untrusted server out of a model's prompt.

    ``selected`` are the selected bundles of this server. The configuration requires an allowlist on the
    server or on each of its bundles; if only the bundles have one and none is selected, no tool is allowed.
    """
    if server.trust is Trust.TRUSTED:
        return ConstantRule(TRUST_RULE_TITLE, RuleOutcome.PASS, "the server is trusted")
    has_allowlist = server.allow_tools is not None or any(each.allow_tools is not None for each in selected)
    if not has_allowlist:
        return ConstantRule(
            TRUST_RULE_TITLE, RuleOutcome.REFUSE, "the server is untrusted and no allowTools applies"
        )
    if surface is Surface.MODEL_DIRECT:
        return ConstantRule(
            TRUST_RULE_TITLE,
            RuleOutcome.HIDE,
            "the server is untrusted, so models use it through the meta tools only",
        )
    return ConstantRule(
        TRUST_RULE_TITLE, RuleOutcome.PASS, f"the server is untrusted, which is allowed for '{surface}'"
    )
