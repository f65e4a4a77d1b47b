"""Prometheus metrics. All labels have few values: routes, methods, statuses, states, outcomes."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Count
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, cast

from starlette.types import Scope

from toolyard.types.call import CallRecord
from toolyard.types.server import State, Status
from toolyard.types.version import __version__
from toolyard.web.access.request_context import RESPONSE_STATUS_KEY

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector

__all__ = ["METRICS_CONTENT_TYPE", "Metrics", "get_route_template"]

METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_REQUEST_BUCKETS_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_CALL_BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """Metrics of one process, and their collector.

    Requests update plain numbers, which become metric families when scraped. The counters of the library look
    up their labels behind locks, which took a tenth of the time of a call through the gateway.
    """

    def __init__(self, statuses: Callable[[], Iterable[Status]]) -> None:
        self._statuses = statuses
        self.open_requests = 0
        self._request_counts: Count[tuple[str, str, int]] = Count()
        self._request_durations: defaultdict[tuple[str, str], _DurationHistogram] = defaultdict(
            lambda: _DurationHistogram(_REQUEST_BUCKETS_SECONDS)
        )
        self._call_durations: defaultdict[str, _DurationHistogram] = defaultdict(
            lambda: _DurationHistogram(_CALL_BUCKETS_SECONDS)
        )

    def record_call(self, record: CallRecord) -> None:
        """Count a tool call and its duration."""
        self._call_durations[record.outcome].add(record.seconds)

    def record_response(self, scope: Scope, seconds: float) -> None:
        """Count the end of an open request, and its duration. Status 0 stands for no response."""
        self.open_requests -= 1
        method = scope["method"] if scope["method"] in _KNOWN_METHODS else "other"
        route = get_route_template(scope)
        self._request_counts[method, route, scope.get(RESPONSE_STATUS_KEY, 0)] += 1
        self._request_durations[method, route].add(seconds)

    def render(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        from prometheus_client import CollectorRegistry, generate_latest  # imported late: slow to load

        registry = CollectorRegistry()
        registry.register(cast("Collector", self))
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families. Called by the registry."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        info = GaugeMetricFamily("toolyard_info", "Always 1; the version is a label.", labels=["version"])
        info.add_metric([__version__], 1)
        yield info
        requests = CounterMetricFamily(
            "toolyard_http_requests",
            "HTTP requests answered.",
            labels=["method", "route", "status"],
        )
        for (method, route, status), count in self._request_counts.items():
            requests.add_metric([method, route, str(status or "none")], count)
        yield requests
        latency = HistogramMetricFamily(
            "toolyard_http_request_seconds",
            "Seconds from a request to the end of its response.",
            labels=["method", "route"],
        )
        for labels, times in self._request_durations.items():
            latency.add_metric(list(labels), times.buckets(), times.total)
        yield latency
        yield GaugeMetricFamily(
            "toolyard_http_requests_open", "HTTP requests in progress.", self.open_requests
        )
        calls = CounterMetricFamily("toolyard_tool_calls", "Tool calls by outcome.", labels=["outcome"])
        seconds = HistogramMetricFamily(
            "toolyard_tool_call_seconds", "Duration of tool calls in seconds.", labels=["outcome"]
        )
        for outcome, times in self._call_durations.items():
            calls.add_metric([outcome], sum(times.counts))
            seconds.add_metric([outcome], times.buckets(), times.total)
        yield calls
        yield seconds
        connections = GaugeMetricFamily("toolyard_connections", "Connections by state.", labels=["state"])
        states = Count(status.state for status in self._statuses())
        for state in State:
            connections.add_metric([state.value], states[state])
        yield connections


class _DurationHistogram:
    """Histogram of durations: a count per bucket and the total, in seconds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Return cumulative counts by upper bound, as Prometheus expects them."""
        names = [*(str(float(bound)) for bound in self.bounds), "+Inf"]
        return list(zip(names, map(float, accumulate(self.counts)), strict=True))


def get_route_template(scope: Scope) -> str:
    """Return the path template of the matched route, such as ``/api/v1/servers/{id}``, or ``none``."""
    return str(getattr(scope.get("route"), "path", "none"))
