"""Numbers for Prometheus. Every label has few values: routes, methods, statuses, states, outcomes."""

from __future__ import annotations

import time
from collections import Counter as Count
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolyard import __version__
from toolyard.model.call import CallRecord
from toolyard.model.status import State, Status

__all__ = ["CONTENT_TYPE", "Measured", "Metrics", "route_of"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_REQUESTS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_CALLS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """The numbers of one process, in a registry of its own."""

    def __init__(self, statuses: Callable[[], Iterable[Status]]) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "toolyard_http_requests_total",
            "HTTP requests that were answered.",
            ("method", "route", "status"),
            registry=registry,
        )
        self.latency = Histogram(
            "toolyard_http_request_seconds",
            "Seconds from a request to the end of its answer.",
            ("method", "route"),
            buckets=_REQUESTS,
            registry=registry,
        )
        self.open_requests = Gauge(
            "toolyard_http_requests_open", "HTTP requests that are being answered.", registry=registry
        )
        self._calls = Counter(
            "toolyard_tool_calls_total", "Tool calls by outcome.", ("outcome",), registry=registry
        )
        self._call_seconds = Histogram(
            "toolyard_tool_call_seconds",
            "Seconds for a tool call, all of it.",
            ("outcome",),
            buckets=_CALLS,
            registry=registry,
        )
        info = Gauge("toolyard_info", "Always 1; the version is a label.", ("version",), registry=registry)
        info.labels(__version__).set(1)
        registry.register(_Connections(statuses))

    def called(self, record: CallRecord) -> None:
        """A tool was called."""
        self._calls.labels(record.outcome).inc()
        self._call_seconds.labels(record.outcome).observe(record.seconds)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self._registry)


class _Connections(Collector):
    """Connections by state, counted when somebody asks."""

    def __init__(self, statuses: Callable[[], Iterable[Status]]) -> None:
        self._statuses = statuses

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily("toolyard_connections", "Connections by state.", labels=["state"])
        found = Count(status.state for status in self._statuses())
        for state in State:
            family.add_metric([state.value], found[state])
        yield family


class Measured:
    """Counts and times every request."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        metrics, began = self._metrics, time.perf_counter()
        metrics.open_requests.inc()
        try:
            await self._app(scope, receive, noted)
        finally:
            metrics.open_requests.dec()
            method = scope["method"] if scope["method"] in _METHODS else "other"
            route = route_of(scope)
            metrics.requests.labels(method, route, str(status or "none")).inc()
            metrics.latency.labels(method, route).observe(time.perf_counter() - began)


def route_of(scope: Scope) -> str:
    """The template of the route that answered, such as ``/api/v1/servers/{id}``; ``none`` where none did."""
    found: Any = scope.get("fastapi", {}).get("effective_route_context") or scope.get("route")
    return str(getattr(found, "path", "none"))
