"""One server's chain, prepared for one caller: ask it about a tool."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from toolyard.policy.rule import Candidate, ConstantRule, Rule
from toolyard.types.decision import Decision, DecisionStep, RuleOutcome, Verdict

__all__ = ["ServerPolicy"]

_Check: TypeAlias = tuple[Callable[[Candidate], bool], Verdict]


@dataclass(frozen=True, slots=True)
class ServerPolicy:
    """``verdict`` is quick and builds no words; ``explain`` records every link. They never differ."""

    rules: tuple[Rule, ...]
    blocks_all: bool
    """Whether no tool of this server can pass, so that a listing may skip them all."""
    _checks: tuple[_Check, ...] = field(repr=False, compare=False)

    @classmethod
    def from_rules(cls, rules: Iterable[Rule]) -> ServerPolicy:
        """Make the gate of a chain, in its order."""
        chain = tuple(rules)
        return cls(chain, any(map(_is_always_final, chain)), tuple(_compile_checks(chain)))

    def verdict(self, tool: Candidate) -> Verdict:
        """What becomes of the tool."""
        verdict = _ALLOW
        for passes, otherwise in self._checks:
            if not passes(tool):
                if otherwise is not _ASK:
                    return otherwise
                verdict = otherwise
        return verdict

    def explain(self, tool: Candidate) -> Decision:
        """The same verdict, with the whole chain that led to it."""
        return Decision.from_chain(
            tool.definition.id, tool.name, tuple(_evaluate_rule(rule, tool) for rule in self.rules)
        )


# Members of an enum cost more to look up than names of a module, and a listing asks for every tool.
_ALLOW, _ASK = Verdict.ALLOW, Verdict.ASK


def _compile_checks(chain: Iterable[Rule]) -> Iterator[_Check]:
    """Leave out the rules that always pass, and all that stand behind one that always ends the matter."""
    for rule in chain:
        if rule.fail_outcome is not RuleOutcome.PASS:
            yield rule.passes, Verdict(rule.fail_outcome.value)
        if _is_always_final(rule):
            return


def _is_always_final(rule: Rule) -> bool:
    return isinstance(rule, ConstantRule) and rule.fail_outcome in (RuleOutcome.HIDE, RuleOutcome.REFUSE)


def _evaluate_rule(rule: Rule, tool: Candidate) -> DecisionStep:
    return DecisionStep(
        rule.title, RuleOutcome.PASS if rule.passes(tool) else rule.fail_outcome, rule.reason(tool)
    )
