"""Agents that people may use: those of AGENTS.md, their own ones and the shared ones of the database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from toolyard.agents.definitions.agents_md import agent_id, find_agent
from toolyard.errors import AgentsError, Problem
from toolyard.store.lazy_database import LazyDatabase
from toolyard.types.account import LOCAL_PRINCIPAL
from toolyard.types.agent import Agent, StoredAgent

# The command line must not load the database library for an agent of AGENTS.md.
if TYPE_CHECKING:
    from pathlib import Path

    from toolyard.config.settings.table import Settings
    from toolyard.core.current_config import CurrentConfig
    from toolyard.store.repositories.agents import SqlAgentStorage

__all__ = [
    "AgentRoster",
    "add_all_stored_agents",
    "add_stored_agents",
    "find_overriding",
    "merge_agents",
    "unknown_agent_error",
]


class AgentRoster:
    """Finds agents by id or name. Reads the database every time, so that a change applies at once."""

    def __init__(self, config: CurrentConfig, storage: SqlAgentStorage) -> None:
        self._config = config
        self.storage = storage

    async def list_agents(self, user_id: str) -> Sequence[Agent]:
        """Return the agents that a user may use: those of AGENTS.md in file order, then stored ones by
        name."""
        stored = await self.storage.list_agents(user_id)
        return list(merge_agents(self._config.agents, stored).values())

    async def list_names(self, ids: Iterable[str], user_id: str | None) -> Mapping[str, str]:
        """Return the names of agents by id: of those that a user may use, or with None of everybody's."""
        names = dict(await self.storage.list_names(ids, user_id))
        return names | {each.id: each.name for each in self._config.agents.values()}

    async def find(self, user_id: str, name: str) -> Agent:
        """Return the agent with this id or name. Raises AgentsError, also for another user's agent."""
        agents = self._config.agents
        found = find_agent(agents, name)
        if found is not None:
            return found
        stored = await self.storage.find(user_id, agent_id(name))
        if stored is None:
            raise unknown_agent_error(name, await self.list_agents(user_id))
        return stored.agent


def merge_agents(file_agents: Mapping[str, Agent], stored: Iterable[StoredAgent]) -> dict[str, Agent]:
    """Return the agents in use by id. AGENTS.md wins over stored agents, one's own over shared ones."""
    merged = dict(file_agents)
    for each in sorted(stored, key=lambda each: each.owner is None):
        merged.setdefault(each.agent.id, each.agent)
    return merged


def find_overriding(
    file_agents: Mapping[str, Agent], stored: Iterable[StoredAgent]
) -> dict[str, Agent | StoredAgent]:
    """Return the agent that is used in place of a stored one of the same id, by the id of the latter."""
    found: dict[str, Agent | StoredAgent] = {}
    own: dict[str, StoredAgent] = {}
    for each in sorted(stored, key=lambda each: each.owner is None):
        slug = each.agent.id
        if slug in file_agents:
            found[each.id] = file_agents[slug]
        elif slug in own:
            found[each.id] = own[slug]
        own.setdefault(slug, each)
    return found


async def add_stored_agents(
    file_agents: Mapping[str, Agent], name: str | None, settings: Settings, data_dir: Path
) -> Mapping[str, Agent]:
    """Return the agents of AGENTS.md, and the stored ones of the local user if ``name`` is not among them.

    Opens the database only then, and if there is one. Raises StoreError.
    """
    if name is None or {name, agent_id(name)} & file_agents.keys():
        return file_agents
    return await add_all_stored_agents(file_agents, settings, data_dir)


async def add_all_stored_agents(
    file_agents: Mapping[str, Agent], settings: Settings, data_dir: Path
) -> Mapping[str, Agent]:
    """Return the agents of AGENTS.md, and the stored ones of the local user. Raises StoreError."""
    database = LazyDatabase(settings, data_dir)
    try:
        opened = await database.open_if_exists()
        stored = () if opened is None else await opened.agents.list_agents(LOCAL_PRINCIPAL.id)
    finally:
        await database.close()
    return merge_agents(file_agents, stored)


def unknown_agent_error(name: str, available: Iterable[Agent]) -> AgentsError:
    """Return the error for an agent that does not exist for a user, with the agents that do."""
    there = ", ".join(each.id for each in available) or "none"
    return AgentsError([Problem(f"unknown agent '{name}'", path="agent", hint=f"available agents: {there}")])
