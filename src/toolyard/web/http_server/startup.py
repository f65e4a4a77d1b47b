"""Start-up of the server: opens the services, serves requests, and closes everything on any exit."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from starlette.types import ASGIApp

from toolyard.accounts.startup import create_first_admin_link
from toolyard.agents.definitions.agent_tools import find_tool_problems
from toolyard.agents.definitions.watch import LoadedAgents, load_agents, watch_agents
from toolyard.agents.models.errors import ModelFailed
from toolyard.clients.process_pool import ProcessPool
from toolyard.config.file_io import remove_stale_temporary_files
from toolyard.config.settings.table import Settings
from toolyard.config.watch import ConfigBroken, watch_config
from toolyard.core.services import Services
from toolyard.errors import ConfigError, ToolyardError
from toolyard.policy import select_bundles
from toolyard.store import Database
from toolyard.store.errors import StoreError
from toolyard.types.account import LOCAL_PRINCIPAL
from toolyard.types.audit import AuditEntry
from toolyard.types.call import Caller, Surface
from toolyard.types.server import Configuration
from toolyard.web.app import make_app
from toolyard.web.http_server.connection_limits import create_connection_limits, raise_descriptor_limit
from toolyard.web.http_server.run import run_server
from toolyard.web.http_server.socket import Listener
from toolyard.web.public_urls import PublicUrls
from toolyard.web.ui.components.responses import preload_templates

__all__ = ["ServeOptions", "delete_expired_periodically", "serve"]

log = logging.getLogger("toolyard.web")

_PRELOAD_DELAY_SECONDS = 1.0
_PRELOADED_LIBRARIES = ("aiohttp", "markdown_it", "nh3")
"""Libraries of frequent requests that are not loaded at the start."""
_FIRST_DELAY_SECONDS = (60.0, 600.0)
"""Range of the delay before the first cleanup, in seconds. Random, to spread replicas started together."""
_CLEANUP_INTERVAL_SECONDS = (4 * 3_600.0, 8 * 3_600.0)
"""Range of the interval between cleanups, in seconds."""


async def delete_expired_periodically(services: Services) -> None:
    """Delete expired data from time to time, until cancelled. Database errors are logged and retried."""
    pause = _FIRST_DELAY_SECONDS
    while True:
        await asyncio.sleep(random.uniform(*pause))
        pause = _CLEANUP_INTERVAL_SECONDS
        try:
            settings = services.settings
            deleted_count = await services.database.expiry.delete_expired(
                settings.audit_days, settings.usage_days
            )
        except StoreError as error:
            log.warning("expired data could not be deleted: %s", error.cause)
            continue
        if deleted_count:
            log.info("deleted %d audit log entries older than the setting audit_days", deleted_count)


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Configuration, settings and data directory to serve."""

    configuration: Configuration
    settings: Settings
    data_dir: Path
    config_path: str | None = None
    """Configuration file given explicitly, if any."""


async def serve(
    options: ServeOptions,
    listener: Listener,
    announce: Callable[[str | None], None],
    *,
    wrap_app: Callable[[ASGIApp], ASGIApp] = lambda app: app,
    handles_signals: bool = True,
    processes: ProcessPool | None = None,
    on_open: Callable[[Database, str], None] = lambda database, url: None,
) -> None:
    """Serve until a stop signal, or until cancelled.

    ``announce`` is called once requests are accepted, with an invitation link if no admin exists yet.
    ``processes`` are shared with others, who close them. ``on_open`` gets the database and the address.
    Raises ToolyardError if the server cannot start.
    """
    async with AsyncExitStack() as closing:
        closing.callback(listener.close)
        remove_stale_temporary_files(options.data_dir)
        agents = load_agents(options.settings.agents_path, options.data_dir)
        _log_invalid_entries(options.configuration, options.configuration.servers)
        services = await Services.open(
            options.configuration,
            options.settings,
            options.data_dir,
            agents,
            PublicUrls(options.settings).build_links(listener.address),
            processes,
        )
        closing.push_async_callback(services.close)
        _apply_agents(services, agents)
        public = options.settings.public_url or listener.address
        on_open(services.database, public.rstrip("/"))
        invitation = await create_first_admin_link(services.people, options.settings, public.rstrip("/"))
        if invitation is not None:
            await services.database.audit.write(
                AuditEntry(
                    at=time.time(), action="user.invite", actor="", actor_name="server start", target="admin"
                )
            )

        def start_background_work() -> None:
            announce(invitation)
            connecting = (
                services.configured_servers.connect_shared_in_background() if options.settings.warm else None
            )
            services.tasks.spawn(_log_agent_problems(services, connecting))
            services.tasks.spawn(_preload_libraries(services))
            services.tasks.spawn(delete_expired_periodically(services))
            services.tasks.spawn(_apply_config_changes(services, options.config_path))
            services.tasks.spawn(_apply_agent_changes(services, agents))

        # Must follow Services.open, which records the original limit for child processes.
        limits = create_connection_limits(options.settings, raise_descriptor_limit())
        await run_server(
            wrap_app(make_app(services)),
            listener,
            on_listening=start_background_work,
            on_stopping=services.stop,
            end_work=services.end_work,
            limits=limits,
            handles_signals=handles_signals,
        )


