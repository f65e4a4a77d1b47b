"""May this tool be seen or called? The answer, and the chain of rules that led to it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Decision", "DecisionStep", "RuleOutcome", "Surface", "Verdict", "WriteTools"]


class Surface(StrEnum):
    """Who would see or call the tool, and by which way."""

    MODEL_DIRECT = "model-direct"
    """A model that is given the tool's own definition."""
    MODEL_META = "model-meta"
    """A model that reaches the tool through the meta tools."""
    OPERATOR = "operator"
    """A person or a program: the library, the command line, the tool console."""


class WriteTools(StrEnum):
    """What happens with a tool that is not known to be read-only."""

    REJECT = "reject"
    """Nobody may call it."""
    ASK = "ask"
    """Each call needs an approval."""
    ALLOW = "allow"
    """It is a tool like any other."""


class Verdict(StrEnum):
    """What becomes of the tool."""

    ALLOW = "allow"
    """Shown, and callable."""
    ASK = "ask"
    """Shown, and callable once somebody has approved."""
    HIDE = "hide"
    """Outside what this caller selected or may see; another caller may have it."""
    REFUSE = "refuse"
    """Kept from every caller until the operator changes something."""

    @property
    def shown(self) -> bool:
        """Whether the caller gets to see the tool."""
        return self in _VISIBLE_VERDICTS


_VISIBLE_VERDICTS = frozenset({Verdict.ALLOW, Verdict.ASK})


class RuleOutcome(StrEnum):
    """What one rule says."""

    PASS = "pass"
    """Nothing against it; the next rule decides."""
    ASK = "ask"
    """Only with an approval."""
    GRANT = "grant"
    """An approval is there: the rules that asked are answered."""
    HIDE = "hide"
    """Ends the matter: hidden."""
    REFUSE = "refuse"
    """Ends the matter: refused."""


@dataclass(frozen=True, slots=True)
class DecisionStep:
    """One rule's word, in the order in which the rules are asked."""

    rule: str
    outcome: RuleOutcome
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict about one tool. ``tool`` is its canonical id, so an MCP tool wears its server's id.

    The first link that hides or refuses decides. The links after it are kept, so that whoever removes one
    obstacle sees the next.
    """

    tool: str
    name: str
    verdict: Verdict
    chain: tuple[DecisionStep, ...]

    @classmethod
    def from_chain(cls, tool: str, name: str, chain: tuple[DecisionStep, ...]) -> Decision:
        """The decision that follows from a chain."""
        return cls(tool, name, _combine_outcomes(chain), chain)

    def with_step(self, step: DecisionStep) -> Decision:
        """The decision with one more link: an approval, a rate or a size limit met at the call."""
        return Decision.from_chain(self.tool, self.name, (*self.chain, step))

    @property
    def decisive(self) -> DecisionStep | None:
        """The link that made the verdict; None where nothing stood in the way."""
        if self.verdict is Verdict.ALLOW:
            return None
        wanted = RuleOutcome(self.verdict.value)
        # What ends the matter does so at once; what still asks is the last that did.
        chain = reversed(self.chain) if wanted is RuleOutcome.ASK else self.chain
        return next(link for link in chain if link.outcome is wanted)

    def explain(self) -> str:
        """The chain in lines for people, with an arrow at the link that decides."""
        decisive = self.decisive
        width = max((len(link.rule) for link in self.chain), default=0)
        lines = [f"{self.name} ({self.tool}): {self.verdict}"]
        for link in self.chain:
            mark = "->" if link is decisive else "  "
            lines.append(f"{mark} {link.rule:<{width}}  {link.outcome:<6}  {link.reason}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.explain()

    def as_json(self) -> dict[str, object]:
        """The decision as a JSON object."""
        return {
            "tool": self.tool,
            "name": self.name,
            "verdict": self.verdict.value,
            "chain": [
                {"rule": link.rule, "outcome": link.outcome.value, "reason": link.reason}
                for link in self.chain
            ],
        }


def _combine_outcomes(chain: tuple[DecisionStep, ...]) -> Verdict:
    asked = False
    for link in chain:
        if link.outcome is RuleOutcome.HIDE:
            return Verdict.HIDE
        if link.outcome is RuleOutcome.REFUSE:
            return Verdict.REFUSE
        if link.outcome is RuleOutcome.ASK:
            asked = True
        elif link.outcome is RuleOutcome.GRANT:
            asked = False
    return Verdict.ASK if asked else Verdict.ALLOW
