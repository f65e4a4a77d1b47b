"""Split an AGENTS.md file into the sections of its agents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from toolyard.agents.definitions.front_matter import FRONT_MATTER_KEYS
from toolyard.errors import Problem

__all__ = ["AgentSection", "AgentSections", "normalize_prompt", "split_sections"]

_HEADING_PATTERN = re.compile(r" {0,3}##[ \t]+(?P<name>.*?\S)(?:[ \t]+#+)?[ \t]*")
_CODE_FENCE_PATTERN = re.compile(r" {0,3}(?P<marks>`{3,}(?=[^`]*$)|~{3,})(?P<rest>.*)")
_AGENT_KEY_PATTERN = re.compile(rf"(?:{'|'.join(FRONT_MATTER_KEYS)})[ \t]*:")
_YAML_KEY_PATTERN = re.compile(r"""["']?[A-Za-z_][\w-]*["']?[ \t]*:(?=[ \t\[]|$)""")


@dataclass(frozen=True, slots=True)
class AgentSection:
    """One agent's part of the file. Lines count from 1."""

    name: str | None
    """From the heading; None if the whole file is one agent that is named in its front matter."""
    line: int
    front_matter: tuple[str, ...]
    front_matter_line: int
    """The line on which ``front_matter`` starts."""
    prompt: str


@dataclass(slots=True)
class AgentSections:
    """The sections of a file, with problems and hints about them."""

    agent_sections: list[AgentSection] = field(default_factory=list[AgentSection])
    problems: list[Problem] = field(default_factory=list[Problem])
    hints: list[Problem] = field(default_factory=list[Problem])


def split_sections(text: str, file: str | None) -> AgentSections:
    """Find the agents of a file.

    An agent starts at a ``## Name`` line followed, apart from blank lines, by front matter between ``---``
    lines, and ends where the next one starts. Other headings and fenced code belong to the prompt.
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
    unfinished: _UnfinishedSection | None = None
    at, code = 0, _CodeFenceTracker()
    while at < len(lines):
        name = None if code.consume_line(at, lines[at]) else _parse_heading_name(lines[at])
        opening = at if name is None else _next_nonblank_line(lines, at + 1)
        if name is None or not _is_dashes_line(lines, opening):
            if name is not None and opening < len(lines) and _AGENT_KEY_PATTERN.match(lines[opening]):
                sections.hints.append(_missing_dashes_hint(name, opening, file))
            at += 1
        elif not _opens_front_matter(lines, opening):
            sections.hints.append(_not_front_matter_hint(name, opening, file))
            at = opening + 1
        else:
            if unfinished is not None:
                sections.agent_sections.append(unfinished.build_section(lines, at))
            closing = _find_closing_line(lines, opening)
            if closing is None:
                sections.problems.append(_unclosed_matter_problem(opening, f"agent '{name}'", file))
                unfinished, at = None, opening + 1
            else:
                unfinished, at = _UnfinishedSection(name, at, opening, closing), closing + 1
    if unfinished is not None:
        sections.agent_sections.append(unfinished.build_section(lines, len(lines)))
    if code.open_line is not None:
        sections.hints.append(_unclosed_code_hint(code.open_line, file))


class _UnfinishedSection(NamedTuple):
    """An agent whose end has not been found yet. Lines count from 0."""

    name: str | None
    line: int
    matter_start: int
    matter_end: int

    def build_section(self, lines: Sequence[str], end: int) -> AgentSection:
        prompt = normalize_prompt("\n".join(lines[self.matter_end + 1 : end]))
        matter = tuple(lines[self.matter_start + 1 : self.matter_end])
        return AgentSection(self.name, self.line + 1, matter, self.matter_start + 2, prompt)


def normalize_prompt(text: str) -> str:
    """Remove blank lines around a prompt, which are layout, but not the indentation of its first line."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return re.sub(r"\A(?:[ \t]*\n)+", "", lines).rstrip()


class _CodeFenceTracker:
    """Tracks fenced code blocks line by line."""

    def __init__(self) -> None:
        self.open_line: int | None = None
        self._fence_marks = ""

    def consume_line(self, at: int, line: str) -> bool:
        """Return whether the line is part of a code block, including its fences."""
        match = _CODE_FENCE_PATTERN.fullmatch(line)
        if self.open_line is None:
            if match is None:
                return False
            self.open_line, self._fence_marks = at, match["marks"]
        elif match and match["marks"].startswith(self._fence_marks) and not match["rest"].strip():
            self.open_line = None
        return True


def _parse_heading_name(line: str) -> str | None:
    match = _HEADING_PATTERN.fullmatch(line)
    return match["name"] if match else None


def _next_nonblank_line(lines: Sequence[str], at: int) -> int:
    while at < len(lines) and not lines[at].strip():
        at += 1
    return at


def _is_dashes_line(lines: Sequence[str], at: int) -> bool:
    return at < len(lines) and lines[at].rstrip() == "---"


def _opens_front_matter(lines: Sequence[str], at: int) -> bool:
    """Return whether a ``---`` line opens front matter, rather than being a horizontal rule."""
    if not _is_dashes_line(lines, at):
        return False
    at = _next_nonblank_line(lines, at + 1)
    while at < len(lines) and lines[at].lstrip().startswith("#") and not _is_agent_start(lines, at):
        at = _next_nonblank_line(lines, at + 1)
    return _is_dashes_line(lines, at) or (at < len(lines) and _YAML_KEY_PATTERN.match(lines[at]) is not None)


def _is_agent_start(lines: Sequence[str], at: int) -> bool:
    """Return whether an agent starts here, inside front matter that was never closed."""
    if _parse_heading_name(lines[at]) is None:
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
        hint="add a line of three dashes, ---, after its last key",
    )


def _not_front_matter_hint(name: str, opening: int, file: str | None) -> Problem:
    return Problem(
        f"the line of dashes after '## {name}' does not open front matter, so the heading is read as text",
        file,
        opening + 1,
        hint="front matter of an agent starts with a key, such as description:",
    )


def _missing_dashes_hint(name: str, opening: int, file: str | None) -> Problem:
    return Problem(
        f"'## {name}' looks like an agent, but has no front matter, so it is read as text",
        file,
        opening + 1,
        hint="put a line of three dashes, ---, before the first key and after the last one",
    )


def _unclosed_code_hint(opening: int, file: str | None) -> Problem:
    return Problem(
        "the code block that starts here is never closed, so no agent is found after it",
        file,
        opening + 1,
        hint="close it with the same fence",
    )
