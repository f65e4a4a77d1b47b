"""Check agents that people enter or import, and bring their texts into the form in which they are stored."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from toolyard.agents.chat.storable_values import sanitize_text
from toolyard.agents.definitions.agents_md import agent_id
from toolyard.agents.definitions.front_matter import MAX_STEPS, MAX_TEMPERATURE
from toolyard.agents.definitions.sections import normalize_prompt
from toolyard.errors import Problem
from toolyard.policy.glob import MAX_STARS
from toolyard.types.agent import Agent

__all__ = ["MAX_STARTERS", "find_agent_problems", "find_tool_problems", "normalize_agent"]

_MAX_NAME_CHARACTERS = 80
_MAX_DESCRIPTION_CHARACTERS = 1_000
_MAX_PROMPT_CHARACTERS = 100_000
_MAX_MODEL_CHARACTERS = 200
_MAX_TOOLS = 2_000
_MAX_PATTERN_CHARACTERS = 300
_MAX_STARRED_PATTERNS = 100
_MAX_ALTERNATIONS = 100
"""Maximum number of changes between patterns with and without ``!``, of which each makes a matcher."""
_MAX_BUNDLES = 100
MAX_STARTERS = 10
_MAX_STARTER_CHARACTERS = 2_000


def normalize_agent(draft: Agent) -> Agent:
    """Return the agent as it reads back from AGENTS.md, with the id that follows from its name."""
    name = " ".join(sanitize_text(draft.name).split())
    return replace(
        draft,
        # A longer name is refused; one of a whole request would take long.
        id=agent_id(name[:_MAX_NAME_CHARACTERS]),
        name=name,
        description=_normalize_text(draft.description),
        prompt=normalize_prompt(sanitize_text(draft.prompt)),
        model=_normalize_text(draft.model or "") or None,
        tools=None if draft.tools is None else tuple(map(sanitize_text, draft.tools)),
        bundles=tuple(text for each in draft.bundles if (text := _normalize_text(each))),
        starters=tuple(text for each in draft.starters if (text := _normalize_text(each))),
        file=None,
        line=None,
    )


def find_agent_problems(agent: Agent) -> list[Problem]:
    """Return the reasons why a normalized agent cannot be stored. Each names its field in ``path``."""
    return [*_check_lengths(agent), *find_tool_problems(agent.tools or ()), *_check_numbers(agent)]


def find_tool_problems(patterns: Sequence[str]) -> list[Problem]:
    """Return the reasons why a list of tools cannot be stored, and must not be compiled."""
    if len(patterns) > _MAX_TOOLS:
        return [Problem(f"has {len(patterns):,} entries; the maximum is {_MAX_TOOLS:,}", path="tools")]
    for at, text in enumerate(patterns):
        if not text.removeprefix("!") or re.search(r"\s", text) or len(text) > _MAX_PATTERN_CHARACTERS:
            hint = f"use up to {_MAX_PATTERN_CHARACTERS} characters without spaces, such as github_*"
            message = f"'{text:.60}' is not a valid tool name or pattern"
            return [Problem(message, path=f"tools[{at}]", hint=hint)]
        if text.count("*") > MAX_STARS:
            message = f"'{text:.60}' has more than {MAX_STARS} stars"
            return [Problem(message, path=f"tools[{at}]", hint="use fewer stars, such as github_*")]
    starred = sum("*" in text for text in patterns)
    if starred > _MAX_STARRED_PATTERNS:
        message = f"has {starred:,} patterns with a star; the maximum is {_MAX_STARRED_PATTERNS}"
        return [Problem(message, path="tools", hint="use fewer patterns, or names of tools")]
    alternations = sum(one.startswith("!") != other.startswith("!") for one, other in pairwise(patterns))
    if alternations > _MAX_ALTERNATIONS:
        message = f"changes {alternations:,} times between entries with and without an exclamation mark"
        return [Problem(message, path="tools", hint="put the entries with ! at the end")]
    return []


def _normalize_text(text: str) -> str:
    return sanitize_text(text).replace("\r\n", "\n").replace("\r", "\n").strip()


def _check_lengths(agent: Agent) -> Iterator[Problem]:
    if not agent.name:
        yield Problem("is required", path="name")
    elif not agent.id:
        yield Problem("must contain a letter or a digit", path="name")
    for field, text, limit in (
        ("name", agent.name, _MAX_NAME_CHARACTERS),
        ("description", agent.description, _MAX_DESCRIPTION_CHARACTERS),
        ("prompt", agent.prompt, _MAX_PROMPT_CHARACTERS),
        ("model", agent.model or "", _MAX_MODEL_CHARACTERS),
        *((f"starters[{at}]", text, _MAX_STARTER_CHARACTERS) for at, text in enumerate(agent.starters)),
    ):
        if len(text) > limit:
            yield Problem(f"has {len(text):,} characters; the maximum is {limit:,}", path=field)
    for field, texts, most in (
        ("bundles", agent.bundles, _MAX_BUNDLES),
        ("starters", agent.starters, MAX_STARTERS),
    ):
        if len(texts) > most:
            yield Problem(f"has {len(texts):,} entries; the maximum is {most:,}", path=field)


def _check_numbers(agent: Agent) -> Iterator[Problem]:
    if agent.temperature is not None and not 0 <= agent.temperature <= MAX_TEMPERATURE:
        yield Problem(f"must be a number from 0 to {MAX_TEMPERATURE:g}", path="temperature")
    if agent.max_steps is not None and not 1 <= agent.max_steps <= MAX_STEPS:
        yield Problem(f"must be a whole number from 1 to {MAX_STEPS:,}", path="max_steps")
