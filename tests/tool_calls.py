"""Tool calls over a manager's connection, without policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolyard.clients import ConnectionManager
from toolyard.types.account import LOCAL_PRINCIPAL, Principal
from toolyard.types.call import McpRequest

__all__ = ["call_tool"]


async def call_tool(
    manager: ConnectionManager,
    server_id: str,
    tool: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    principal: Principal = LOCAL_PRINCIPAL,
    **options: Any,
) -> dict[str, Any]:
    """Return the raw result of a call. ``options`` are fields of McpRequest."""
    request = McpRequest("tools/call", {"name": tool, "arguments": arguments or {}}, **options)
    return await manager.connection(server_id, principal).request(request)
