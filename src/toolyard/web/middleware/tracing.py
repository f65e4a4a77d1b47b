"""Trace context of requests, and their spans. Installed only if traces are on."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from toolyard.tracing.tracer import Tracer
from toolyard.web.access.request_context import RESPONSE_STATUS_KEY
from toolyard.web.http_server.metrics import get_route_template

__all__ = ["TraceContextMiddleware", "TracingMiddleware"]

_UNTRACED_PATHS = ("/static/", "/healthz", "/readyz", "/metrics")
"""Beginnings of paths that are requested often, and lead to no work worth a trace."""


class TracingMiddleware:
    """Record a span for each request to the API and the pages, under the trace context in its headers.

    It stands behind authentication by the request head, so that the bodies of strangers cause no spans.
    """

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(_UNTRACED_PATHS):
            await self._app(scope, receive, send)
            return
        method = scope["method"]
        attributes = {"http.request.method": method, "url.scheme": scope["scheme"]}
        with self._tracer.span(method, "server", attributes, _get_headers(scope)) as span:
            try:
                await self._app(scope, receive, send)
            finally:
                # The path itself is not recorded: it may contain names that people chose.
                route, status = get_route_template(scope), scope.get(RESPONSE_STATUS_KEY, 0)
                span.rename(f"{method} {route}")
                span.set({"http.route": route, "http.response.status_code": status})
                if status >= 500:
                    span.fail(str(status))


class TraceContextMiddleware:
    """Make the trace context in the headers of a gateway request the current one. The endpoint records the
    span, once the request has been authenticated."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._tracer.attach(_get_headers(scope)):
            await self._app(scope, receive, send)


def _get_headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
