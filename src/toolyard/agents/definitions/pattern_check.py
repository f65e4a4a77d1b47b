"""Check an agent's tool patterns against the existing tools."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from toolyard.errors import Problem
from toolyard.policy.agent_patterns import is_exact_name, strip_deny_prefix, unused_patterns
from toolyard.types.agent import Agent

__all__ = ["ToolPatternProblems", "check_tool_patterns"]


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
                    agent, f"there is no tool '{strip_deny_prefix(text)}'", _suggest_tool(text, known_tools)
                )
            )
        else:
            warnings.append(_tools_problem(agent, f"'{text}' matches no tool"))
    return ToolPatternProblems(tuple(errors), tuple(warnings))


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
