"""An agent's ``tools:`` list: globs on exposed names, read from left to right, the last match wins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from toolyard.policy.glob import NameMatcher, compile_globs, matches_glob, unused_globs

__all__ = [
    "ToolPatterns",
    "compile_patterns",
    "is_exact_name",
    "matches_patterns",
    "strip_deny_prefix",
    "unused_patterns",
]

DENY_PREFIX = "!"


@dataclass(frozen=True, slots=True)
class ToolPatterns:
    """A compiled list. ``texts`` is None where the list was left out, which means all tools."""

    texts: tuple[str, ...] | None
    runs: tuple[tuple[bool, NameMatcher], ...]
    """Neighbours of the same sign, the last run first: within a run the order cannot matter."""

    def allows(self, name: str) -> bool:
        """Whether the tool of this exposed name is in. No match hides."""
        if self.texts is None:
            return True
        for allow, fits_one in self.runs:
            if fits_one(name):
                return allow
        return False

    def deciding_pattern(self, name: str) -> str | None:
        """The pattern that decides: the last one that matches; None where none does."""
        matching = (
            text for text in reversed(self.texts or ()) if matches_glob(strip_deny_prefix(text), name)
        )
        return next(matching, None)


@lru_cache(maxsize=1024)
def compile_patterns(texts: tuple[str, ...] | None) -> ToolPatterns:
    """The compiled form of a ``tools:`` list; None for one that was left out."""
    runs = [
        (allow, compile_globs(tuple(strip_deny_prefix(text) for text in run)))
        for allow, run in groupby(texts or (), key=lambda text: not text.startswith(DENY_PREFIX))
    ]
    return ToolPatterns(texts, tuple(reversed(runs)))


def matches_patterns(texts: tuple[str, ...] | None, name: str) -> bool:
    """Whether a ``tools:`` list lets the tool of this exposed name in."""
    return compile_patterns(texts).allows(name)


def unused_patterns(texts: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """The patterns that match none of the exposed names, in their order."""
    given = tuple(texts)
    unused = frozenset(unused_globs((strip_deny_prefix(text) for text in given), names))
    return tuple(text for text in given if strip_deny_prefix(text) in unused)


def strip_deny_prefix(text: str) -> str:
    """A pattern without its sign."""
    return text.removeprefix(DENY_PREFIX)


def is_exact_name(text: str) -> bool:
    """Whether a pattern is one tool's name, with or without a sign."""
    return "*" not in text
