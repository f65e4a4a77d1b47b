"""An agent's patterns against the tools that there are."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from toolyard.errors import Problem
from toolyard.policy.agent_patterns import glob_of, is_plain, unused_patterns
from toolyard.types.agent import Agent

__all__ = ["ToolFindings", "validate_tools"]


@dataclass(frozen=True, slots=True)
class ToolFindings:
    """``errors`` keep an agent from being used; ``warnings`` are for whoever wrote it."""

    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def validate_tools(agent: Agent, known: Collection[str], unlisted: Mapping[str, str]) -> ToolFindings:
    """Which of the agent's patterns match nothing.

    ``known`` are all exposed names. ``unlisted`` maps the beginning of the names of a server that has not
    been listed to that server's id: a name that may be one of its tools is a warning until then. A pattern
    with a star is never an error, since tools come and go.
    """
    errors: list[Problem] = []
    warnings: list[Problem] = []
    for text in unused_patterns(agent.tools or (), known):
        waiting = sorted(set(_may_belong_to(text, unlisted)))
        if waiting:
            servers = ", ".join(f"'{server}'" for server in waiting)
            warnings.append(_problem(agent, f"'{text}' matches no tool yet; not listed so far: {servers}"))
        elif is_plain(text):
            errors.append(_problem(agent, f"there is no tool '{glob_of(text)}'", _suggestion(text, known)))
        else:
            warnings.append(_problem(agent, f"'{text}' matches no tool"))
    return ToolFindings(tuple(errors), tuple(warnings))


def _may_belong_to(text: str, unlisted: Mapping[str, str]) -> Iterator[str]:
    fixed, star, _ = glob_of(text).partition("*")
    for prefix, server in unlisted.items():
        if fixed.startswith(prefix) or (star and prefix.startswith(fixed)):
            yield server


def _suggestion(text: str, known: Collection[str]) -> str:
    similar = get_close_matches(glob_of(text), known, n=1)
    return (
        f"did you mean '{similar[0]}'?" if similar else "a pattern such as context7_* may name tools to come"
    )


def _problem(agent: Agent, message: str, hint: str | None = None) -> Problem:
    return Problem(message, agent.file, agent.line, f"{agent.name}.tools", hint)
