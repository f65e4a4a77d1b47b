"""Session whose requests are recorded as spans, and the attributes of spans that concern a server."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from toolyard.clients.session import McpSession
from toolyard.tracing.tracer import Attributes, Tracer, describe_address
from toolyard.types.call import McpRequest
from toolyard.types.server import Server, StdioSpec, Timeouts

__all__ = ["TracedSession", "describe_server"]


class TracedSession(McpSession):
    """Session that records a span for each request, and sends the trace context with it.

    The span of a tool call begins earlier, in the call path, and is completed here.
    """

    def __init__(self, *args: Any, tracer: Tracer, attributes: Attributes) -> None:
        super().__init__(*args)
        self._tracer = tracer
        self._attributes = attributes

    async def request(
        self,
        request: McpRequest,
        timeouts: Timeouts,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        method, tracer = request.method, self._tracer
        if method == "subscriptions/listen":
            # Lasts as long as the session, and belongs to no caller.
            return await super().request(request, timeouts, headers)
        target = (request.params or {}).get("name") if method in ("tools/call", "prompts/get") else None
        name = method if target is None else f"{method} {target}"
        attributes: Attributes = {
            **self._attributes,
            "mcp.method.name": method,
            "mcp.protocol.version": self.request_builder.version,
            "jsonrpc.request.id": str(self._pending.next_id),
            "gen_ai.tool.name" if method == "tools/call" else "gen_ai.prompt.name": target,
        }
        if method == "tools/call":
            span = tracer.current_span()
            span.rename(name)
            span.set(attributes)
            scope: AbstractContextManager[object] = nullcontext()
        else:
            scope = tracer.span(name, "client", attributes)
        with scope:
            carrier = tracer.inject()
            traced = replace(request, meta={**(request.meta or {}), **carrier})
            return await super().request(traced, timeouts, {**(headers or {}), **carrier})


def describe_server(server: Server) -> Attributes:
    """Return the attributes of spans that concern a server."""
    spec = server.transport
    if isinstance(spec, StdioSpec):
        return {"toolyard.server.id": server.id, "network.transport": "pipe"}
    return {
        "toolyard.server.id": server.id,
        "network.transport": "tcp",
        "network.protocol.name": "http",
        **describe_address(spec.url),
    }
