"""Changes of stored agents, and who may make them: apart from ``agents``, which loads no database library."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from toolyard.accounts.errors import NotAllowed
from toolyard.agents.definitions.agents_md import agent_id, parse_agents
from toolyard.agents.definitions.validation import find_agent_problems, normalize_agent
from toolyard.agents.models.available_models import Models
from toolyard.agents.models.errors import NoSuchModel
from toolyard.core.audit import AuditRecorder
from toolyard.core.current_config import CurrentConfig
from toolyard.errors import AgentsError, Problem
from toolyard.registry.errors import Invalid, NotFound, Outdated, Taken
from toolyard.store.repositories.agents import SqlAgentStorage
from toolyard.types.account import RequestUser
from toolyard.types.agent import Agent, StoredAgent

__all__ = ["AgentEditor", "describe_import_problem"]

_MAX_NAME_CHARACTERS = 60
"""Maximum characters of the original's name in the name of a copy."""
_MAX_IMPORT_CHARACTERS = 1_000_000
_MAX_REPORTED_PROBLEMS = 50
_MAX_PROBLEM_CHARACTERS = 500


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
        self._import_lock = asyncio.Lock()

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
                "the agent was changed since you loaded it", hint="reload it, then make your changes again"
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
        if len(text) > _MAX_IMPORT_CHARACTERS:
            message = f"has {len(text):,} characters; the maximum is {_MAX_IMPORT_CHARACTERS:,}"
            raise Invalid([Problem(message, path="text", hint="import fewer agents at once")])
        # One text at a time, because parsing a hostile one occupies a thread for seconds.
        async with self._import_lock:
            agents, notes = await asyncio.to_thread(self._parse, text)
        return await self._add(user, agents, shared, "agent.import"), notes

    def _parse(self, text: str) -> tuple[list[Agent], Sequence[Problem]]:
        """Return the agents of a text, and notes. Raises Invalid."""
        try:
            parsed = parse_agents(text)
        except AgentsError as error:
            problems = _shorten_problems(error.problems)
            raise Invalid(
                [replace(each, path="text", message=describe_import_problem(each)) for each in problems]
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
        return [self._validate(each) for each in parsed.agents], _shorten_problems(parsed.hints)

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
        owner = None if shared else user.user.id
        added = [
            StoredAgent(f"ag_{secrets.token_hex(10)}", owner, agent, 1, self._clock()) for agent in agents
        ]
        await self._storage.add(*added, max_per_owner=self._limit)
        for stored in added:
            await self._record(user, action, stored)
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
        raise NotAllowed("only admins can change shared agents", hint="make a private copy instead")


def _shorten_problems(problems: Sequence[Problem]) -> list[Problem]:
    """Return the first problems, with short texts: a text of one megabyte may have thousands of long ones."""
    return [
        replace(
            each, message=each.message[:_MAX_PROBLEM_CHARACTERS], path=each.path[:_MAX_PROBLEM_CHARACTERS]
        )
        for each in problems[:_MAX_REPORTED_PROBLEMS]
    ]


def describe_import_problem(problem: Problem) -> str:
    """Return a problem of an imported text with its line and key."""
    place = "" if problem.line is None else f"line {problem.line}: "
    return f"{place}{problem.path + ': ' if problem.path else ''}{problem.message}"
