"""Globs on paths: ``*`` and ``?`` stay within a name, ``**`` stands for any number of folders, ``[ab]`` and
``[!ab]`` for one character, ``{a,b}`` for either.

A model writes them, so none may take long: each piece between two stars is looked for once, from the left.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

from toolyard.agents.builtin_tools.tool_error import NativeFailure

__all__ = ["Glob", "glob"]

Glob: TypeAlias = Callable[[str], bool]
"""Whether a path, from where one looks, fits."""

_LONGEST = 1000
_CHOICES = 64
_SET = re.compile(r"\[(!?)(\]?[^\]/]*)\]")


def glob(pattern: str) -> Glob:
    """The glob of a pattern. One without a slash is for names at any depth. Raises NativeFailure."""
    if not pattern or len(pattern) > _LONGEST:
        raise NativeFailure(f"a glob has from 1 to {_LONGEST:,} characters")
    choices = [_Parts(each) for each in _choices(pattern.removeprefix("./"))]
    return lambda path: any(each.fits(path.split("/")) for each in choices)


class _Parts:
    """A pattern name by name; None stands for ``**``."""

    def __init__(self, pattern: str) -> None:
        names = [name for name in pattern.split("/") if name]
        if "/" not in pattern:
            names.insert(0, "**")
        self._names = [None if name == "**" else _name(name) for name in names]

    def fits(self, path: list[str]) -> bool:
        """One row for each name of the path: how far into the pattern one can be after it."""
        reached = {0}
        for name in path:
            reached = {
                place if wanted is None else place + 1
                for place in self._widened(reached)
                for wanted in self._names[place : place + 1]
                if wanted is None or wanted(name)
            }
            if not reached:
                return False
        return len(self._names) in self._widened(reached)

    def _widened(self, reached: set[int]) -> set[int]:
        """``**`` may stand for no folder at all."""
        places = set(reached)
        for place in sorted(reached):
            while place < len(self._names) and self._names[place] is None:
                place += 1
                places.add(place)
        return places


@lru_cache(maxsize=256)
def _name(pattern: str) -> Callable[[str], bool]:
    first, *others = (_piece(piece) for piece in re.split(r"\*+", pattern))
    if others:
        *between, last = others
        first += "".join(f"(?>.*?{piece})" for piece in between if piece) + ".*" + last
    fullmatch = re.compile(first, re.DOTALL).fullmatch
    return lambda name: fullmatch(name) is not None


def _piece(text: str) -> str:
    """What stands between two stars, as an expression."""
    made, at = "", 0
    while at < len(text):
        found = _SET.match(text, at) if text[at] == "[" else None
        if found is not None and found[2]:
            sign = "^" if found[1] else ""
            made += f"[{sign}{_set(found[2])}]"
            at = found.end()
            continue
        made += "." if text[at] == "?" else re.escape(text[at])
        at += 1
    return made


def _set(inside: str) -> str:
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


def _choices(pattern: str) -> list[str]:
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
        if len(done) + len(waiting) > _CHOICES:
            raise NativeFailure(f"a glob may stand for {_CHOICES} others, not more")
    return done
