"""Parse the ``tools:`` list of an agent, and check its patterns against the existing tools.

A separate parser, because ``[*, !web_*]`` is not valid YAML: ``*`` and ``!`` are aliases and tags there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from toolyard.errors import Problem
from toolyard.policy.agent_patterns import is_exact_name, strip_deny_prefix, unused_patterns
from toolyard.types.agent import Agent

__all__ = [
    "ToolList",
    "ToolListProblem",
    "ToolPatternProblems",
    "check_tool_patterns",
    "find_possible_servers",
    "is_tools_line",
    "may_allow_unlisted",
    "parse_tool_list",
]


_TOOLS_KEY_PATTERN = re.compile(r"""(["']?)tools\1[ \t]*:""")
_ANY_KEY_PATTERN = re.compile(r"""["']?[A-Za-z_][\w-]*["']?[ \t]*:""")
_BLOCK_ITEM_PATTERN = re.compile(r"[ \t]*-(?:[ \t]+(?P<rest>.*)|[ \t]*)")
_TOKEN_PATTERN = re.compile(
    r"""
      (?P<comment> \#.* )
    | (?P<mark>    [\[\],] )
    | (?P<double>  !? "(?:[^"\\]|\\.)*" )
    | (?P<single>  !? '(?:[^']|'')*' )
    | (?P<plain>   [^\s,\[\]]+ )
    """,
    re.VERBOSE,
)
NOT_A_LIST_MESSAGE = "tools: is not a list"
LIST_HINT = "write tools: [view_file, context7_*], or omit tools for all of them"


@dataclass(frozen=True, slots=True)
class ToolListProblem:
    """A problem and its line, counted from 0."""

    line_index: int
    message: str
    hint: str | None = None


@dataclass(slots=True)
class ToolList:
    """The patterns as written, in order, and problems with the list."""

    items: list[str] = field(default_factory=list[str])
    end: int = 0
    """The first line after the list."""
    problems: list[ToolListProblem] = field(default_factory=list[ToolListProblem])


def is_tools_line(line: str) -> bool:
    """Return whether the line starts with the key ``tools``."""
    return _TOOLS_KEY_PATTERN.match(line) is not None


def parse_tool_list(lines: Sequence[str], at: int) -> ToolList:
    """Parse the list whose key is on line ``at``. Never raises; errors are in ``problems``."""
    key = _TOOLS_KEY_PATTERN.match(lines[at])
    start = key.end() if key else 0
    value = lines[at][start:].strip()
    if value.startswith("["):
        return _parse_inline_list(lines, at, start)
    if value and not value.startswith("#"):
        return _reject_non_list(lines, at)
    first = _next_content_line(lines, at + 1)
    if first < len(lines) and lines[first][:1].isspace() and lines[first].lstrip().startswith("["):
        return _parse_inline_list(lines, first, 0)
    return _parse_block_list(lines, at)


def _reject_non_list(lines: Sequence[str], at: int) -> ToolList:
    end = at + 1
    while end < len(lines) and (not lines[end].strip() or lines[end][0].isspace()):
        end += 1
    return ToolList(end=end, problems=[ToolListProblem(at, NOT_A_LIST_MESSAGE, LIST_HINT)])


def _next_content_line(lines: Sequence[str], at: int) -> int:
    while at < len(lines) and (not lines[at].strip() or lines[at].lstrip().startswith("#")):
        at += 1
    return at


def _parse_block_list(lines: Sequence[str], key: int) -> ToolList:
    tool_list = ToolList(end=key + 1)
    has_items = False
    for at in range(key + 1, len(lines)):
        line = lines[at]
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        item = _BLOCK_ITEM_PATTERN.fullmatch(line)
        if item is None and not line[0].isspace() and not line.startswith("-"):
            break
        has_items, tool_list.end = True, at + 1
        if item is None:
            tool_list.problems.append(ToolListProblem(at, f"expected '- name', found '{line.strip():.60}'"))
        else:
            _add_block_item(tool_list, at, item["rest"] or "")
    if not has_items:
        tool_list.problems.append(ToolListProblem(key, NOT_A_LIST_MESSAGE, LIST_HINT))
    return tool_list


def _add_block_item(tool_list: ToolList, at: int, rest: str) -> None:
    tokens = list(_iter_tokens(rest))
    if len(tokens) == 1 and tokens[0].lastgroup != "mark":
        _add_item(tool_list, at, tokens[0])
    elif tokens:
        tool_list.problems.append(
            ToolListProblem(at, f"'{rest.strip():.60}' is not a valid tool name", "write one name per line")
        )
    else:
        tool_list.problems.append(ToolListProblem(at, "an item of tools is empty"))


def _parse_inline_list(lines: Sequence[str], first: int, start: int) -> ToolList:
    end = next((at for at in range(first + 1, len(lines)) if _ANY_KEY_PATTERN.match(lines[at])), len(lines))
    tool_list = ToolList(end=end)
    depth, previous_item = 0, ""
    tokens = _iter_tokens_of_lines(lines, first, start, end)
    for at, token in tokens:
        text = token[0]
        if text == "[":
            depth += 1
            if depth > 1:
                tool_list.problems.append(ToolListProblem(at, "the list of tools contains another list"))
        elif text == "]":
            depth -= 1
            if depth == 0:
                tool_list.end = at + 1
                if next(tokens, (end, token))[0] == at:
                    tool_list.problems.append(ToolListProblem(at, "unexpected text after the list of tools"))
                return tool_list
        elif text == ",":
            if not previous_item:
                tool_list.problems.append(ToolListProblem(at, "an item of tools is empty"))
            previous_item = ""
        else:
            if previous_item:
                message = f"a comma is missing between '{previous_item:.60}' and '{text:.60}'"
                tool_list.problems.append(ToolListProblem(at, message))
            _add_item(tool_list, at, token)
            previous_item = text
    tool_list.problems.append(ToolListProblem(first, "the list of tools is never closed", "close it with ]"))
    return tool_list


def _iter_tokens_of_lines(
    lines: Sequence[str], first: int, start: int, end: int
) -> Iterator[tuple[int, re.Match[str]]]:
    for at in range(first, end):
        for token in _iter_tokens(lines[at], start if at == first else 0):
            yield at, token


def _iter_tokens(line: str, start: int = 0) -> Iterator[re.Match[str]]:
    return (token for token in _TOKEN_PATTERN.finditer(line, start) if token.lastgroup != "comment")


def _add_item(tool_list: ToolList, at: int, token: re.Match[str]) -> None:
    """Add one item, or the problem with it."""
    text = token[0]
    sign = "!" if text.startswith("!") else ""
    name = text.removeprefix("!")
    if token.lastgroup == "double":
        name = re.sub(r"\\(.)", r"\1", name[1:-1])
    elif token.lastgroup == "single":
        name = name[1:-1].replace("''", "'")
    elif name[:1] in ('"', "'"):
        tool_list.problems.append(ToolListProblem(at, f"the quote before {name[1:61]} is never closed"))
        return
    if not name.removeprefix("!"):
        tool_list.problems.append(ToolListProblem(at, f"'{text}' does not name a tool"))
    elif re.search(r"\s", name):
        tool_list.problems.append(
            ToolListProblem(at, f"'{name:.60}' is not a valid tool name", "tool names contain no spaces")
        )
    else:
        tool_list.items.append(sign + name)


@dataclass(frozen=True, slots=True)
class ToolPatternProblems:
    """``errors`` prevent an agent from being used; ``warnings`` are for its author."""

    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def check_tool_patterns(
    agent: Agent, known_tools: Collection[str], unlisted_prefixes: Mapping[str, str]
) -> ToolPatternProblems:
    """Return problems for the agent's patterns that match nothing.

    ``known_tools`` are all exposed names. ``unlisted_prefixes`` maps the name prefix of each server that has
    not been listed to its id: a name that may belong to such a server is only a warning. A pattern with a
    star is never an error, because tools come and go.
    """
    errors: list[Problem] = []
    warnings: list[Problem] = []
    for text in unused_patterns(agent.tools or (), known_tools):
        possible_servers = sorted(set(_possible_servers(text, unlisted_prefixes)))
        if possible_servers:
            servers = ", ".join(f"'{server}'" for server in possible_servers)
            warnings.append(
                _tools_problem(agent, f"'{text}' matches no tool yet; not listed so far: {servers}")
            )
        elif is_exact_name(text):
            errors.append(
                _tools_problem(
                    agent, f"unknown tool '{strip_deny_prefix(text)}'", _suggest_tool(text, known_tools)
                )
            )
        else:
            warnings.append(_tools_problem(agent, f"'{text}' matches no tool"))
    return ToolPatternProblems(tuple(errors), tuple(warnings))


def may_allow_unlisted(agent: Agent, unlisted_prefixes: Mapping[str, str]) -> bool:
    """Return whether the agent's patterns may allow a tool of a server that has not been listed."""
    if agent.tools is None:
        return bool(unlisted_prefixes)
    allowed = (text for text in agent.tools if text == strip_deny_prefix(text))
    return any(any(_possible_servers(text, unlisted_prefixes)) for text in allowed)


def find_possible_servers(agent: Agent, prefixes: Mapping[str, str]) -> list[str]:
    """Return the servers of which the agent's patterns may allow a tool. ``prefixes`` are those of their
    tools' names, by server id: several servers may have the same one."""
    return [server for server, prefix in prefixes.items() if may_allow_unlisted(agent, {prefix: server})]


def _possible_servers(text: str, unlisted_prefixes: Mapping[str, str]) -> Iterator[str]:
    literal_prefix, star, _ = strip_deny_prefix(text).partition("*")
    for prefix, server in unlisted_prefixes.items():
        if literal_prefix.startswith(prefix) or (star and prefix.startswith(literal_prefix)):
            yield server


def _suggest_tool(text: str, known_tools: Collection[str]) -> str:
    similar = get_close_matches(strip_deny_prefix(text), known_tools, n=1)
    return (
        f"did you mean '{similar[0]}'?"
        if similar
        else "a pattern such as context7_* may refer to future tools"
    )


def _tools_problem(agent: Agent, message: str, hint: str | None = None) -> Problem:
    return Problem(message, agent.file, agent.line, f"{agent.name}.tools", hint)
