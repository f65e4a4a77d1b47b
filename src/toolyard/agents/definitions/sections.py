"""Where agents begin and end in an AGENTS.md file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from toolyard.errors import Problem

__all__ = ["Section", "Sections", "split"]

_HEADING = re.compile(r" {0,3}##[ \t]+(?P<name>.*?\S)(?:[ \t]+#+)?[ \t]*")
_CODE = re.compile(r" {0,3}(?P<marks>`{3,}(?=[^`]*$)|~{3,})(?P<rest>.*)")
_KEY = re.compile(r"""["']?[A-Za-z_][\w-]*["']?[ \t]*:(?=[ \t\[]|$)""")


@dataclass(frozen=True, slots=True)
class Section:
    """One agent's part of the file. Lines are counted from 1, as editors do."""

    name: str | None
    """From the heading; None for a file that is one agent and says its name in the front matter."""
    line: int
    matter: tuple[str, ...]
    matter_line: int
    """The line on which ``matter`` begins."""
    prompt: str


@dataclass(slots=True)
class Sections:
    """The parts of a file, what is wrong with them, and what is worth a hint."""

    found: list[Section] = field(default_factory=list[Section])
    problems: list[Problem] = field(default_factory=list[Problem])
    hints: list[Problem] = field(default_factory=list[Problem])


def split(text: str, file: str | None) -> Sections:
    """Find the agents of a file.

    One begins at a ``## Name`` line that is followed, blank lines aside, by front matter between ``---``
    lines, and ends where the next begins. Other headings, and fenced code, belong to the prompt.
    """
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    sections = Sections()
    first = _next_full(lines, 0)
    if _opens_matter(lines, first):
        _take_whole_file(lines, first, sections, file)
    else:
        _take_headed(lines, sections, file)
    return sections


def _take_whole_file(lines: Sequence[str], opening: int, sections: Sections, file: str | None) -> None:
    closing = _closing(lines, opening)
    if closing is None:
        sections.problems.append(_never_closed(opening, "the file", file))
        return
    sections.found.append(_Begun(None, opening, opening, closing).section(lines, len(lines)))


def _take_headed(lines: Sequence[str], sections: Sections, file: str | None) -> None:
    begun: _Begun | None = None
    at, code = 0, _Code()
    while at < len(lines):
        name = None if code.covers(at, lines[at]) else _heading(lines[at])
        opening = at if name is None else _next_full(lines, at + 1)
        if name is None or not _is_rule(lines, opening):
            at += 1
        elif not _opens_matter(lines, opening):
            sections.hints.append(_no_matter(name, opening, file))
            at = opening + 1
        else:
            if begun is not None:
                sections.found.append(begun.section(lines, at))
            closing = _closing(lines, opening)
            if closing is None:
                sections.problems.append(_never_closed(opening, f"agent '{name}'", file))
                begun, at = None, opening + 1
            else:
                begun, at = _Begun(name, at, opening, closing), closing + 1
    if begun is not None:
        sections.found.append(begun.section(lines, len(lines)))
    if code.opened is not None:
        sections.hints.append(_open_code(code.opened, file))


class _Begun(NamedTuple):
    """An agent whose end has not been seen. Lines are counted from 0."""

    name: str | None
    line: int
    opening: int
    closing: int

    def section(self, lines: Sequence[str], end: int) -> Section:
        prompt = "\n".join(lines[self.closing + 1 : end])
        # Blank lines around a prompt are layout; the indentation of its first line is not.
        prompt = re.sub(r"\A(?:[ \t]*\n)+", "", prompt).rstrip()
        matter = tuple(lines[self.opening + 1 : self.closing])
        return Section(self.name, self.line + 1, matter, self.opening + 2, prompt)


class _Code:
    """Follows fenced code from line to line."""

    def __init__(self) -> None:
        self.opened: int | None = None
        self._marks = ""

    def covers(self, at: int, line: str) -> bool:
        """Whether the line is code, or begins or ends it."""
        found = _CODE.fullmatch(line)
        if self.opened is None:
            if found is None:
                return False
            self.opened, self._marks = at, found["marks"]
        elif found and found["marks"].startswith(self._marks) and not found["rest"].strip():
            self.opened = None
        return True


def _heading(line: str) -> str | None:
    found = _HEADING.fullmatch(line)
    return found["name"] if found else None


def _next_full(lines: Sequence[str], at: int) -> int:
    while at < len(lines) and not lines[at].strip():
        at += 1
    return at


def _is_rule(lines: Sequence[str], at: int) -> bool:
    return at < len(lines) and lines[at].rstrip() == "---"


def _opens_matter(lines: Sequence[str], at: int) -> bool:
    """Whether a ``---`` line opens front matter, and is no line drawn across a text."""
    if not _is_rule(lines, at):
        return False
    at = _next_full(lines, at + 1)
    while at < len(lines) and lines[at].lstrip().startswith("#") and not _begins(lines, at):
        at = _next_full(lines, at + 1)
    return _is_rule(lines, at) or (at < len(lines) and _KEY.match(lines[at]) is not None)


def _begins(lines: Sequence[str], at: int) -> bool:
    """Whether an agent begins here, inside front matter that nobody closed."""
    if _heading(lines[at]) is None:
        return False
    opening = _next_full(lines, at + 1)
    following = _next_full(lines, opening + 1)
    return _is_rule(lines, opening) and following < len(lines) and _KEY.match(lines[following]) is not None


def _closing(lines: Sequence[str], opening: int) -> int | None:
    for at in range(opening + 1, len(lines)):
        if _is_rule(lines, at):
            return at
        if _begins(lines, at):
            return None
    return None


def _never_closed(opening: int, whose: str, file: str | None) -> Problem:
    return Problem(
        f"the front matter of {whose} is never closed",
        file,
        opening + 1,
        hint="put a line of three dashes, ---, after its last key",
    )


def _no_matter(name: str, opening: int, file: str | None) -> Problem:
    return Problem(
        f"the line of dashes after '## {name}' opens no front matter, so the heading is read as text",
        file,
        opening + 1,
        hint="an agent's front matter begins with a key, such as description:",
    )


def _open_code(opened: int, file: str | None) -> Problem:
    return Problem(
        "fenced code begins here and never ends, so no agent begins after it",
        file,
        opened + 1,
        hint="close it with the same marks",
    )
