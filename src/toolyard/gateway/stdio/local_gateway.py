"""The gateway of one local client, over standard streams."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from toolyard.config.settings.table import Settings
from toolyard.core.composition import build
from toolyard.errors import Unreachable
from toolyard.gateway.callers import gateway_caller, narrowed
from toolyard.gateway.endpoint import Front
from toolyard.gateway.gateway import Gateway
from toolyard.gateway.input_required.approvals import Approvals
from toolyard.gateway.input_required.memory_approvals import MemoryApprovals
from toolyard.gateway.stdio.streams import serve_lines
from toolyard.meta import Mode
from toolyard.types.agent import Agent
from toolyard.types.call import Caller
from toolyard.types.config import Configuration

__all__ = ["choose", "serve_local"]


def choose(
    configuration: Configuration,
    agents: Sequence[Agent],
    *,
    agent: str | None = None,
    bundle: str | None = None,
    server: str | None = None,
) -> Caller:
    """Who the client is. Raises AgentsError, ConfigError or Unreachable for what there is not."""
    if server is not None and server not in configuration.servers:
        there = ", ".join(configuration.servers) or "none"
        raise Unreachable("there is no such server", server=server, hint=f"there are: {there}")
    known: Mapping[str, Agent] = {each.id: each for each in agents}
    bundles = () if bundle is None else (bundle,)
    scope = None if server is None else narrowed(None, configuration.servers[server])
    return gateway_caller(known, configuration.bundles, agent=agent, bundles=bundles, scope=scope)


async def serve_local(
    configuration: Configuration,
    settings: Settings,
    folder: Path,
    caller: Caller,
    server: str | None,
    mode: Mode | None,
    source: BinaryIO,
    sink: BinaryIO,
) -> None:
    """Serve until the client is gone; then every connection is closed and every child has ended."""
    tasks: set[asyncio.Task[None]] = set()

    def list_changed(server_id: str) -> None:
        task = asyncio.get_running_loop().create_task(parts.list_changed(server_id))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    approvals = Approvals(MemoryApprovals())
    parts = build(configuration, settings, data_dir=folder, approve=approvals, on_list_changed=list_changed)
    gateway = Gateway(parts, approvals=approvals)
    try:
        await parts.rosters.stored(caller.principal)
        await serve_lines(Front(gateway, caller, server, mode), source, sink)
    finally:
        await gateway.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await parts.close()
