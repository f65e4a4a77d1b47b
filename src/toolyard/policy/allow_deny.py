"""Allow, then deny, on the server's own tool names. Deny wins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from toolyard.policy.glob import NameMatcher, compile_globs, matches_glob
from toolyard.policy.rule import Candidate
from toolyard.types.decision import RuleOutcome

__all__ = ["AllowDenyLists", "AllowDenyRule", "build_allow_deny_rule"]


@dataclass(frozen=True, slots=True)
class AllowDenyLists:
    """The two lists of one entry, and the words for where it stands."""

    place: str
    allow: tuple[str, ...] | None
    deny: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AllowDenyRule:
    """Every allowlist must fit and no denylist may: the intersection of one, the union of the other."""

    title: str
    fail_outcome: RuleOutcome
    entries: tuple[AllowDenyLists, ...]
    allow: tuple[NameMatcher, ...]
    deny: NameMatcher

    def passes(self, tool: Candidate) -> bool:
        name = tool.definition.name
        for fits_one in self.allow:
            if not fits_one(name):
                return False
        return not self.deny(name)

    def reason(self, tool: Candidate) -> str:
        name = tool.definition.name
        allowed = [
            (each.place, _first_match(each.allow, name)) for each in self.entries if each.allow is not None
        ]
        for place, glob in allowed:
            if glob is None:
                return f"allowTools of {place} does not name '{name}'"
        for each in self.entries:
            glob = _first_match(each.deny, name)
            if glob is not None:
                return f"denyTools of {each.place} has '{glob}'"
        return (
            "; ".join(f"allowTools of {place} has '{glob}'" for place, glob in allowed) or "nothing denies it"
        )


def build_allow_deny_rule(
    title: str, fail_outcome: RuleOutcome, entries: Iterable[AllowDenyLists]
) -> AllowDenyRule:
    """The rule of several entries that all apply."""
    given = tuple(entries)
    return AllowDenyRule(
        title,
        fail_outcome,
        given,
        allow=tuple(compile_globs(each.allow) for each in given if each.allow is not None),
        deny=compile_globs(tuple(glob for each in given for glob in each.deny)),
    )


def _first_match(globs: Iterable[str], name: str) -> str | None:
    return next((glob for glob in globs if matches_glob(glob, name)), None)
