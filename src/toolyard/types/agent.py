"""An agent: a name, a prompt and the tools it may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Agent"]


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent of an AGENTS.md file, complete and validated."""

    id: str
    name: str
    description: str = ""
    prompt: str = ""
    model: str | None = None
    """None: the model that the settings name."""
    temperature: float | None = None
    tools: tuple[str, ...] | None = None
    """Patterns on exposed names, as written. None: all tools; empty: none."""
    bundles: tuple[str, ...] = ()
    """Ids of the bundles it selects. Empty: nothing is selected, servers are as they are."""
    mode: Literal["direct", "meta"] | None = None
    """None: meta where the definitions of its tools cost more than the settings allow."""
    max_steps: int | None = None
    """None: the limit that the settings name."""
    file: str | None = None
    line: int | None = None
