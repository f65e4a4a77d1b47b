"""The read-only guard: what is not known to be read-only needs the operator's word."""

from __future__ import annotations

from dataclasses import dataclass

from toolyard.policy.rule import Candidate, ConstantRule, Rule
from toolyard.types.decision import RuleOutcome, WriteTools
from toolyard.types.server import Server, Trust

__all__ = ["write_rule"]

WRITE_RULE_TITLE = "write tools"


def write_rule(server: Server, write_tools: WriteTools) -> Rule:
    """Reject or ask about write tools, as the setting says.

    A trusted server is believed, and one that says nothing about a tool is given the benefit of the doubt,
    because most servers say nothing. An untrusted server's words do not count, so none of its tools is known
    to be read-only.
    """
    if write_tools is WriteTools.ALLOW:
        return ConstantRule(WRITE_RULE_TITLE, RuleOutcome.PASS, "write_tools is 'allow'")
    otherwise = RuleOutcome.ASK if write_tools is WriteTools.ASK else RuleOutcome.REFUSE
    if server.trust is Trust.TRUSTED:
        return _TrustedWriteRule(otherwise, write_tools)
    return _UntrustedWriteRule(otherwise, write_tools)


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
            return "no readOnlyHint, which is accepted on a trusted server"
        if hint:
            return "readOnlyHint is true"
        return f"readOnlyHint is false, and write_tools is '{self.write_tools}'"


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
                found = "readOnlyHint: true is a claim of an untrusted server and does not count"
            case False:
                found = "readOnlyHint is false"
            case None:
                found = "no readOnlyHint, which is not accepted on an untrusted server"
        return f"{found}, and write_tools is '{self.write_tools}'"
