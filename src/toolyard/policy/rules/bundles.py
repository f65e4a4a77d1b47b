"""Rule: selected bundles restrict the caller to their servers, and each server to the bundle's tools."""

from __future__ import annotations

from toolyard.policy.allow_deny import AllowDenyLists, build_allow_deny_rule
from toolyard.policy.rule import ConstantRule, Rule
from toolyard.types.decision import RuleOutcome, Surface
from toolyard.types.server import Bundle

__all__ = ["bundles_rule"]

BUNDLES_RULE_TITLE = "bundles"


def bundles_rule(server_id: str, bundles: tuple[Bundle, ...], surface: Surface) -> Rule:
    """Hide tools that the selected bundles do not include.

    Several bundles of one server combine to the intersection of their allowlists and the union of their
    denylists. If one of them is in meta mode, models do not receive the server's tools directly, since an
    additional bundle must never widen access.
    """
    if not bundles:
        return ConstantRule(BUNDLES_RULE_TITLE, RuleOutcome.PASS, "no bundle is selected")
    own = tuple(each for each in bundles if each.server_id == server_id)
    if not own:
        return ConstantRule(
            BUNDLES_RULE_TITLE, RuleOutcome.HIDE, f"no selected bundle includes server '{server_id}'"
        )
    meta = next((each for each in own if each.mode == "meta"), None)
    if meta is not None and surface is Surface.MODEL_DIRECT:
        return ConstantRule(
            BUNDLES_RULE_TITLE, RuleOutcome.HIDE, f"bundle '{meta.id}' is available through the meta tools"
        )
    entries = [AllowDenyLists(f"bundle '{each.id}'", each.allow_tools, each.deny_tools) for each in own]
    return build_allow_deny_rule(BUNDLES_RULE_TITLE, RuleOutcome.HIDE, entries)
