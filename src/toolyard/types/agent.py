"""Agent definitions: a name, a prompt and patterns for the tools, from AGENTS.md or the database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Agent", "StoredAgent"]


@dataclass(frozen=True, slots=True)
class Agent:
    """Validated definition of one agent. ``file`` and ``line`` are those of an agent in AGENTS.md."""

    id: str
    name: str
    description: str = ""
    prompt: str = ""
    model: str | None = None
    """None: the default model from the settings."""
    temperature: float | None = None
    tools: tuple[str, ...] | None = None
    """Patterns over exposed names, as written. None: all tools; empty: none."""
    bundles: tuple[str, ...] = ()
    """Ids of the selected bundles. Empty: no bundle restricts the servers."""
    mode: Literal["direct", "meta"] | None = None
    """None: meta mode if the tool definitions exceed the token budget in the settings, else direct."""
    max_steps: int | None = None
    """None: the limit from the settings."""
    file: str | None = None
    line: int | None = None
    starters: tuple[str, ...] = ()
    """Messages that an empty chat with the agent offers."""


@dataclass(frozen=True, slots=True)
class StoredAgent:
    """An agent that a person created in the web app."""

    id: str
    """Contains an underscore, and so differs from the id of every ``Agent``."""
    owner: str | None
    """User id of its owner; None if it is shared with everybody."""
    agent: Agent
    version: int
    """Incremented by every change."""
    updated_at: float
