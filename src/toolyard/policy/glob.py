"""Globs on tool names: ``*`` stands for any characters, also none; nothing else is special. Case counts.

Names come from servers, so no glob may take long on a hostile one: each piece between two stars is looked for
once, from the left, and never moved again, because the leftmost place leaves the most room for the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeAlias

__all__ = ["NameMatcher", "compile_globs", "matches_glob", "unused_globs"]

NameMatcher: TypeAlias = Callable[[str], object]
"""True, in the sense of ``if``, for a name that fits."""


@lru_cache(maxsize=4096)
def compile_globs(globs: tuple[str, ...]) -> NameMatcher:
    """Whether at least one glob fits the whole name. Every text is a glob; an empty list fits nothing."""
    plain = frozenset(glob for glob in globs if "*" not in glob)
    starred = [_glob_to_regex(glob) for glob in globs if "*" in glob]
    if not starred:
        return plain.__contains__
    fullmatch = re.compile("|".join(starred), re.DOTALL).fullmatch
    return (lambda name: name in plain or fullmatch(name)) if plain else fullmatch


def matches_glob(glob: str, name: str) -> bool:
    """Whether one glob fits the whole name."""
    return bool(compile_globs((glob,))(name))


def unused_globs(globs: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """The globs that fit none of the names, in their order."""
    known = tuple(names)
    return tuple(glob for glob in globs if not any(map(compile_globs((glob,)), known)))


def _glob_to_regex(glob: str) -> str:
    first, *between, last = (re.escape(piece) for piece in glob.split("*"))
    return first + "".join(f"(?>.*?{piece})" for piece in between if piece) + ".*" + last
