"""Work in the background of the server: changes of its files, expired data, and libraries loaded early."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from contextlib import suppress

from toolyard.agents.chat.chats import ChatService
from toolyard.agents.definitions.agent_tools import find_tool_problems
from toolyard.agents.definitions.watch import LoadedAgents, watch_agents
from toolyard.agents.models.available_models import Models
from toolyard.agents.models.errors import ModelFailed
from toolyard.clients.call_path import CallPath
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.config.settings.table import Settings
from toolyard.config.watch import ConfigBroken, watch_config
from toolyard.core.current_config import ConfiguredServers, CurrentConfig
from toolyard.errors import ConfigError, ToolyardError
from toolyard.policy import select_bundles
from toolyard.store.errors import StoreError
from toolyard.store.expiry import ExpiredRowCleanup
from toolyard.types.account import LOCAL_PRINCIPAL
from toolyard.types.call import Caller, Surface
from toolyard.types.server import Configuration
from toolyard.web.ui.components.responses import preload_templates

__all__ = ["FileChanges", "delete_expired_periodically", "log_invalid_entries", "preload_libraries"]

log = logging.getLogger("toolyard.web")

_PRELOAD_DELAY_SECONDS = 1.0
_PRELOADED_LIBRARIES = ("aiohttp", "markdown_it", "nh3")
"""Libraries of frequent requests that are not loaded at the start."""
_FIRST_DELAY_SECONDS = (60.0, 600.0)
"""Range of the delay before the first cleanup, in seconds. Random, to spread replicas started together."""
_CLEANUP_INTERVAL_SECONDS = (4 * 3_600.0, 8 * 3_600.0)
"""Range of the interval between cleanups, in seconds."""


async def delete_expired_periodically(expiry: ExpiredRowCleanup, settings: Settings) -> None:
    """Delete expired data from time to time, until cancelled. Database errors are logged and retried."""
    pause = _FIRST_DELAY_SECONDS
    while True:
        await asyncio.sleep(random.uniform(*pause))
        pause = _CLEANUP_INTERVAL_SECONDS
        try:
            deleted_count = await expiry.delete_expired(settings.audit_days, settings.usage_days)
        except StoreError as error:
            log.warning("expired data could not be deleted: %s", error.cause)
            continue
        if deleted_count:
            log.info("deleted %d audit log entries older than the setting audit_days", deleted_count)


async def preload_libraries(models: Models, chats: ChatService) -> None:
    """Load slow libraries and templates in the background, soon after the first requests could be served."""
    await asyncio.sleep(_PRELOAD_DELAY_SECONDS)
    with suppress(ModelFailed):
        await models.loader.load_in_thread(*_PRELOADED_LIBRARIES)
    await asyncio.to_thread(preload_templates)
    await chats.preload()
    if models.default_for(LOCAL_PRINCIPAL) is not None:
        log.info("model clients are loaded")


class FileChanges:
    """Applies changes of the configuration file and of AGENTS.md, and logs what is wrong with them."""

    def __init__(
        self,
        config: CurrentConfig,
        settings: Settings,
        servers: ConfiguredServers,
        apply_agents: Callable[[LoadedAgents], None],
        tool_directory: ToolDirectory,
        call_path: CallPath,
    ) -> None:
        self._config = config
        self._settings = settings
        self._servers = servers
        self._use_agents = apply_agents
        self._tool_directory = tool_directory
        self._call_path = call_path

    def apply_agents(self, loaded: LoadedAgents) -> None:
        """Use the agents of AGENTS.md, and log what is wrong with the file."""
        self._use_agents(loaded)
        if loaded.problems:
            log.error(
                "AGENTS.md is not valid; these agents stay in use: %s\n%s",
                _format_agent_ids(loaded),
                loaded,
            )

    async def follow_configuration(self, path: str | None) -> None:
        """Apply changes of the configuration file. An invalid edit is logged and changes nothing."""
        config = self._config
        async for change in watch_config(config.configuration, path, data_dir=config.data_dir):
            if isinstance(change, ConfigBroken):
                config.problem = str(change.error)
                log.error("the changed configuration is not valid and was not applied:\n%s", change.error)
                continue
            config.problem = None
            log.info(
                "configuration changed: added %s; removed %s; changed %s",
                ", ".join(change.added) or "nothing",
                ", ".join(change.removed) or "nothing",
                ", ".join(change.changed) or "nothing",
            )
            log_invalid_entries(change.configuration, (*change.added, *change.changed))
            try:
                await self._servers.apply_configuration(change.configuration)
            except ToolyardError as error:
                log.error("the changed configuration was applied, with an error: %s", error)

    async def follow_agents(self, current: LoadedAgents) -> None:
        """Apply changes of AGENTS.md. An invalid edit is logged and changes no agent."""
        async for loaded in watch_agents(current, self._settings.agents_path, self._config.data_dir):
            self.apply_agents(loaded)
            if not loaded.problems:
                log.info("agents loaded: %s", _format_agent_ids(loaded))
                await self.log_agent_problems()

    async def log_agent_problems(self, connecting: asyncio.Task[None] | None = None) -> None:
        """Log what is wrong with the tools of the agents, once the servers are listed."""
        if connecting is not None:
            await asyncio.wait([connecting])
        # People's own instances are not known here.
        of_instances = {self._settings.instance_naming_template.partition("{")[0]: "an instance"}
        for agent in self._config.agents.values():
            with suppress(ConfigError):
                caller = Caller(
                    surface=Surface.MODEL_META,
                    agent=agent,
                    bundles=select_bundles(agent.bundles, self._config.configuration.bundles),
                    chat="",
                )
                problems = find_tool_problems(caller, self._tool_directory, self._call_path, of_instances)
                for problem in problems:
                    log.warning("%s", problem)


def log_invalid_entries(configuration: Configuration, server_ids: Iterable[str]) -> None:
    """Log what is wrong with these servers of the configuration."""
    for server_id in server_ids:
        for problem in configuration.servers[server_id].problems:
            log.error("the server '%s' cannot be used: %s", server_id, problem)


def _format_agent_ids(loaded: LoadedAgents) -> str:
    return ", ".join(agent.id for agent in loaded.agents) or "none"
