"""Globs over tool names: ``*`` matches any number of characters; nothing else is special. Case-sensitive.

Names come from servers, so matching must be fast for hostile ones, too. Each literal between two stars is
searched once, from the left, in an atomic group without backtracking. That is correct because the leftmost
match leaves the most text for the rest of the glob.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeAlias

__all__ = ["MAX_STARS", "NameMatcher", "compile_globs", "matches_glob", "unused_globs"]

MAX_STARS = 8
"""Maximum number of stars in a glob that users enter: each one takes time to compile."""

NameMatcher: TypeAlias = Callable[[str], object]
"""Function that returns a true value for a matching name."""


@lru_cache(maxsize=4096)
def compile_globs(globs: tuple[str, ...]) -> NameMatcher:
    """Return a function that tells whether at least one glob matches a whole name.

    Every string is a valid glob; an empty list matches nothing.
    """
    # Names without a star are looked up in a set; all others form one regular expression.
    plain = frozenset(glob for glob in globs if "*" not in glob)
    starred = [_glob_to_regex(glob) for glob in globs if "*" in glob]
    if not starred:
        return plain.__contains__
    fullmatch = re.compile("|".join(starred), re.DOTALL).fullmatch
    return (lambda name: name in plain or fullmatch(name)) if plain else fullmatch


def matches_glob(glob: str, name: str) -> bool:
    """Return whether a glob matches the whole name."""
    return bool(compile_globs((glob,))(name))


def unused_globs(globs: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """Return the globs that match none of the names, in order."""
    all_names = tuple(names)
    return tuple(glob for glob in globs if not any(map(compile_globs((glob,)), all_names)))


def _glob_to_regex(glob: str) -> str:
    # "(?>...)" is an atomic group: the first match of a piece is final.
    first, *between, last = (re.escape(piece) for piece in glob.split("*"))
    return first + "".join(f"(?>.*?{piece})" for piece in between if piece) + ".*" + last
