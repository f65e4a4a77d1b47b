"""Agents that people may use: those of AGENTS.md, their own ones and the shared ones of the database. Changes
of stored agents, and who may make them.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from toolyard.accounts.errors import NotAllowed
from toolyard.agents.definitions.agents_md import agent_id, parse_agents
from toolyard.agents.definitions.validation import find_agent_problems, normalize_agent
from toolyard.agents.models.available_models import Models
from toolyard.agents.models.errors import NoSuchModel
from toolyard.core.audit import AuditRecorder
from toolyard.core.current_config import CurrentConfig
from toolyard.errors import AgentsError, Problem
from toolyard.registry.errors import Invalid, NotFound, Outdated, Taken
from toolyard.store.lazy_database import LazyDatabase
from toolyard.store.repositories.agents import SqlAgentStorage
from toolyard.types.account import LOCAL_PRINCIPAL, RequestUser
from toolyard.types.agent import Agent, StoredAgent

if TYPE_CHECKING:
    from pathlib import Path

    from toolyard.config.settings.table import Settings
    from toolyard.core.current_config import CurrentConfig
    from toolyard.store.repositories.agents import SqlAgentStorage

__all__ = [
    "AgentEditor",
    "AgentRoster",
    "add_all_stored_agents",
    "add_stored_agents",
    "describe_import_problem",
    "find_overriding",
    "merge_agents",
    "unknown_agent_error",
]

# The command line must not load the database library for an agent of AGENTS.md.


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
        found = agents.get(name) or agents.get(agent_id(name))
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


_MAX_NAME_CHARACTERS = 60
"""Characters of a name that a copy keeps, so that its own name is not too long."""


class AgentEditor:
    """Creates, changes, shares and deletes agents.

    A private agent belongs to its owner alone. A shared one may be used by everybody and changed by admins.
    """

    def __init__(
        self,
        storage: SqlAgentStorage,
        config: CurrentConfig,
        models: Models,
        audit: AuditRecorder,
        *,
        limit: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``limit`` is the maximum number of agents of one owner; 0: no limit."""
        self._storage = storage
        self._config = config
        self._models = models
        self._audit = audit
        self._limit = limit
        self._clock = clock

    async def get(self, user: RequestUser, stored_id: str) -> StoredAgent:
        """Return an agent that the user may see. Raises NotFound, also for another user's agent."""
        stored = await self._storage.get(user.user.id, stored_id)
        if stored is None:
            raise NotFound("agent not found", hint="it may have been deleted")
        return stored

    async def get_editable(self, user: RequestUser, stored_id: str) -> StoredAgent:
        """Return an agent that the user may change. Raises NotFound, or NotAllowed for a shared agent."""
        stored = await self.get(user, stored_id)
        if stored.owner is None:
            _require_admin(user)
        return stored

    async def create(self, user: RequestUser, draft: Agent, *, shared: bool = False) -> StoredAgent:
        """Create an agent. Raises Invalid, Taken, LimitReached, or NotAllowed to share."""
        agent = self._validate(draft, user)
        [stored] = await self._add(user, [agent], shared, "agent.create")
        return stored

    async def edit(
        self, user: RequestUser, stored_id: str, draft: Agent, *, version: int, shared: bool | None = None
    ) -> StoredAgent:
        """Replace an agent, and share it or not unless ``shared`` is None. Chats follow it to a new name.

        Raises the errors of ``create``, NotFound, and Outdated if it no longer has this version.
        """
        old = await self.get_editable(user, stored_id)
        owner = old.owner
        if shared is not None and shared != (old.owner is None):
            _require_admin(user)
            owner = None if shared else user.user.id
        # A model that went away must not keep people from changing the rest.
        agent = self._validate(draft, user if draft.model != old.agent.model else None)
        if agent.id != old.agent.id or owner != old.owner:
            await self._require_free_names(user, [agent], except_id=old.id)
        new = StoredAgent(old.id, owner, agent, version + 1, self._clock())
        is_overridden = old.agent.id in self._config.agents
        if not await self._storage.save(
            replace(old, version=version), new, moves_chats=not is_overridden, max_per_owner=self._limit
        ):
            raise Outdated(
                "the agent was changed in the meantime", hint="load the newer version, then change it again"
            )
        await self._record(user, "agent.edit", new)
        return new

    async def duplicate(self, user: RequestUser, agent: Agent) -> StoredAgent:
        """Create a private copy of an agent under a free name. Raises Invalid or LimitReached."""
        taken = {*self._config.agents, *(each.agent.id for each in await self._list(user))}
        base, number = f"{agent.name[:_MAX_NAME_CHARACTERS].rstrip()} copy", 1
        name = base
        while agent_id(name) in taken:
            number += 1
            name = f"{base} {number}"
        copy = self._validate(replace(agent, name=name))
        [stored] = await self._add(user, [copy], False, "agent.create")
        return stored

    async def import_agents(
        self, user: RequestUser, text: str, *, shared: bool = False
    ) -> tuple[list[StoredAgent], Sequence[Problem]]:
        """Create all agents of a text in the format of AGENTS.md. Models need not be available here.

        Return the agents, and notes about ignored parts of the text. Raises the errors of ``create``.
        """
        try:
            parsed = parse_agents(text)
        except AgentsError as error:
            raise Invalid(
                [replace(each, path="text", message=describe_import_problem(each)) for each in error.problems]
            ) from None
        if not parsed.agents:
            raise Invalid(
                [
                    Problem(
                        "has no agent",
                        path="text",
                        hint="begin each agent with a '## Name' heading and front matter between --- lines",
                    )
                ]
            )
        agents = [self._validate(each) for each in parsed.agents]
        return await self._add(user, agents, shared, "agent.import"), parsed.hints

    async def delete(self, user: RequestUser, stored_id: str) -> StoredAgent:
        """Delete an agent, and return it. Raises NotFound or NotAllowed."""
        stored = await self.get_editable(user, stored_id)
        if not await self._storage.delete(stored):
            raise NotFound("agent not found", hint="it may have been deleted")
        await self._record(user, "agent.delete", stored)
        return stored

    async def _add(
        self, user: RequestUser, agents: Sequence[Agent], shared: bool, action: str
    ) -> list[StoredAgent]:
        if shared:
            _require_admin(user)
        await self._require_free_names(user, agents)
        added: list[StoredAgent] = []
        for agent in agents:
            owner = None if shared else user.user.id
            stored = StoredAgent(f"ag_{secrets.token_hex(10)}", owner, agent, 1, self._clock())
            await self._storage.add(stored, max_per_owner=self._limit)
            await self._record(user, action, stored)
            added.append(stored)
        return added

    async def _list(self, user: RequestUser) -> Sequence[StoredAgent]:
        return await self._storage.list_agents(user.user.id)

    async def _require_free_names(
        self, user: RequestUser, agents: Sequence[Agent], except_id: str | None = None
    ) -> None:
        """Raise Taken for a name under which the user has an agent already: it would override or be
        overridden."""
        stored = {each.agent.id: each for each in await self._list(user) if each.id != except_id}
        for agent in agents:
            if agent.id in self._config.agents:
                raise _taken_error(f"AGENTS.md already has an agent named '{agent.name}'")
            if agent.id in stored:
                whose = "your own" if stored[agent.id].owner else "shared"
                raise _taken_error(f"an agent named '{agent.name}' already exists among {whose} agents")

    def _validate(self, draft: Agent, user: RequestUser | None = None) -> Agent:
        """Return the agent as it is stored. Checks its model, if ``user`` is given. Raises Invalid."""
        agent = normalize_agent(draft)
        problems = find_agent_problems(agent)
        if user is not None and agent.model is not None:
            try:
                self._models.pick(agent.model, user.user.principal)
            except NoSuchModel as error:
                problems.append(Problem(error.cause, path="model", hint=error.hint))
        if problems:
            raise Invalid(problems)
        return agent

    async def _record(self, user: RequestUser, action: str, stored: StoredAgent) -> None:
        await self._audit.record_change(
            user, action, stored.id, name=stored.agent.name, shared=stored.owner is None
        )


def _taken_error(message: str) -> Taken:
    return Taken(message, field="name", hint="choose another name")


def _require_admin(user: RequestUser) -> None:
    if not user.is_admin:
        raise NotAllowed("only admins can change shared agents", hint="use a private copy instead")


def describe_import_problem(problem: Problem) -> str:
    """Return a problem of an imported text with its line and key."""
    place = "" if problem.line is None else f"line {problem.line}: "
    return f"{place}{problem.path + ': ' if problem.path else ''}{problem.message}"
