"""From settings to a server that answers: one order, and everything closed again whatever fails."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from toolyard.accounts.startup import create_first_admin_link
from toolyard.agents.definitions.watch import LoadedAgents, load_agents, watch_agents
from toolyard.config.settings.table import Settings
from toolyard.config.watch import ConfigBroken, watch_config
from toolyard.errors import ToolyardError
from toolyard.store.errors import StoreError
from toolyard.types.audit import AuditEntry
from toolyard.types.config import Configuration
from toolyard.web.app import make_app
from toolyard.web.server.connection_limits import create_connection_limits, raise_descriptor_limit
from toolyard.web.server.run import run_server
from toolyard.web.server.socket import Listener
from toolyard.web.services import Services

if TYPE_CHECKING:
    from toolyard.web.services import Services

__all__ = ["ServeOptions", "delete_expired_periodically", "serve"]


_FIRST_DELAY_SECONDS = (60.0, 600.0)
"""Seconds after the start, between which replicas that started together spread."""
_CLEANUP_INTERVAL_SECONDS = (4 * 3_600.0, 8 * 3_600.0)


async def delete_expired_periodically(site: Services) -> None:
    """Until it is cancelled. A database that is away for a while is swept the next time."""
    pause = _FIRST_DELAY_SECONDS
    while True:
        await asyncio.sleep(random.uniform(*pause))
        pause = _CLEANUP_INTERVAL_SECONDS
        try:
            forgotten = await site.database.expiry.delete_expired(site.settings.audit_days)
        except StoreError as error:
            log.warning("what is old could not be cleared away: %s", error.cause)
            continue
        if forgotten:
            log.info("the audit log: %d old entries were deleted, see audit_days", forgotten)


log = logging.getLogger("toolyard.web")

_MODEL_WARMUP_DELAY_SECONDS = 1.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What to serve."""

    configuration: Configuration
    settings: Settings
    data_dir: Path
    config_path: str | None = None
    """The configuration file that was named, if one was."""


async def serve(options: ServeOptions, listener: Listener, announce: Callable[[str | None], None]) -> None:
    """Serve until a signal says to stop.

    ``announce`` is called once requests are answered, with a link for the first admin where there is none.
    Raises ToolyardError where it cannot be started.
    """
    async with AsyncExitStack() as closing:
        closing.callback(listener.close)
        agents = load_agents(options.settings.agents_path, options.data_dir)
        site = await Services.open(
            options.configuration, options.settings, options.data_dir, agents.agents, address=listener.address
        )
        closing.push_async_callback(site.close)
        _apply_agents(site, agents)
        public = options.settings.public_url or listener.address
        invitation = await create_first_admin_link(site.people, options.settings, public.rstrip("/"))
        if invitation is not None:
            await site.audit.write(
                AuditEntry(
                    at=time.time(), action="user.invite", actor="", actor_name="server start", target="admin"
                )
            )

        def start_background_work() -> None:
            announce(invitation)
            # What was loaded until now stays: the collector need not look at it again.
            gc.freeze()
            # Requests leave next to nothing that only the collector can find: it looks less often.
            gc.set_threshold(20_000, 20, 5)
            gc.enable()
            if options.settings.warm:
                site.spawn(site.connect_shared_servers())
            site.spawn(_warm_models(site))
            site.spawn(delete_expired_periodically(site))
            site.spawn(_apply_config_changes(site, options.config_path))
            site.spawn(_apply_agent_changes(site, agents))

        # After the site was made, which notes the limit that child processes get.
        limits = create_connection_limits(options.settings, raise_descriptor_limit())
        await run_server(
            make_app(site),
            listener,
            on_listening=start_background_work,
            on_stopping=site.stop,
            end_work=site.end_work,
            limits=limits,
        )


async def _warm_models(site: Services) -> None:
    """Load what talks to models while nobody waits for it. Those who come at once are served first."""
    await asyncio.sleep(_MODEL_WARMUP_DELAY_SECONDS)
    await site.chats.preload()
    if site.chats.models.default is not None:
        log.info("what talks to models is loaded")


async def _apply_config_changes(site: Services, path: str | None) -> None:
    """Apply every change of the configuration file; a broken edit changes nothing, and is told."""
    async for change in watch_config(site.configuration, path, data_dir=site.data_dir):
        if isinstance(change, ConfigBroken):
            site.config_problem = str(change.error)
            log.error("the configuration was changed and cannot be used:\n%s", change.error)
            continue
        site.config_problem = None
        log.info(
            "the configuration was changed: added %s; removed %s; changed %s",
            ", ".join(change.added) or "nothing",
            ", ".join(change.removed) or "nothing",
            ", ".join(change.changed) or "nothing",
        )
        try:
            await site.reconfigure(change.configuration)
        except ToolyardError as error:
            log.error("the changed configuration is in force, with this trouble: %s", error)


async def _apply_agent_changes(site: Services, current: LoadedAgents) -> None:
    """Apply every change of AGENTS.md; a broken edit changes no agent, and is told."""
    async for now in watch_agents(current, site.settings.agents_path, site.data_dir):
        _apply_agents(site, now)
        if not now.problems:
            log.info("the agents were read: %s", _format_agent_ids(now))


def _apply_agents(site: Services, now: LoadedAgents) -> None:
    site.apply_agents(now)
    if now.problems:
        log.error(
            "AGENTS.md cannot be used as it is, so these agents stay: %s\n%s", _format_agent_ids(now), now
        )


def _format_agent_ids(now: LoadedAgents) -> str:
    return ", ".join(agent.id for agent in now.agents) or "none"
