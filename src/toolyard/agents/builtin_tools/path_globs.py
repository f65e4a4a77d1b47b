"""Match paths against globs.

``*`` and ``?`` match within a name, ``**`` any number of folders, ``[ab]`` and ``[!ab]`` one character, and
``{a,b}`` either alternative. Models write the globs, so matching must not backtrack excessively: each piece
between two stars is searched once, from the left.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

from toolyard.agents.builtin_tools.tool_error import NativeToolError

__all__ = ["PathMatcher", "compile_glob"]

PathMatcher: TypeAlias = Callable[[str], bool]
"""Returns whether a path, relative to the searched folder, matches."""

_MAX_GLOB_CHARACTERS = 1000
_MAX_BRACE_ALTERNATIVES = 64
_CHARACTER_SET_PATTERN = re.compile(r"\[(!?)(\]?[^\]/]*)\]")


def compile_glob(pattern: str) -> PathMatcher:
    """Compile a glob. Without a slash it matches names at any depth. Raises NativeToolError."""
    if not pattern or len(pattern) > _MAX_GLOB_CHARACTERS:
        raise NativeToolError(f"a glob must have 1 to {_MAX_GLOB_CHARACTERS:,} characters")
    patterns = [_PathPattern(each) for each in _expand_braces(pattern.removeprefix("./"))]
    return lambda path: any(each.matches(path.split("/")) for each in patterns)


class _PathPattern:
    """A pattern split into names; None represents ``**``."""

    def __init__(self, pattern: str) -> None:
        names = [name for name in pattern.split("/") if name]
        if "/" not in pattern:
            names.insert(0, "**")
        self._name_matchers = [None if name == "**" else _compile_name(name) for name in names]

    def matches(self, path: list[str]) -> bool:
        """Simulate the pattern as a state machine over the path's names.

        ``reached`` holds the pattern positions that are possible after each name, which bounds the work to
        names times positions.
        """
        reached = {0}
        for name in path:
            reached = {
                place if name_matcher is None else place + 1
                for place in self._expand_double_stars(reached)
                for name_matcher in self._name_matchers[place : place + 1]
                if name_matcher is None or name_matcher(name)
            }
            if not reached:
                return False
        return len(self._name_matchers) in self._expand_double_stars(reached)

    def _expand_double_stars(self, reached: set[int]) -> set[int]:
        """Add the positions after each ``**``, which may match no folder at all."""
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
        # Atomic groups prevent backtracking into a piece that was already found.
        first += "".join(f"(?>.*?{piece})" for piece in between if piece) + ".*" + last
    fullmatch = re.compile(first, re.DOTALL).fullmatch
    return lambda name: fullmatch(name) is not None


def _translate_piece(text: str) -> str:
    """Translate the text between two stars to a regular expression."""
    expression, position = "", 0
    while position < len(text):
        match = _CHARACTER_SET_PATTERN.match(text, position) if text[position] == "[" else None
        if match is not None and match[2]:
            sign = "^" if match[1] else ""
            expression += f"[{sign}{_translate_set(match[2])}]"
            position = match.end()
            continue
        expression += "." if text[position] == "?" else re.escape(text[position])
        position += 1
    return expression


def _translate_set(inside: str) -> str:
    """Translate the inside of a set: ranges are kept, other characters are literal."""
    expression, position = "", 0
    while position < len(inside):
        if (
            inside[position + 1 : position + 2] == "-"
            and position + 2 < len(inside)
            and inside[position] <= inside[position + 2]
        ):
            expression += f"{re.escape(inside[position])}-{re.escape(inside[position + 2])}"
            position += 3
        else:
            expression += re.escape(inside[position])
            position += 1
    return expression


def _expand_braces(pattern: str) -> list[str]:
    """Return the patterns that a pattern with braces expands to.

    Raises NativeToolError if there are too many.
    """
    expanded: list[str] = []
    pending = [pattern]
    while pending:
        each = pending.pop(0)
        match = re.search(r"\{([^{}]*,[^{}]*)\}", each)
        if match is None:
            expanded.append(each)
        else:
            pending += [each[: match.start()] + word + each[match.end() :] for word in match[1].split(",")]
        if len(expanded) + len(pending) > _MAX_BRACE_ALTERNATIVES:
            raise NativeToolError(
                f"the braces of a glob may expand to at most {_MAX_BRACE_ALTERNATIVES} patterns"
            )
    return expanded
