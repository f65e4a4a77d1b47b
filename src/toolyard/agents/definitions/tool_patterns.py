"""The reader of ``tools:``, because ``[*, !web_*]`` is not what YAML takes it for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

__all__ = ["Complaint", "ToolList", "is_tools_line", "read_tools"]

_KEY = re.compile(r"""(["']?)tools\1[ \t]*:""")
_ANY_KEY = re.compile(r"""["']?[A-Za-z_][\w-]*["']?[ \t]*:""")
_ITEM = re.compile(r"[ \t]*-(?:[ \t]+(?P<rest>.*)|[ \t]*)")
_TOKEN = re.compile(
    r"""
      (?P<comment> \#.* )
    | (?P<mark>    [\[\],] )
    | (?P<double>  !? "(?:[^"\\]|\\.)*" )
    | (?P<single>  !? '(?:[^']|'')*' )
    | (?P<plain>   [^\s,\[\]]+ )
    """,
    re.VERBOSE,
)
NO_LIST = "tools: is no list"
LIST_HINT = "write tools: [view_file, context7_*], or leave tools out for all of them"


@dataclass(frozen=True, slots=True)
class Complaint:
    """What is wrong, and on which of the lines, counted from 0."""

    at: int
    message: str
    hint: str | None = None


@dataclass(slots=True)
class ToolList:
    """The patterns as they were written, in their order; where the list ended; what was wrong with it."""

    items: list[str] = field(default_factory=list[str])
    end: int = 0
    """The first line that is no longer part of the list."""
    complaints: list[Complaint] = field(default_factory=list[Complaint])


def is_tools_line(line: str) -> bool:
    """Whether the key ``tools`` stands at the beginning of the line."""
    return _KEY.match(line) is not None


def read_tools(lines: Sequence[str], at: int) -> ToolList:
    """Read the list whose key stands on line ``at``. Never raises: what is wrong is in ``complaints``."""
    key = _KEY.match(lines[at])
    start = key.end() if key else 0
    value = lines[at][start:].strip()
    if value.startswith("["):
        return _inline(lines, at, start)
    if value and not value.startswith("#"):
        return _no_list(lines, at)
    first = _next_full(lines, at + 1)
    if first < len(lines) and lines[first][:1].isspace() and lines[first].lstrip().startswith("["):
        return _inline(lines, first, 0)
    return _block(lines, at)


def _no_list(lines: Sequence[str], at: int) -> ToolList:
    end = at + 1
    while end < len(lines) and (not lines[end].strip() or lines[end][0].isspace()):
        end += 1
    return ToolList(end=end, complaints=[Complaint(at, NO_LIST, LIST_HINT)])


def _next_full(lines: Sequence[str], at: int) -> int:
    while at < len(lines) and (not lines[at].strip() or lines[at].lstrip().startswith("#")):
        at += 1
    return at


def _block(lines: Sequence[str], key: int) -> ToolList:
    made = ToolList(end=key + 1)
    seen = False
    for at in range(key + 1, len(lines)):
        line = lines[at]
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        item = _ITEM.fullmatch(line)
        if item is None and not line[0].isspace() and not line.startswith("-"):
            break
        seen, made.end = True, at + 1
        if item is None:
            made.complaints.append(Complaint(at, f"expected '- name', found '{line.strip():.60}'"))
        else:
            _take_block_item(made, at, item["rest"] or "")
    if not seen:
        made.complaints.append(Complaint(key, NO_LIST, LIST_HINT))
    return made


def _take_block_item(made: ToolList, at: int, rest: str) -> None:
    tokens = list(_tokens(rest))
    if len(tokens) == 1 and tokens[0].lastgroup != "mark":
        _take(made, at, tokens[0])
    elif tokens:
        made.complaints.append(Complaint(at, f"'{rest.strip():.60}' is no tool name", "one name a line"))
    else:
        made.complaints.append(Complaint(at, "an item of tools is empty"))


def _inline(lines: Sequence[str], first: int, start: int) -> ToolList:
    end = next((at for at in range(first + 1, len(lines)) if _ANY_KEY.match(lines[at])), len(lines))
    made = ToolList(end=end)
    depth, before = 0, ""
    tokens = _tokens_of_lines(lines, first, start, end)
    for at, token in tokens:
        text = token[0]
        if text == "[":
            depth += 1
            if depth > 1:
                made.complaints.append(Complaint(at, "a list inside the list of tools"))
        elif text == "]":
            depth -= 1
            if depth == 0:
                made.end = at + 1
                if next(tokens, (end, token))[0] == at:
                    made.complaints.append(Complaint(at, "something stands after the list of tools"))
                return made
        elif text == ",":
            if not before:
                made.complaints.append(Complaint(at, "an item of tools is empty"))
            before = ""
        else:
            if before:
                message = f"a comma is missing between '{before:.60}' and '{text:.60}'"
                made.complaints.append(Complaint(at, message))
            _take(made, at, token)
            before = text
    made.complaints.append(Complaint(first, "the list of tools is never closed", "close it with ]"))
    return made


def _tokens_of_lines(
    lines: Sequence[str], first: int, start: int, end: int
) -> Iterator[tuple[int, re.Match[str]]]:
    for at in range(first, end):
        for token in _tokens(lines[at], start if at == first else 0):
            yield at, token


def _tokens(line: str, start: int = 0) -> Iterator[re.Match[str]]:
    return (token for token in _TOKEN.finditer(line, start) if token.lastgroup != "comment")


def _take(made: ToolList, at: int, token: re.Match[str]) -> None:
    """Add one item, or the complaint about it."""
    text = token[0]
    sign = "!" if text.startswith("!") else ""
    name = text.removeprefix("!")
    if token.lastgroup == "double":
        name = re.sub(r"\\(.)", r"\1", name[1:-1])
    elif token.lastgroup == "single":
        name = name[1:-1].replace("''", "'")
    elif name[:1] in ('"', "'"):
        made.complaints.append(Complaint(at, f"the quote before {name[1:61]} is never closed"))
        return
    if not name.removeprefix("!"):
        made.complaints.append(Complaint(at, f"'{text}' names no tool"))
    elif re.search(r"\s", name):
        made.complaints.append(Complaint(at, f"'{name:.60}' is no tool name", "names have no blanks"))
    else:
        made.items.append(sign + name)
