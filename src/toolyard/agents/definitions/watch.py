"""Reload AGENTS.md while Toolyard runs; the last valid content stays in use if the file becomes invalid."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path

from toolyard.agents.definitions.agents_md import read_agents
from toolyard.config.watch import watch_file
from toolyard.errors import AgentsError, Problem
from toolyard.types.agent import Agent

__all__ = ["LoadedAgents", "load_agents", "watch_agents"]

_SETTLE_SECONDS = 0.05
"""Time for which a changed file must stay unchanged."""
_MAX_SETTLE_CHECKS = 20


@dataclass(frozen=True, slots=True)
class LoadedAgents:
    """The agents in use. ``problems`` lists, with lines, why the current file content is not used."""

    path: Path
    """Path of the file, even if it does not exist."""
    agents: tuple[Agent, ...] = ()
    hints: tuple[Problem, ...] = ()
    problems: tuple[Problem, ...] = ()

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


def load_agents(
    configured_path: Path | None, data_dir: Path, previous: LoadedAgents | None = None
) -> LoadedAgents:
    """Load the configured file, else the one in the data directory, which may be missing. Never raises.

    If it is invalid, the previous agents stay in use; at the start there are none.
    """
    path = configured_path or data_dir / "AGENTS.md"
    fallback = previous or LoadedAgents(path)
    try:
        if configured_path is None and not path.exists():
            if not fallback.agents:
                return LoadedAgents(path)
            # An editor may remove the file briefly while saving; chats must not lose their agents because of
            # that.
            message = "the file was removed; its last content stays in use"
            problem = Problem(message, file=str(path), hint="restore the file, or restart Toolyard")
            return replace(fallback, problems=(problem,))
        agents_file = read_agents(path)
    except AgentsError as error:
        return replace(fallback, problems=tuple(error.problems))
    except OSError as error:
        return replace(fallback, problems=(Problem(f"cannot be read: {error}", file=str(path)),))
    return LoadedAgents(path, agents_file.agents, agents_file.hints)


async def watch_agents(
    current: LoadedAgents, configured_path: Path | None, data_dir: Path
) -> AsyncGenerator[LoadedAgents, None]:
    """Yield every change after ``current``, valid or not. Cancel the iterating task to end it."""
    async with aclosing(watch_file(current.path)) as ticks:
        async for _ in ticks:
            reloaded = await asyncio.to_thread(load_agents, configured_path, data_dir, current)
            if reloaded != current:
                reloaded = await _wait_until_stable(reloaded, configured_path, data_dir, current)
            if reloaded != current:
                current = reloaded
                yield current


async def _wait_until_stable(
    latest: LoadedAgents, configured_path: Path | None, data_dir: Path, previous: LoadedAgents
) -> LoadedAgents:
    """Return the content once it no longer changes: many editors truncate a file before writing it."""
    for _ in range(_MAX_SETTLE_CHECKS):
        await asyncio.sleep(_SETTLE_SECONDS)
        reloaded = await asyncio.to_thread(load_agents, configured_path, data_dir, previous)
        if reloaded == latest:
            break
        latest = reloaded
    return latest
