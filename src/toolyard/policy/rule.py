"""Interface of a policy rule, and the rule whose outcome is the same for all tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from toolyard.types.call import RuleOutcome
from toolyard.types.tool import Definition

__all__ = ["Candidate", "ConstantRule", "Rule"]


class Candidate(NamedTuple):
    """A tool to decide about."""

    definition: Definition
    name: str
    """Exposed name."""
    quarantine: str | None = None
    """Reason why the tool is quarantined: invalid, or different from the locked definition.

    None: it is not.
    """


class Rule(Protocol):
    """One rule, compiled for one server and one caller. A tool passes, or the result is ``fail_outcome``.

    ``passes`` is called for every tool of a listing and builds no text; ``reason`` explains the same result.
    """

    @property
    def title(self) -> str: ...

    @property
    def fail_outcome(self) -> RuleOutcome: ...

    def passes(self, tool: Candidate) -> bool: ...

    def reason(self, tool: Candidate) -> str: ...


@dataclass(frozen=True, slots=True)
class ConstantRule:
    """Rule with the same outcome for every tool of the server: ``fail_outcome``, which may be PASS."""

    title: str
    fail_outcome: RuleOutcome
    explanation: str

    def passes(self, tool: Candidate) -> bool:
        return self.fail_outcome is RuleOutcome.PASS

    def reason(self, tool: Candidate) -> str:
        return self.explanation
