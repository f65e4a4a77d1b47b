"""From settings to a server that answers: one order, and everything closed again whatever fails."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from toolyard.config.settings import Settings
from toolyard.config.watching import ConfigBroken, watch_config
from toolyard.errors import ToolyardError
from toolyard.model.agent import Agent
from toolyard.model.config import Configuration
from toolyard.people.startup import first_admin
from toolyard.web.app import make_app
from toolyard.web.listening import Listener
from toolyard.web.serving import run
from toolyard.web.site import Site

__all__ = ["Start", "serve"]

log = logging.getLogger("toolyard.web")


@dataclass(frozen=True, slots=True)
class Start:
    """What to serve."""

    configuration: Configuration
    settings: Settings
    data_dir: Path
    agents: tuple[Agent, ...] = ()
    config_path: str | None = None
    """The configuration file that was named, if one was."""


async def serve(start: Start, listener: Listener, announce: Callable[[str | None], None]) -> None:
    """Serve until a signal says to stop.

    ``announce`` is called once requests are answered, with a link for the first admin where there is none.
    Raises ToolyardError where it cannot be started.
    """
    async with AsyncExitStack() as closing:
        closing.callback(listener.close)
        site = await Site.open(
            start.configuration, start.settings, start.data_dir, start.agents, address=listener.address
        )
        closing.push_async_callback(site.close)
        public = start.settings.public_url or listener.address
        invitation = await first_admin(site.people, start.settings, public.rstrip("/"))

        def listening() -> None:
            announce(invitation)
            # What was loaded until now stays: the collector need not look at it again.
            gc.freeze()
            gc.enable()
            if start.settings.warm:
                site.spawn(site.warm())
            site.spawn(_follow(site, start.config_path))

        await run(make_app(site), listener, listening=listening, stopping=site.stop, end_work=site.end_work)


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
