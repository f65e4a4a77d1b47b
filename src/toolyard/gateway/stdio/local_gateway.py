"""The gateway of one local client, over standard streams."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from toolyard.config.settings.table import Settings
from toolyard.core.composition import build_core
from toolyard.errors import Unreachable
from toolyard.gateway.callers import gateway_caller, limit_scope_to_server
from toolyard.gateway.endpoint import Endpoint
from toolyard.gateway.gateway import Gateway
from toolyard.gateway.input_required.approvals import CallApprovals
from toolyard.gateway.input_required.memory_approvals import MemoryApprovalStore
from toolyard.gateway.stdio.streams import serve_streams
from toolyard.meta import ToolMode
from toolyard.types.agent import Agent
from toolyard.types.call import Caller
from toolyard.types.config import Configuration

__all__ = ["resolve_caller", "serve_local"]


def resolve_caller(
    configuration: Configuration,
    agents: Sequence[Agent],
    *,
    agent: str | None = None,
    bundle: str | None = None,
    server: str | None = None,
) -> Caller:
    """Return the caller that the options describe. Raises AgentsError, ConfigError or Unreachable for unknown
    names."""
    if server is not None and server not in configuration.servers:
        there = ", ".join(configuration.servers) or "none"
        raise Unreachable("there is no such server", server=server, hint=f"there are: {there}")
    known: Mapping[str, Agent] = {each.id: each for each in agents}
    bundles = () if bundle is None else (bundle,)
    scope = None if server is None else limit_scope_to_server(None, configuration.servers[server])
    return gateway_caller(known, configuration.bundles, agent=agent, bundles=bundles, scope=scope)


async def serve_local(
    configuration: Configuration,
    settings: Settings,
    data_dir: Path,
    caller: Caller,
    server: str | None,
    mode: ToolMode | None,
    source: BinaryIO,
    sink: BinaryIO,
) -> None:
    """Serve until the client disconnects; then close every connection and end every child process."""
    tasks: set[asyncio.Task[None]] = set()

    def handle_list_changed(server_id: str) -> None:
        task = asyncio.get_running_loop().create_task(parts.handle_list_changed(server_id))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    approvals = CallApprovals(MemoryApprovalStore())
    parts = build_core(
        configuration, settings, data_dir=data_dir, approve=approvals, on_list_changed=handle_list_changed
    )
    gateway = Gateway(parts, approvals=approvals)
    try:
        await parts.tool_directory.load_stored(caller.principal)
        await serve_streams(Endpoint(gateway, caller, server, mode), source, sink)
    finally:
        await gateway.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await parts.close()
