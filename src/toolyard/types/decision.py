"""Policy decisions: the verdict about one tool, and the rules that led to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "Decision",
    "DecisionStep",
    "HiddenTool",
    "RuleOutcome",
    "Surface",
    "Verdict",
    "WriteTools",
    "summarize_hiding_rules",
]


class Surface(StrEnum):
    """Way in which a tool is offered to the caller."""

    MODEL_DIRECT = "model-direct"
    """A model receives the definition of the tool itself."""
    MODEL_META = "model-meta"
    """A model calls the tool through the meta tools."""
    OPERATOR = "operator"
    """A person or a program calls it: library, command line, tool console."""


class WriteTools(StrEnum):
    """Treatment of tools that are not known to be read-only."""

    REJECT = "reject"
    """No caller may use them."""
    ASK = "ask"
    """Each call needs an approval."""
    ALLOW = "allow"
    """They are treated like read-only tools."""


class Verdict(StrEnum):
    """Result of a policy decision."""

    ALLOW = "allow"
    """Visible and callable."""
    ASK = "ask"
    """Visible, and callable after an approval."""
    HIDE = "hide"
    """Outside the selection or the rights of this caller; another caller may have access."""
    REFUSE = "refuse"
    """Unavailable to every caller until the operator changes the configuration."""

    @property
    def is_visible(self) -> bool:
        """Whether the caller sees the tool."""
        return self in _VISIBLE_VERDICTS


_VISIBLE_VERDICTS = frozenset({Verdict.ALLOW, Verdict.ASK})


class RuleOutcome(StrEnum):
    """Outcome of one rule."""

    PASS = "pass"
    """No objection; the next rule decides."""
    ASK = "ask"
    """Allowed only with an approval."""
    GRANT = "grant"
    """An approval was given; it satisfies all earlier rules with the outcome ASK."""
    HIDE = "hide"
    """Final: the tool is hidden."""
    REFUSE = "refuse"
    """Final: the tool is refused."""


@dataclass(frozen=True, slots=True)
class DecisionStep:
    """Outcome of one rule, with its reason for people. Steps are in order of evaluation."""

    rule: str
    outcome: RuleOutcome
    reason: str


@dataclass(frozen=True, slots=True)
class HiddenTool:
    """A tool that a rule hides or refuses. ``name`` is its exposed name, ``id`` its canonical id."""

    name: str
    id: str
    server: str
    rule: str
    reason: str


_RULE_SUMMARIES = {
    "definition": "in quarantine",
    "trust": "untrusted server",
    "server": "not in allowTools, or in denyTools",
    "bundles": "not in the bundles",
    "agent": "not for this agent",
    "instance": "not enabled on the instance",
}


def summarize_hiding_rules(rules: Iterable[str]) -> str:
    """Return the rules that hide some tools, each with the number of its tools if there are several rules."""
    counts = Counter(_RULE_SUMMARIES.get(rule, rule) for rule in rules)
    if len(counts) <= 1:
        return "".join(counts)
    return "; ".join(f"{summary}: {number}" for summary, number in counts.most_common())


@dataclass(frozen=True, slots=True)
class Decision:
    """Verdict about one tool. ``tool`` is its canonical id, ``server/tool``; ``name`` its exposed name.

    The first step that hides or refuses decides. Later steps are evaluated too, so that an operator who
    removes one obstacle already sees the next.
    """

    tool: str
    name: str
    verdict: Verdict
    chain: tuple[DecisionStep, ...]

    @classmethod
    def from_chain(cls, tool: str, name: str, chain: tuple[DecisionStep, ...]) -> Decision:
        """Build the decision that follows from a chain of steps."""
        return cls(tool, name, _combine_outcomes(chain), chain)

    def with_step(self, step: DecisionStep) -> Decision:
        """Return the decision with one more step: an approval, a rate or a size limit applied at the call."""
        return Decision.from_chain(self.tool, self.name, (*self.chain, step))

    @property
    def decisive(self) -> DecisionStep | None:
        """The step that determined the verdict; None if the tool is allowed."""
        if self.verdict is Verdict.ALLOW:
            return None
        outcome = RuleOutcome(self.verdict.value)
        # The first HIDE or REFUSE is final. Of several ASK the last one counts: a GRANT may have satisfied
        # the earlier ones.
        chain = reversed(self.chain) if outcome is RuleOutcome.ASK else self.chain
        return next(step for step in chain if step.outcome is outcome)

    def explain(self) -> str:
        """Return the chain as text, one line per step, with an arrow at the decisive step."""
        decisive = self.decisive
        width = max((len(step.rule) for step in self.chain), default=0)
        lines = [f"{self.name} ({self.tool}): {self.verdict}"]
        for step in self.chain:
            mark = "->" if step is decisive else "  "
            lines.append(f"{mark} {step.rule:<{width}}  {step.outcome:<6}  {step.reason}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.explain()

    def as_json(self) -> dict[str, object]:
        """Return the decision as a JSON object."""
        return {
            "tool": self.tool,
            "name": self.name,
            "verdict": self.verdict.value,
            "chain": [
                {"rule": step.rule, "outcome": step.outcome.value, "reason": step.reason}
                for step in self.chain
            ],
        }


def _combine_outcomes(chain: tuple[DecisionStep, ...]) -> Verdict:
    needs_approval = False
    for step in chain:
        if step.outcome is RuleOutcome.HIDE:
            return Verdict.HIDE
        if step.outcome is RuleOutcome.REFUSE:
            return Verdict.REFUSE
        if step.outcome is RuleOutcome.ASK:
            needs_approval = True
        elif step.outcome is RuleOutcome.GRANT:
            needs_approval = False
    return Verdict.ASK if needs_approval else Verdict.ALLOW
