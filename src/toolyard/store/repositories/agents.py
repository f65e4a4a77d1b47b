"""Storage of the agents that people create in the web app."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, cast

import orjson
from sqlalchemy import Connection, delete, select, update

from toolyard.errors import Taken
from toolyard.store.change_feed.signals import AGENTS_CHANNEL, Signals
from toolyard.store.repositories.rows import require_below_limit
from toolyard.store.sql.dialects import insert_if_absent, raise_if_violated
from toolyard.store.sql.executor import DatabaseExecutor, Repository, transaction
from toolyard.store.sql.stored_values import fold_case, json_text
from toolyard.store.sql.tables import agents, chats
from toolyard.types.agent import Agent, StoredAgent

__all__ = ["SqlAgentStorage"]

_SHARED_OWNER = ""
"""Value of the column ``owner`` of shared agents. No user has an empty id."""
_DEFINITION_FIELDS = frozenset(each.name for each in fields(Agent)) - {"id", "file", "line"}


class SqlAgentStorage(Repository):
    """Agents in a table, shared by all replicas, which are notified of every change."""

    def __init__(self, executor: DatabaseExecutor, signals: Signals) -> None:
        super().__init__(executor)
        self._signals = signals

    async def list_agents(self, user_id: str) -> Sequence[StoredAgent]:
        """Return the agents of a user and the shared ones, sorted by name."""
        found = await self._read(agents.c.owner.in_([user_id, _SHARED_OWNER]))
        return sorted(found, key=lambda each: (fold_case(each.agent.name), each.id))

    async def list_names(self, slugs: Iterable[str], user_id: str | None = None) -> Mapping[str, str]:
        """Return the names of agents by id: of those that a user may use, or of everybody's."""
        condition = agents.c.slug.in_(list(slugs))
        if user_id is not None:
            condition &= agents.c.owner.in_([user_id, _SHARED_OWNER])
        found = await self._read(condition)
        # A user's own agent is used in place of a shared one.
        return {each.agent.id: each.agent.name for each in sorted(found, key=lambda each: each.owner or "")}

    async def find(self, user_id: str, slug: str) -> StoredAgent | None:
        """Return the agent of this id that a user may use: their own one, else the shared one."""
        found = await self._read(agents.c.owner.in_([user_id, _SHARED_OWNER]) & (agents.c.slug == slug))
        return max(found, key=lambda each: each.owner is not None, default=None)

    async def get(self, user_id: str, stored_id: str) -> StoredAgent | None:
        """Return an agent of the user, or a shared one; None if it belongs to another user."""
        found = await self._read(agents.c.owner.in_([user_id, _SHARED_OWNER]) & (agents.c.id == stored_id))
        return next(iter(found), None)

    @transaction
    def add(self, connection: Connection, *added: StoredAgent, max_per_owner: int = 0) -> None:
        """Add all agents or none.

        Raises Taken if an owner has an agent of the same id, and LimitReached if an owner would have more
        than ``max_per_owner`` agents; 0 means no limit.
        """
        for stored in added:
            _require_room(connection, stored, max_per_owner)
            if not insert_if_absent(connection, agents, {"id": stored.id, **_to_row(stored)}):
                raise _taken_error(stored)
            self._signals.notify(connection, AGENTS_CHANNEL, stored.id)

    @transaction
    def save(
        self,
        connection: Connection,
        old: StoredAgent,
        new: StoredAgent,
        *,
        moves_chats: bool,
        max_per_owner: int = 0,
    ) -> bool:
        """Replace an agent; return False if it no longer is as in ``old``.

        With ``moves_chats``, the chats that use it follow it to its new id. Raises Taken, and LimitReached
        if a new owner has no room.
        """
        if old.owner != new.owner:
            _require_room(connection, new, max_per_owner)
        is_same_version = (agents.c.id == old.id) & (agents.c.version == old.version)
        with raise_if_violated("unique", _taken_error(new)):
            changed = connection.execute(update(agents).where(is_same_version).values(_to_row(new)))
        if changed.rowcount and moves_chats and old.agent.id != new.agent.id:
            _move_chats(connection, old, new.agent.id)
        self._signals.notify(connection, AGENTS_CHANNEL, old.id)
        return changed.rowcount > 0

    async def delete(self, stored: StoredAgent) -> bool:
        """Delete an agent; return False if it does not exist."""
        statement = delete(agents).where(agents.c.id == stored.id)
        return await self._signals.execute(statement, AGENTS_CHANNEL, stored.id) > 0

    async def read_versions(self) -> frozenset[tuple[str, int]]:
        """Return the id and version of every agent, which differ after every change. Raises StoreError."""
        query = select(agents.c.id, agents.c.version)
        return frozenset(await self._executor.fetch_all(query, lambda row: (row.id, row.version)))

    async def _read(self, condition: Any) -> list[StoredAgent]:
        return await self._executor.fetch_all(select(agents).where(condition), _from_row)


def _require_room(connection: Connection, stored: StoredAgent, max_per_owner: int) -> None:
    is_owned = agents.c.owner == (stored.owner or _SHARED_OWNER)
    noun = "shared agent" if stored.owner is None else "agent"
    require_below_limit(connection, is_owned, max_per_owner, noun, "agent_limit")


def _move_chats(connection: Connection, old: StoredAgent, new_slug: str) -> None:
    """Make the chats that use an agent refer to its new id."""
    if old.owner is not None:
        is_users = chats.c.owner == old.owner
    else:
        # The chats of people with an agent of the same id use that one.
        is_own = (agents.c.slug == old.agent.id) & (agents.c.owner != _SHARED_OWNER)
        is_users = chats.c.owner.not_in(select(agents.c.owner).where(is_own))
    connection.execute(update(chats).where(is_users, chats.c.agent == old.agent.id).values(agent=new_slug))


def _to_row(stored: StoredAgent) -> dict[str, Any]:
    definition = {name: each for name, each in asdict(stored.agent).items() if name in _DEFINITION_FIELDS}
    return {
        "owner": stored.owner or _SHARED_OWNER,
        "slug": stored.agent.id,
        "definition": json_text(definition),
        "version": stored.version,
        "updated_at": stored.updated_at,
    }


def _from_row(row: Any) -> StoredAgent:
    definition: dict[str, Any] = orjson.loads(row.definition)
    # A later version may have stored further keys.
    values: dict[str, Any] = {
        name: tuple(cast("list[Any]", value)) if isinstance(value, list) else value
        for name, value in definition.items()
        if name in _DEFINITION_FIELDS
    }
    agent = Agent(row.slug, **values)
    return StoredAgent(row.id, row.owner or None, agent, row.version, row.updated_at)


def _taken_error(stored: StoredAgent) -> Taken:
    return Taken(
        f"an agent named '{stored.agent.name}' already exists", field="name", hint="choose another name"
    )
