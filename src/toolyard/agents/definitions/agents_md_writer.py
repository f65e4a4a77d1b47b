"""Write an agent in the format that ``agents_md`` parses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from toolyard.types.agent import Agent

__all__ = ["format_agent"]

_ESCAPED_PATTERN = re.compile(r'["\\\x00-\x1f\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff]')
"""Characters that YAML does not allow in a quoted text, or that would end one."""


def format_agent(agent: Agent) -> str:
    """Return a file with one agent, which reads back equal.

    The name is in the front matter, so that the prompt may contain anything: the headings of other agents,
    and code blocks that are never closed.
    """
    return "\n".join(["---", *_format_keys(agent), "---", "", agent.prompt, ""])


def _format_keys(agent: Agent) -> Iterator[str]:
    yield f"name: {_quote(agent.name)}"
    if agent.description:
        yield f"description: {_quote(agent.description)}"
    if agent.model is not None:
        yield f"model: {_quote(agent.model)}"
    if agent.temperature is not None:
        yield f"temperature: {agent.temperature!r}"
    if agent.tools is not None:
        # The list of tools has a reader of its own, in which a backslash stands before any character.
        yield from _format_list("tools", [re.sub(r'(["\\])', r"\\\1", each) for each in agent.tools])
    if agent.bundles:
        yield from _format_list("bundles", [_escape(each) for each in agent.bundles])
    if agent.mode is not None:
        yield f"mode: {agent.mode}"
    if agent.max_steps is not None:
        yield f"max_steps: {agent.max_steps}"
    if agent.starters:
        yield from _format_list("starters", [_escape(each) for each in agent.starters])


def _format_list(key: str, escaped_texts: Sequence[str]) -> list[str]:
    if not escaped_texts:
        return [f"{key}: []"]
    return [f"{key}:", *(f'  - "{each}"' for each in escaped_texts)]


def _quote(text: str) -> str:
    return f'"{_escape(text)}"'


def _escape(text: str) -> str:
    return _ESCAPED_PATTERN.sub(_escape_character, text)


def _escape_character(match: re.Match[str]) -> str:
    character = match[0]
    if character in '"\\':
        return f"\\{character}"
    return "\\n" if character == "\n" else f"\\u{ord(character):04x}"