async def _preload_libraries(services: Services) -> None:
    """Load slow libraries and templates in the background, soon after the first requests could be served."""
    await asyncio.sleep(_PRELOAD_DELAY_SECONDS)
    with suppress(ModelFailed):
        await services.models.loader.load_in_thread(*_PRELOADED_LIBRARIES)
    await asyncio.to_thread(preload_templates)
    await services.chats.preload()
    if services.models.default_for(LOCAL_PRINCIPAL) is not None:
        log.info("model clients are loaded")


async def _apply_config_changes(services: Services, path: str | None) -> None:
    """Apply changes of the configuration file. An invalid edit is logged and changes nothing."""
    async for change in watch_config(services.config.configuration, path, data_dir=services.data_dir):
        if isinstance(change, ConfigBroken):
            services.config.problem = str(change.error)
            log.error("the changed configuration is not valid and was not applied:\n%s", change.error)
            continue
        services.config.problem = None
        log.info(
            "configuration changed: added %s; removed %s; changed %s",
            ", ".join(change.added) or "nothing",
            ", ".join(change.removed) or "nothing",
            ", ".join(change.changed) or "nothing",
        )
        _log_invalid_entries(change.configuration, (*change.added, *change.changed))
        try:
            await services.configured_servers.apply_configuration(change.configuration)
        except ToolyardError as error:
            log.error("the changed configuration was applied, with an error: %s", error)


def _log_invalid_entries(configuration: Configuration, server_ids: Iterable[str]) -> None:
    for server_id in server_ids:
        for problem in configuration.servers[server_id].problems:
            log.error("the server '%s' cannot be used: %s", server_id, problem)


async def _apply_agent_changes(services: Services, current: LoadedAgents) -> None:
    """Apply changes of AGENTS.md. An invalid edit is logged and changes no agent."""
    async for loaded in watch_agents(current, services.settings.agents_path, services.data_dir):
        _apply_agents(services, loaded)
        if not loaded.problems:
            log.info("agents loaded: %s", _format_agent_ids(loaded))
            await _log_agent_problems(services)


def _apply_agents(services: Services, loaded: LoadedAgents) -> None:
    services.apply_agents(loaded)
    if loaded.problems:
        log.error(
            "AGENTS.md is not valid; these agents stay in use: %s\n%s",
            _format_agent_ids(loaded),
            loaded,
        )


async def _log_agent_problems(services: Services, connecting: asyncio.Task[None] | None = None) -> None:
    """Log what is wrong with the tools of the agents, once the servers are listed."""
    if connecting is not None:
        await asyncio.wait([connecting])
    core, configuration = services.core, services.config.configuration
    # People's own instances are not known here.
    of_instances = {services.settings.instance_naming_template.partition("{")[0]: "an instance"}
    for agent in services.config.agents.values():
        with suppress(ConfigError):
            caller = Caller(
                surface=Surface.MODEL_META,
                agent=agent,
                bundles=select_bundles(agent.bundles, configuration.bundles),
                chat="",
            )
            for problem in find_tool_problems(caller, core.tool_directory, core.call_path, of_instances):
                log.warning("%s", problem)


def _format_agent_ids(loaded: LoadedAgents) -> str:
    return ", ".join(agent.id for agent in loaded.agents) or "none"
