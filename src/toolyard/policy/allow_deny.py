"""Allowlists and denylists over the server's own tool names. Deny takes precedence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from toolyard.policy.glob import NameMatcher, compile_globs, matches_glob
from toolyard.policy.rule import Candidate
from toolyard.types.decision import RuleOutcome

__all__ = ["AllowDenyLists", "AllowDenyRule", "build_allow_deny_rule"]


@dataclass(frozen=True, slots=True)
class AllowDenyLists:
    """Both lists of one entry. ``place`` names the entry in messages, e.g. ``server 'repo'``."""

    place: str
    allow: tuple[str, ...] | None
    deny: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AllowDenyRule:
    """Pass a tool that every allowlist and no denylist matches."""

    title: str
    fail_outcome: RuleOutcome
    entries: tuple[AllowDenyLists, ...]
    allow: tuple[NameMatcher, ...]
    deny: NameMatcher

    def passes(self, tool: Candidate) -> bool:
        name = tool.definition.name
        for matches in self.allow:
            if not matches(name):
                return False
        return not self.deny(name)

    def reason(self, tool: Candidate) -> str:
        name = tool.definition.name
        allowed = [
            (each.place, _first_match(each.allow, name)) for each in self.entries if each.allow is not None
        ]
        for place, glob in allowed:
            if glob is None:
                return f"allowTools of {place} does not include '{name}'"
        for each in self.entries:
            glob = _first_match(each.deny, name)
            if glob is not None:
                return f"denyTools of {each.place} includes '{glob}'"
        return (
            "; ".join(f"allowTools of {place} includes '{glob}'" for place, glob in allowed)
            or "no denyTools matches"
        )


def build_allow_deny_rule(
    title: str, fail_outcome: RuleOutcome, entries: Iterable[AllowDenyLists]
) -> AllowDenyRule:
    """Build the rule for several entries that all apply."""
    all_entries = tuple(entries)
    return AllowDenyRule(
        title,
        fail_outcome,
        all_entries,
        allow=tuple(compile_globs(each.allow) for each in all_entries if each.allow is not None),
        deny=compile_globs(tuple(glob for each in all_entries for glob in each.deny)),
    )


def _first_match(globs: Iterable[str], name: str) -> str | None:
    return next((glob for glob in globs if matches_glob(glob, name)), None)
