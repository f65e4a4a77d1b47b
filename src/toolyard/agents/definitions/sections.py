"""Where agents begin and end in an AGENTS.md file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from toolyard.errors import Problem

__all__ = ["AgentSection", "AgentSections", "split_sections"]

_HEADING_PATTERN = re.compile(r" {0,3}##[ \t]+(?P<name>.*?\S)(?:[ \t]+#+)?[ \t]*")
_CODE_FENCE_PATTERN = re.compile(r" {0,3}(?P<marks>`{3,}(?=[^`]*$)|~{3,})(?P<rest>.*)")
_YAML_KEY_PATTERN = re.compile(r"""["']?[A-Za-z_][\w-]*["']?[ \t]*:(?=[ \t\[]|$)""")


@dataclass(frozen=True, slots=True)
class AgentSection:
    """One agent's part of the file. Lines are counted from 1, as editors do."""

    name: str | None
    """From the heading; None for a file that is one agent and says its name in the front matter."""
    line: int
    front_matter: tuple[str, ...]
    front_matter_line: int
    """The line on which ``matter`` begins."""
    prompt: str


@dataclass(slots=True)
class AgentSections:
    """The parts of a file, what is wrong with them, and what is worth a hint."""

    agent_sections: list[AgentSection] = field(default_factory=list[AgentSection])
    problems: list[Problem] = field(default_factory=list[Problem])
    hints: list[Problem] = field(default_factory=list[Problem])


def split_sections(text: str, file: str | None) -> AgentSections:
    """Find the agents of a file.

    One begins at a ``## Name`` line that is followed, blank lines aside, by front matter between ``---``
    lines, and ends where the next begins. Other headings, and fenced code, belong to the prompt.
    """
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    sections = AgentSections()
    first = _next_nonblank_line(lines, 0)
    if _opens_front_matter(lines, first):
        _add_whole_file(lines, first, sections, file)
    else:
        _add_headed_sections(lines, sections, file)
    return sections


def _add_whole_file(lines: Sequence[str], opening: int, sections: AgentSections, file: str | None) -> None:
    closing = _find_closing_line(lines, opening)
    if closing is None:
        sections.problems.append(_unclosed_matter_problem(opening, "the file", file))
        return
    sections.agent_sections.append(
        _UnfinishedSection(None, opening, opening, closing).build_section(lines, len(lines))
    )


def _add_headed_sections(lines: Sequence[str], sections: AgentSections, file: str | None) -> None:
    begun: _UnfinishedSection | None = None
    at, code = 0, _CodeFenceTracker()
    while at < len(lines):
        name = None if code.consume_line(at, lines[at]) else _match_heading(lines[at])
        opening = at if name is None else _next_nonblank_line(lines, at + 1)
        if name is None or not _is_dashes_line(lines, opening):
            at += 1
        elif not _opens_front_matter(lines, opening):
            sections.hints.append(_not_front_matter_hint(name, opening, file))
            at = opening + 1
        else:
            if begun is not None:
                sections.agent_sections.append(begun.build_section(lines, at))
            closing = _find_closing_line(lines, opening)
            if closing is None:
                sections.problems.append(_unclosed_matter_problem(opening, f"agent '{name}'", file))
                begun, at = None, opening + 1
            else:
                begun, at = _UnfinishedSection(name, at, opening, closing), closing + 1
    if begun is not None:
        sections.agent_sections.append(begun.build_section(lines, len(lines)))
    if code.open_line is not None:
        sections.hints.append(_unclosed_code_hint(code.open_line, file))


class _UnfinishedSection(NamedTuple):
    """An agent whose end has not been seen. Lines are counted from 0."""

    name: str | None
    line: int
    matter_start: int
    matter_end: int

    def build_section(self, lines: Sequence[str], end: int) -> AgentSection:
        prompt = "\n".join(lines[self.matter_end + 1 : end])
        # Blank lines around a prompt are layout; the indentation of its first line is not.
        prompt = re.sub(r"\A(?:[ \t]*\n)+", "", prompt).rstrip()
        matter = tuple(lines[self.matter_start + 1 : self.matter_end])
        return AgentSection(self.name, self.line + 1, matter, self.matter_start + 2, prompt)


class _CodeFenceTracker:
    """Follows fenced code from line to line."""

    def __init__(self) -> None:
        self.open_line: int | None = None
        self._fence_marks = ""

    def consume_line(self, at: int, line: str) -> bool:
        """Whether the line is code, or begins or ends it."""
        found = _CODE_FENCE_PATTERN.fullmatch(line)
        if self.open_line is None:
            if found is None:
                return False
            self.open_line, self._fence_marks = at, found["marks"]
        elif found and found["marks"].startswith(self._fence_marks) and not found["rest"].strip():
            self.open_line = None
        return True


def _match_heading(line: str) -> str | None:
    found = _HEADING_PATTERN.fullmatch(line)
    return found["name"] if found else None


def _next_nonblank_line(lines: Sequence[str], at: int) -> int:
    while at < len(lines) and not lines[at].strip():
        at += 1
    return at


def _is_dashes_line(lines: Sequence[str], at: int) -> bool:
    return at < len(lines) and lines[at].rstrip() == "---"


def _opens_front_matter(lines: Sequence[str], at: int) -> bool:
    """Whether a ``---`` line opens front matter, and is no line drawn across a text."""
    if not _is_dashes_line(lines, at):
        return False
    at = _next_nonblank_line(lines, at + 1)
    while at < len(lines) and lines[at].lstrip().startswith("#") and not _is_agent_start(lines, at):
        at = _next_nonblank_line(lines, at + 1)
    return _is_dashes_line(lines, at) or (at < len(lines) and _YAML_KEY_PATTERN.match(lines[at]) is not None)


def _is_agent_start(lines: Sequence[str], at: int) -> bool:
    """Whether an agent begins here, inside front matter that nobody closed."""
    if _match_heading(lines[at]) is None:
        return False
    opening = _next_nonblank_line(lines, at + 1)
    following = _next_nonblank_line(lines, opening + 1)
    return (
        _is_dashes_line(lines, opening)
        and following < len(lines)
        and _YAML_KEY_PATTERN.match(lines[following]) is not None
    )


def _find_closing_line(lines: Sequence[str], opening: int) -> int | None:
    for at in range(opening + 1, len(lines)):
        if _is_dashes_line(lines, at):
            return at
        if _is_agent_start(lines, at):
            return None
    return None


def _unclosed_matter_problem(opening: int, owner: str, file: str | None) -> Problem:
    return Problem(
        f"the front matter of {owner} is never closed",
        file,
        opening + 1,
        hint="put a line of three dashes, ---, after its last key",
    )


def _not_front_matter_hint(name: str, opening: int, file: str | None) -> Problem:
    return Problem(
        f"the line of dashes after '## {name}' opens no front matter, so the heading is read as text",
        file,
        opening + 1,
        hint="an agent's front matter begins with a key, such as description:",
    )


def _unclosed_code_hint(opened: int, file: str | None) -> Problem:
    return Problem(
        "fenced code begins here and never ends, so no agent begins after it",
        file,
        opened + 1,
        hint="close it with the same marks",
    )
