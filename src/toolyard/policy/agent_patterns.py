"""Lists of allow and deny patterns over exposed names, as in an agent's ``tools:``. The last match wins."""

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
    """A compiled list. ``texts`` is None if the list was omitted, which means all tools."""

    texts: tuple[str, ...] | None
    runs: tuple[tuple[bool, NameMatcher], ...]
    """Consecutive patterns of the same sign as (allows, matcher), the last group first.

    Within a group the order does not matter, so each group is one matcher."""

    def allows(self, name: str) -> bool:
        """Return whether the list allows the tool with this exposed name.

        A tool without a match is hidden.
        """
        if self.texts is None:
            return True
        for allow, matches in self.runs:
            if matches(name):
                return allow
        return False

    def deciding_pattern(self, name: str) -> str | None:
        """Return the last pattern that matches, which decides; None if no pattern matches."""
        matching = (
            text for text in reversed(self.texts or ()) if matches_glob(strip_deny_prefix(text), name)
        )
        return next(matching, None)


# Cached because the same few lists, of agents and tokens, are compiled for every caller and server.
@lru_cache(maxsize=1024)
def compile_patterns(texts: tuple[str, ...] | None) -> ToolPatterns:
    """Compile a ``tools:`` list; None stands for an omitted list."""
    runs = [
        (allow, compile_globs(tuple(strip_deny_prefix(text) for text in run)))
        for allow, run in groupby(texts or (), key=lambda text: not text.startswith(DENY_PREFIX))
    ]
    return ToolPatterns(texts, tuple(reversed(runs)))


def matches_patterns(texts: tuple[str, ...] | None, name: str) -> bool:
    """Return whether a ``tools:`` list allows the tool with this exposed name."""
    return compile_patterns(texts).allows(name)


def unused_patterns(texts: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns that match none of the exposed names, in order."""
    patterns = tuple(texts)
    unused = frozenset(unused_globs((strip_deny_prefix(text) for text in patterns), names))
    return tuple(text for text in patterns if strip_deny_prefix(text) in unused)


def strip_deny_prefix(text: str) -> str:
    """Return a pattern without its leading ``!``."""
    return text.removeprefix(DENY_PREFIX)


def is_exact_name(text: str) -> bool:
    """Return whether a pattern, apart from its sign, is the name of a single tool."""
    return "*" not in text
