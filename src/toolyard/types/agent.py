"""Agent definition: a name, a prompt and patterns for its tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Agent"]


@dataclass(frozen=True, slots=True)
class Agent:
    """Validated definition of one agent from an AGENTS.md file."""

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
