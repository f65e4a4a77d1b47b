"""What a link of the chain is before it is asked about a tool: a rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from toolyard.types.decision import RuleOutcome
from toolyard.types.tool import Definition

__all__ = ["Candidate", "ConstantRule", "Rule"]


class Candidate(NamedTuple):
    """The tool in question."""

    definition: Definition
    name: str
    """Its exposed name."""
    quarantine: str | None = None
    """Why its definition is set aside: broken, or not as locked. None: it is in order."""


class Rule(Protocol):
    """One rule of one server's chain, prepared for one caller: it lets a tool pass, or says ``otherwise``.

    ``passes`` is the fast path and builds no words; ``reason`` puts the same answer into words.
    """

    @property
    def title(self) -> str: ...

    @property
    def fail_outcome(self) -> RuleOutcome: ...

    def passes(self, tool: Candidate) -> bool: ...

    def reason(self, tool: Candidate) -> str: ...


@dataclass(frozen=True, slots=True)
class ConstantRule:
    """A rule that says the same about every tool of the server: ``otherwise``, which may be a pass."""

    title: str
    fail_outcome: RuleOutcome
    because: str

    def passes(self, tool: Candidate) -> bool:
        return self.fail_outcome is RuleOutcome.PASS

    def reason(self, tool: Candidate) -> str:
        return self.because
