"""Compiled policy of one server for one caller."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from toolyard.policy.rules import TOKEN_RULE_TITLE, Candidate, ConstantRule, Rule
from toolyard.types.call import Decision, DecisionStep, RuleOutcome, Verdict

__all__ = ["ServerPolicy"]

_Check: TypeAlias = tuple[Callable[[Candidate], bool], Verdict]


@dataclass(frozen=True, slots=True)
class ServerPolicy:
    """Chain of rules for the tools of one server.

    ``verdict`` is the fast path without text; ``explain`` records every step. Both have the same verdict.
    """

    rules: tuple[Rule, ...]
    blocks_all: bool
    """Whether every tool of this server is hidden or refused, so that a listing can skip the server."""
    _checks: tuple[_Check, ...] = field(repr=False, compare=False)

    @classmethod
    def from_rules(cls, rules: Iterable[Rule]) -> ServerPolicy:
        """Compile a chain of rules, in order."""
        chain = tuple(rules)
        return cls(chain, any(map(_is_always_final, chain)), tuple(_compile_checks(chain)))

    def verdict(self, tool: Candidate) -> Verdict:
        """Return the verdict about a tool."""
        # ASK is not final: a later rule may still hide or refuse the tool.
        verdict = _ALLOW
        for passes, fail_verdict in self._checks:
            if not passes(tool):
                if fail_verdict is not _ASK:
                    return fail_verdict
                verdict = fail_verdict
        return verdict

    def find_hiding_rule(self, tool: Candidate) -> Rule | None:
        """Return the first rule that hides or refuses a tool, if the caller may know that the tool exists.

        None for a visible tool, and for one outside the token's scope.
        """
        hiding = [rule for rule in self.rules if rule.fail_outcome in _FINAL and not rule.passes(tool)]
        if not hiding or any(rule.title == TOKEN_RULE_TITLE for rule in hiding):
            return None
        return hiding[0]

    def explain(self, tool: Candidate) -> Decision:
        """Return the verdict together with the outcome and reason of every rule."""
        # Every rule is evaluated, so that whoever removes one obstacle already sees the next.
        steps = (
            DecisionStep(
                rule.title, RuleOutcome.PASS if rule.passes(tool) else rule.fail_outcome, rule.reason(tool)
            )
            for rule in self.rules
        )
        return Decision.from_chain(tool.definition.id, tool.name, tuple(steps))


# Looking up a module constant is faster than an enum member, and a listing computes a verdict for every tool.
_ALLOW, _ASK = Verdict.ALLOW, Verdict.ASK
_FINAL = frozenset({RuleOutcome.HIDE, RuleOutcome.REFUSE})


def _compile_checks(chain: Iterable[Rule]) -> Iterator[_Check]:
    """Yield the checks that matter: none for rules that always pass, none after a rule that is final."""
    for rule in chain:
        if rule.fail_outcome is not RuleOutcome.PASS:
            yield rule.passes, Verdict(rule.fail_outcome.value)
        if _is_always_final(rule):
            return


def _is_always_final(rule: Rule) -> bool:
    return isinstance(rule, ConstantRule) and rule.fail_outcome in _FINAL
