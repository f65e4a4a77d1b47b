"""AGENTS.md while Toolyard runs: what it says now, and what stays in force where that cannot be used."""

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
"""Seconds for which a file that changed must stay the same."""
_MAX_SETTLE_CHECKS = 20


@dataclass(frozen=True, slots=True)
class LoadedAgents:
    """The agents in force. ``problems`` says, each with its line, why the file as it is now is not."""

    path: Path
    """Where the file stands, or would."""
    agents: tuple[Agent, ...] = ()
    hints: tuple[Problem, ...] = ()
    problems: tuple[Problem, ...] = ()

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


def load_agents(
    configured_path: Path | None, data_dir: Path, previous: LoadedAgents | None = None
) -> LoadedAgents:
    """What the file says: that of the setting, else the one in the data directory, which may be missing.

    Where it cannot be used, the agents that were in force stay; at the start there are none. Never raises.
    """
    path = configured_path or data_dir / "AGENTS.md"
    last = previous or LoadedAgents(path)
    try:
        if configured_path is None and not path.exists():
            if not last.agents:
                return LoadedAgents(path)
            # An editor may remove the file for a moment; chats do not lose their agents for that.
            message = "the file is gone; its last content stays in force"
            problem = Problem(message, file=str(path), hint="put it back, or restart Toolyard")
            return replace(last, problems=(problem,))
        found = read_agents(path)
    except AgentsError as error:
        return replace(last, problems=tuple(error.problems))
    except OSError as error:
        return replace(last, problems=(Problem(f"cannot be read: {error}", file=str(path)),))
    return LoadedAgents(path, found.agents, found.hints)


async def watch_agents(
    current: LoadedAgents, configured_path: Path | None, data_dir: Path
) -> AsyncGenerator[LoadedAgents, None]:
    """Yield every change after ``current``, good or not. Ends by cancelling the task that iterates."""
    async with aclosing(watch_file(current.path)) as ticks:
        async for _ in ticks:
            fresh = await asyncio.to_thread(load_agents, configured_path, data_dir, current)
            if fresh != current:
                fresh = await _wait_until_stable(fresh, configured_path, data_dir, current)
            if fresh != current:
                current = fresh
                yield current


async def _wait_until_stable(
    found: LoadedAgents, configured_path: Path | None, data_dir: Path, previous: LoadedAgents
) -> LoadedAgents:
    """What the file says once nobody writes it any more: many editors empty a file before they fill it."""
    for _ in range(_MAX_SETTLE_CHECKS):
        await asyncio.sleep(_SETTLE_SECONDS)
        again = await asyncio.to_thread(load_agents, configured_path, data_dir, previous)
        if again == found:
            break
        found = again
    return found
