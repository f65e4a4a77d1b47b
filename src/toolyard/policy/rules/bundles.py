"""Selected bundles: they select servers, and each of them narrows its server's tools."""

from __future__ import annotations

from toolyard.policy.allow_deny import AllowDenyLists, build_allow_deny_rule
from toolyard.policy.rule import ConstantRule, Rule
from toolyard.types.decision import RuleOutcome, Surface
from toolyard.types.server import Bundle

__all__ = ["bundles_rule"]

BUNDLES_RULE_TITLE = "bundles"


def bundles_rule(server_id: str, bundles: tuple[Bundle, ...], surface: Surface) -> Rule:
    """Hide what the selected bundles leave out.

    Several bundles of one server: allow is the intersection, deny the union. One of them in meta mode keeps
    the server out of a model's direct tools, since a further bundle never widens what another left.
    """
    if not bundles:
        return ConstantRule(BUNDLES_RULE_TITLE, RuleOutcome.PASS, "no bundle is selected")
    own = tuple(each for each in bundles if each.server_id == server_id)
    if not own:
        return ConstantRule(
            BUNDLES_RULE_TITLE, RuleOutcome.HIDE, f"no selected bundle is of server '{server_id}'"
        )
    meta = next((each for each in own if each.mode == "meta"), None)
    if meta is not None and surface is Surface.MODEL_DIRECT:
        return ConstantRule(
            BUNDLES_RULE_TITLE, RuleOutcome.HIDE, f"bundle '{meta.id}' is reached through the meta tools"
        )
    entries = [AllowDenyLists(f"bundle '{each.id}'", each.allow_tools, each.deny_tools) for each in own]
    return build_allow_deny_rule(BUNDLES_RULE_TITLE, RuleOutcome.HIDE, entries)
