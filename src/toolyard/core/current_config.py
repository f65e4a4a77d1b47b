"""The configuration and the agents in use, and the servers of the configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from toolyard.agents.definitions.watch import LoadedAgents
from toolyard.clients import ConnectionManager
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.concurrency.tasks import BackgroundTasks
from toolyard.config.settings.table import PeopleMode, Settings
from toolyard.core.audit import AuditRecorder
from toolyard.core.server_updates import ServerUpdates
from toolyard.registry.errors import NotFound
from toolyard.types.account import LOCAL_PRINCIPAL, Principal, RequestUser
from toolyard.types.agent import Agent
from toolyard.types.server import Configuration

__all__ = ["ChangeNotifier", "ConfiguredServers", "CurrentConfig"]

_CONNECT_WAIT_SECONDS = 10.0
"""Maximum time that a restart request waits for the server to connect, in seconds."""


class CurrentConfig:
    """The configuration and the agents in use, with the problems of later edits that were not applied."""

    def __init__(self, configuration: Configuration, loaded_agents: LoadedAgents, data_dir: Path) -> None:
        self.configuration = configuration
        self.data_dir = data_dir
        self.problem: str | None = None
        """Error message of the last configuration edit, or None if it was applied."""
        self.loaded_agents = loaded_agents
        """The agents in use, with the problems of the current file."""
        self.agents: Mapping[str, Agent] = {agent.id: agent for agent in loaded_agents.agents}
        """The agents in use, by id."""
        self.revision = 0
        """Incremented when the configuration or the agents change. Part of cache keys."""

    def set_configuration(self, configuration: Configuration) -> None:
        """Use another configuration from now on."""
        self.configuration = configuration
        self.revision += 1

    def set_agents(self, loaded: LoadedAgents) -> bool:
        """Use newly loaded agents, and the problems of their file; return True if the agents differ."""
        is_changed = loaded.agents != tuple(self.agents.values())
        self.loaded_agents = loaded
        if is_changed:
            self.agents = {agent.id: agent for agent in loaded.agents}
            self.revision += 1
        return is_changed


class ChangeNotifier:
    """Forwards changes of servers and tools to the gateway, which notifies its clients."""

    def __init__(self) -> None:
        self.on_servers_changed: Callable[[Principal | None, Collection[str]], None] = _ignore
        """Called with the principal, None for everyone, and the ids of the changed servers."""
        self.on_tools_changed: Callable[[], None] = _ignore

    def notify_servers_changed(self, principal: Principal | None, server_ids: Collection[str]) -> None:
        """Report changed servers of a principal (None: of everyone)."""
        self.on_servers_changed(principal, server_ids)

    def notify_tools_changed(self) -> None:
        """Report that the tools of any caller may have changed."""
        self.on_tools_changed()


def _ignore(*_: object) -> None:
    """Stand in for an interface that has no clients to notify."""


class ConfiguredServers:
    """Connects and restarts the servers of the configuration, and applies changes of it."""

    def __init__(
        self,
        config: CurrentConfig,
        settings: Settings,
        manager: ConnectionManager,
        tool_directory: ToolDirectory,
        updates: ServerUpdates,
        notifier: ChangeNotifier,
        audit: AuditRecorder,
        tasks: BackgroundTasks,
    ) -> None:
        self._config = config
        self._settings = settings
        self._manager = manager
        self._tool_directory = tool_directory
        self._updates = updates
        self._notifier = notifier
        self._audit = audit
        self._tasks = tasks

    async def connect_shared(self, server_ids: Iterable[str] | None = None) -> None:
        """Connect the servers whose connection all users share, and list their tools."""
        alone = self._settings.people_mode is PeopleMode.NONE
        servers = self._config.configuration.servers
        shared_ids = [
            id_
            for id_ in (servers if server_ids is None else server_ids)
            if id_ in servers and servers[id_].enabled and (alone or servers[id_].shared)
        ]
        if shared_ids:
            # One attempt for each: a listing connects, and its failure is logged and known afterwards.
            await self._tool_directory.refresh(LOCAL_PRINCIPAL, only=shared_ids, fresh=True)

    def connect_shared_in_background(self, server_ids: Iterable[str] | None = None) -> asyncio.Task[None]:
        """Connect shared servers in a task of its own."""
        return self._tasks.spawn(self.connect_shared(server_ids))

    async def restart(self, request_user: RequestUser, server_id: str) -> None:
        """Close all connections of a configured server and forget its failure.

        A shared server is connected again; returns after at most _CONNECT_WAIT_SECONDS. Raises NotFound.
        """
        if server_id not in self._config.configuration.servers:
            hint = "GET /api/v1/status lists the servers"
            raise NotFound(f"server '{server_id}' is not configured", hint=hint)
        await self._manager.restart(server_id)
        await self._audit.record_change(request_user, "server.restart", server_id)
        # Unlike wait_for, this does not cancel the task after the timeout: it goes on in the background.
        await asyncio.wait([self.connect_shared_in_background([server_id])], timeout=_CONNECT_WAIT_SECONDS)

    async def apply_configuration(self, configuration: Configuration) -> None:
        """Apply a changed configuration. Servers with an unchanged entry stay connected."""
        self._config.set_configuration(configuration)
        touched = await self._updates.update_configuration(configuration)
        self._notifier.notify_servers_changed(None, touched)
        if self._settings.warm:
            self.connect_shared_in_background(touched)
