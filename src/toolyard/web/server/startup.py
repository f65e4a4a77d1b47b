"""From settings to a server that answers: one order, and everything closed again whatever fails."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from toolyard.accounts.startup import first_admin
from toolyard.agents.definitions.watch import AgentsNow, follow_agents, read_now
from toolyard.config.settings.table import Settings
from toolyard.config.watch import ConfigBroken, watch_config
from toolyard.errors import ToolyardError
from toolyard.types.audit import AuditEntry
from toolyard.types.config import Configuration
from toolyard.web.app import make_app
from toolyard.web.server.connection_limits import connection_limits
from toolyard.web.server.descriptor_limit import raise_descriptor_limit
from toolyard.web.server.expiry import keep_swept
from toolyard.web.server.run import run
from toolyard.web.server.socket import Listener
from toolyard.web.services import Site

__all__ = ["Start", "serve"]

log = logging.getLogger("toolyard.web")

_FIRST_REQUESTS = 1.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Start:
    """What to serve."""

    configuration: Configuration
    settings: Settings
    data_dir: Path
    config_path: str | None = None
    """The configuration file that was named, if one was."""


async def serve(start: Start, listener: Listener, announce: Callable[[str | None], None]) -> None:
    """Serve until a signal says to stop.

    ``announce`` is called once requests are answered, with a link for the first admin where there is none.
    Raises ToolyardError where it cannot be started.
    """
    async with AsyncExitStack() as closing:
        closing.callback(listener.close)
        agents = read_now(start.settings.agents_path, start.data_dir)
        site = await Site.open(
            start.configuration, start.settings, start.data_dir, agents.agents, address=listener.address
        )
        closing.push_async_callback(site.close)
        _take_agents(site, agents)
        public = start.settings.public_url or listener.address
        invitation = await first_admin(site.people, start.settings, public.rstrip("/"))
        if invitation is not None:
            await site.audit.write(
                AuditEntry(
                    at=time.time(), action="user.invite", actor="", actor_name="server start", target="admin"
                )
            )

        def listening() -> None:
            announce(invitation)
            # What was loaded until now stays: the collector need not look at it again.
            gc.freeze()
            # Requests leave next to nothing that only the collector can find: it looks less often.
            gc.set_threshold(20_000, 20, 5)
            gc.enable()
            if start.settings.warm:
                site.spawn(site.warm())
            site.spawn(_warm_models(site))
            site.spawn(keep_swept(site))
            site.spawn(_follow(site, start.config_path))
            site.spawn(_follow_agents(site, agents))

        # After the site was made, which notes the limit that child processes get.
        limits = connection_limits(start.settings, raise_descriptor_limit())
        await run(
            make_app(site),
            listener,
            listening=listening,
            stopping=site.stop,
            end_work=site.end_work,
            limits=limits,
        )


async def _warm_models(site: Site) -> None:
    """Load what talks to models while nobody waits for it. Those who come at once are served first."""
    await asyncio.sleep(_FIRST_REQUESTS)
    await site.chats.warm()
    if site.chats.models.default is not None:
        log.info("what talks to models is loaded")


async def _follow(site: Site, path: str | None) -> None:
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


async def _follow_agents(site: Site, current: AgentsNow) -> None:
    """Apply every change of AGENTS.md; a broken edit changes no agent, and is told."""
    async for now in follow_agents(current, site.settings.agents_path, site.data_dir):
        _take_agents(site, now)
        if not now.problems:
            log.info("the agents were read: %s", _names(now))


def _take_agents(site: Site, now: AgentsNow) -> None:
    site.take_agents(now)
    if now.problems:
        log.error("AGENTS.md cannot be used as it is, so these agents stay: %s\n%s", _names(now), now)


def _names(now: AgentsNow) -> str:
    return ", ".join(agent.id for agent in now.agents) or "none"
