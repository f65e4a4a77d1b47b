"""AGENTS.md while Toolyard runs: what it says now, and what stays in force where that cannot be used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path

from toolyard.agents.definitions.agents_md import read_agents
from toolyard.config.watch import stirs
from toolyard.errors import AgentsError, Problem
from toolyard.types.agent import Agent

__all__ = ["AgentsNow", "follow_agents", "read_now"]

_QUIET = 0.05
"""Seconds for which a file that changed must stay the same."""
_LOOKS = 20


@dataclass(frozen=True, slots=True)
class AgentsNow:
    """The agents in force. ``problems`` says, each with its line, why the file as it is now is not."""

    path: Path
    """Where the file stands, or would."""
    agents: tuple[Agent, ...] = ()
    hints: tuple[Problem, ...] = ()
    problems: tuple[Problem, ...] = ()

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


def read_now(chosen: Path | None, data_dir: Path, before: AgentsNow | None = None) -> AgentsNow:
    """What the file says: that of the setting, else the one in the data directory, which may be missing.

    Where it cannot be used, the agents that were in force stay; at the start there are none. Never raises.
    """
    path = chosen or data_dir / "AGENTS.md"
    last = before or AgentsNow(path)
    try:
        if chosen is None and not path.exists():
            if not last.agents:
                return AgentsNow(path)
            # An editor may remove the file for a moment; chats do not lose their agents for that.
            message = "the file is gone; its last content stays in force"
            problem = Problem(message, file=str(path), hint="put it back, or restart Toolyard")
            return replace(last, problems=(problem,))
        found = read_agents(path)
    except AgentsError as error:
        return replace(last, problems=tuple(error.problems))
    except OSError as error:
        return replace(last, problems=(Problem(f"cannot be read: {error}", file=str(path)),))
    return AgentsNow(path, found.agents, found.hints)


async def follow_agents(
    current: AgentsNow, chosen: Path | None, data_dir: Path
) -> AsyncGenerator[AgentsNow, None]:
    """Yield every change after ``current``, good or not. Ends by cancelling the task that iterates."""
    async with aclosing(stirs(current.path)) as ticks:
        async for _ in ticks:
            fresh = await asyncio.to_thread(read_now, chosen, data_dir, current)
            if fresh != current:
                fresh = await _settled(fresh, chosen, data_dir, current)
            if fresh != current:
                current = fresh
                yield current


async def _settled(found: AgentsNow, chosen: Path | None, data_dir: Path, before: AgentsNow) -> AgentsNow:
    """What the file says once nobody writes it any more: many editors empty a file before they fill it."""
    for _ in range(_LOOKS):
        await asyncio.sleep(_QUIET)
        again = await asyncio.to_thread(read_now, chosen, data_dir, before)
        if again == found:
            break
        found = again
    return found
