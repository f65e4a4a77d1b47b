"""Rule: tools not known to be read-only are refused or need approval, as the setting write_tools says."""

from __future__ import annotations

from dataclasses import dataclass

from toolyard.policy.rule import Candidate, ConstantRule, Rule
from toolyard.types.decision import RuleOutcome, WriteTools
from toolyard.types.server import Server, Trust

__all__ = ["write_rule"]

WRITE_RULE_TITLE = "write tools"


def write_rule(server: Server, write_tools: WriteTools) -> Rule:
    """Refuse write tools, or require an approval for each call, depending on ``write_tools``.

    The readOnlyHint of a trusted server is believed. A missing hint is accepted there, because most servers
    send none. The hints of an untrusted server are ignored, so none of its tools is known to be read-only.
    """
    if write_tools is WriteTools.ALLOW:
        return ConstantRule(WRITE_RULE_TITLE, RuleOutcome.PASS, "write_tools is 'allow'")
    fail_outcome = RuleOutcome.ASK if write_tools is WriteTools.ASK else RuleOutcome.REFUSE
    if server.trust is Trust.TRUSTED:
        return _TrustedWriteRule(fail_outcome, write_tools)
    return _UntrustedWriteRule(fail_outcome, write_tools)


@dataclass(frozen=True, slots=True)
class _TrustedWriteRule:
    fail_outcome: RuleOutcome
    write_tools: WriteTools
    title: str = WRITE_RULE_TITLE

    def passes(self, tool: Candidate) -> bool:
        return tool.definition.read_only_hint is not False

    def reason(self, tool: Candidate) -> str:
        hint = tool.definition.read_only_hint
        if hint is None:
            return "no readOnlyHint, which is accepted from a trusted server"
        if hint:
            return "readOnlyHint is true"
        return f"this tool can change data (readOnlyHint is false), {_consequence(self.write_tools)}"


@dataclass(frozen=True, slots=True)
class _UntrustedWriteRule:
    fail_outcome: RuleOutcome
    write_tools: WriteTools
    title: str = WRITE_RULE_TITLE

    def passes(self, tool: Candidate) -> bool:
        return False

    def reason(self, tool: Candidate) -> str:
        match tool.definition.read_only_hint:
            case True:
                cause = "readOnlyHint is true, which is not accepted from an untrusted server"
            case False:
                cause = "this tool can change data (readOnlyHint is false)"
            case None:
                cause = "no readOnlyHint, which is not accepted from an untrusted server"
        return f"{cause}, {_consequence(self.write_tools)}"


def _consequence(write_tools: WriteTools) -> str:
    if write_tools is WriteTools.ASK:
        return "so your approval is needed"
    return f"and write_tools is '{write_tools}'"
