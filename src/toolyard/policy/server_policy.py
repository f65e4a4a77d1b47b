"""One server's chain, prepared for one caller: ask it about a tool."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from toolyard.policy.rule import Always, Candidate, Rule
from toolyard.types.decision import Decision, Link, Outcome, Verdict

__all__ = ["Gate"]

_Step: TypeAlias = tuple[Callable[[Candidate], bool], Verdict]


@dataclass(frozen=True, slots=True)
class Gate:
    """``verdict`` is quick and builds no words; ``explain`` records every link. They never differ."""

    rules: tuple[Rule, ...]
    shut: bool
    """Whether no tool of this server can pass, so that a listing may skip them all."""
    _steps: tuple[_Step, ...] = field(repr=False, compare=False)

    @classmethod
    def of(cls, rules: Iterable[Rule]) -> Gate:
        """Make the gate of a chain, in its order."""
        chain = tuple(rules)
        return cls(chain, any(map(_ends_the_matter, chain)), tuple(_steps(chain)))

    def verdict(self, tool: Candidate) -> Verdict:
        """What becomes of the tool."""
        verdict = _ALLOW
        for passes, otherwise in self._steps:
            if not passes(tool):
                if otherwise is not _ASK:
                    return otherwise
                verdict = otherwise
        return verdict

    def explain(self, tool: Candidate) -> Decision:
        """The same verdict, with the whole chain that led to it."""
        return Decision.of(tool.definition.id, tool.name, tuple(_link(rule, tool) for rule in self.rules))


# Members of an enum cost more to look up than names of a module, and a listing asks for every tool.
_ALLOW, _ASK = Verdict.ALLOW, Verdict.ASK


def _steps(chain: Iterable[Rule]) -> Iterator[_Step]:
    """Leave out the rules that always pass, and all that stand behind one that always ends the matter."""
    for rule in chain:
        if rule.otherwise is not Outcome.PASS:
            yield rule.passes, Verdict(rule.otherwise.value)
        if _ends_the_matter(rule):
            return


def _ends_the_matter(rule: Rule) -> bool:
    return isinstance(rule, Always) and rule.otherwise in (Outcome.HIDE, Outcome.REFUSE)


def _link(rule: Rule, tool: Candidate) -> Link:
    return Link(rule.title, Outcome.PASS if rule.passes(tool) else rule.otherwise, rule.reason(tool))
