"""The AGENTS.md of this command line."""

from __future__ import annotations

from pathlib import Path

from toolyard.agents.agentsfile import AgentsFile, parse_agents
from toolyard.config.settings import Settings
from toolyard.errors import AgentsError, Problem

__all__ = ["agents_path", "read_agents"]


def agents_path(settings: Settings, folder: Path) -> Path | None:
    """Where it stands: where the setting says, else in the data directory, where it may be missing."""
    own = folder / "AGENTS.md"
    return settings.agents_path or (own if own.is_file() else None)


def read_agents(path: Path) -> AgentsFile:
    """The agents in it. Raises AgentsError."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AgentsError([Problem(f"cannot be read: {error}", str(path))]) from None
    return parse_agents(text, str(path))
