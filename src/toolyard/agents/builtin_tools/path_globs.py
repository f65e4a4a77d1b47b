"""Globs on paths: ``*`` and ``?`` stay within a name, ``**`` stands for any number of folders, ``[ab]`` and
``[!ab]`` for one character, ``{a,b}`` for either.

A model writes them, so none may take long: each piece between two stars is looked for once, from the left.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

from toolyard.agents.builtin_tools.tool_error import NativeToolError

__all__ = ["PathMatcher", "compile_glob"]

PathMatcher: TypeAlias = Callable[[str], bool]
"""Whether a path, from where one looks, fits."""

_MAX_GLOB_CHARACTERS = 1000
_MAX_BRACE_ALTERNATIVES = 64
_CHARACTER_SET_PATTERN = re.compile(r"\[(!?)(\]?[^\]/]*)\]")


def compile_glob(pattern: str) -> PathMatcher:
    """The glob of a pattern. One without a slash is for names at any depth. Raises NativeFailure."""
    if not pattern or len(pattern) > _MAX_GLOB_CHARACTERS:
        raise NativeToolError(f"a glob has from 1 to {_MAX_GLOB_CHARACTERS:,} characters")
    choices = [_PathPattern(each) for each in _expand_braces(pattern.removeprefix("./"))]
    return lambda path: any(each.matches(path.split("/")) for each in choices)


class _PathPattern:
    """A pattern name by name; None stands for ``**``."""

    def __init__(self, pattern: str) -> None:
        names = [name for name in pattern.split("/") if name]
        if "/" not in pattern:
            names.insert(0, "**")
        self._name_matchers = [None if name == "**" else _compile_name(name) for name in names]

    def matches(self, path: list[str]) -> bool:
        """One row for each name of the path: how far into the pattern one can be after it."""
        reached = {0}
        for name in path:
            reached = {
                place if wanted is None else place + 1
                for place in self._expand_double_stars(reached)
                for wanted in self._name_matchers[place : place + 1]
                if wanted is None or wanted(name)
            }
            if not reached:
                return False
        return len(self._name_matchers) in self._expand_double_stars(reached)

    def _expand_double_stars(self, reached: set[int]) -> set[int]:
        """``**`` may stand for no folder at all."""
        places = set(reached)
        for place in sorted(reached):
            while place < len(self._name_matchers) and self._name_matchers[place] is None:
                place += 1
                places.add(place)
        return places


@lru_cache(maxsize=256)
def _compile_name(pattern: str) -> Callable[[str], bool]:
    first, *others = (_translate_piece(piece) for piece in re.split(r"\*+", pattern))
    if others:
        *between, last = others
        first += "".join(f"(?>.*?{piece})" for piece in between if piece) + ".*" + last
    fullmatch = re.compile(first, re.DOTALL).fullmatch
    return lambda name: fullmatch(name) is not None


def _translate_piece(text: str) -> str:
    """What stands between two stars, as an expression."""
    made, at = "", 0
    while at < len(text):
        found = _CHARACTER_SET_PATTERN.match(text, at) if text[at] == "[" else None
        if found is not None and found[2]:
            sign = "^" if found[1] else ""
            made += f"[{sign}{_translate_set(found[2])}]"
            at = found.end()
            continue
        made += "." if text[at] == "?" else re.escape(text[at])
        at += 1
    return made


def _translate_set(inside: str) -> str:
    """The inside of a set: ranges stay, all else means itself."""
    made, at = "", 0
    while at < len(inside):
        if inside[at + 1 : at + 2] == "-" and at + 2 < len(inside) and inside[at] <= inside[at + 2]:
            made += f"{re.escape(inside[at])}-{re.escape(inside[at + 2])}"
            at += 3
        else:
            made += re.escape(inside[at])
            at += 1
    return made


def _expand_braces(pattern: str) -> list[str]:
    """The patterns that one with braces stands for. Raises NativeFailure for too many of them."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        each = waiting.pop(0)
        found = re.search(r"\{([^{}]*,[^{}]*)\}", each)
        if found is None:
            done.append(each)
        else:
            waiting += [each[: found.start()] + word + each[found.end() :] for word in found[1].split(",")]
        if len(done) + len(waiting) > _MAX_BRACE_ALTERNATIVES:
            raise NativeToolError(f"a glob may stand for {_MAX_BRACE_ALTERNATIVES} others, not more")
    return done
