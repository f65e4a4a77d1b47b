"""Tracer that records spans with OpenTelemetry. Imported only if traces are wanted."""

# The SDK belongs to an extra, and need not be installed where types are checked.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from contextvars import Context
from importlib.metadata import entry_points
from types import TracebackType
from typing import Any, ClassVar, Self

from opentelemetry import context, propagate, trace
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import StatusCode

from toolyard.errors import RpcError
from toolyard.tracing.tracer import NO_TRACER, Attributes, Span, SpanKind, Tracer
from toolyard.types.version import __version__

__all__ = ["OtelTracer", "build_tracer"]

log = logging.getLogger("toolyard.tracing")

_FLUSH_TIMEOUT_SECONDS = 3.0
"""Maximum time to send the last spans when the process stops."""
_KINDS: Mapping[SpanKind, trace.SpanKind] = {
    "internal": trace.SpanKind.INTERNAL,
    "server": trace.SpanKind.SERVER,
    "client": trace.SpanKind.CLIENT,
}
_CAPTURE_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CAPTURE_VALUES = frozenset({"true", "span_only", "span_and_event"})


class OtelSpan(Span):
    """A recorded span. Neither messages nor tracebacks of exceptions are recorded: they may quote content."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self._token: Any = None

    def __enter__(self) -> Self:
        self._token = context.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        context.detach(self._token)
        if isinstance(error, RpcError):
            self.set({"rpc.response.status_code": str(error.code)})
            self.fail(str(error.code))
        elif error is not None:
            self.fail(type(error).__name__)
        self._span.end()

    def set(self, attributes: Attributes) -> None:
        for name, value in attributes.items():
            if value is not None:
                self._span.set_attribute(name, value)

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def fail(self, error_type: str) -> None:
        self._span.set_attribute("error.type", error_type)
        self._span.set_status(StatusCode.ERROR)


class OtelTracer(Tracer):
    """Starts spans of a provider. The propagators are those of ``OTEL_PROPAGATORS``."""

    is_on: ClassVar[bool] = True

    def __init__(
        self,
        provider: trace.TracerProvider,
        *,
        captures_content: bool = False,
        shut_down: Callable[[], None] | None = None,
    ) -> None:
        self.captures_content = captures_content
        self._tracer = provider.get_tracer("toolyard", __version__)
        self._shut_down = shut_down

    def span(
        self,
        name: str,
        kind: SpanKind = "internal",
        attributes: Attributes | None = None,
        carrier: Mapping[str, Any] | None = None,
    ) -> Span:
        parent = _extract_context(carrier) if carrier else None
        known = {key: value for key, value in (attributes or {}).items() if value is not None}
        return OtelSpan(self._tracer.start_span(name, parent, _KINDS[kind], known))

    def current_span(self) -> Span:
        return OtelSpan(trace.get_current_span())

    @contextmanager
    def attach(self, carrier: Mapping[str, Any]) -> Generator[None]:
        token = context.attach(_extract_context(carrier))
        try:
            yield
        finally:
            context.detach(token)

    def inject(self) -> dict[str, str]:
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        return carrier

    def isolate_context(self) -> Context:
        isolated = Context()
        isolated.run(context.attach, context.get_current())
        return isolated

    async def close(self) -> None:
        if self._shut_down is None:
            return
        # A thread of our own: the exporter repeats failed requests for longer than anybody waits for the end
        # of a process, and a daemon thread does not keep it alive.
        loop, done, shut_down = asyncio.get_running_loop(), asyncio.Event(), self._shut_down
        self._shut_down = None

        def run() -> None:
            shut_down()
            with suppress(RuntimeError):  # The loop may be closed by now.
                loop.call_soon_threadsafe(done.set)

        threading.Thread(target=run, name="toolyard:traces", daemon=True).start()
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_TIMEOUT_SECONDS):
                await done.wait()


def build_tracer(env: Mapping[str, str], *, is_wanted: bool) -> Tracer:
    """Return a tracer for the provider that the program has set up, or for a new one."""
    captures_content = env.get(_CAPTURE_VARIABLE, "").strip().lower() in _CAPTURE_VALUES
    provider = trace.get_tracer_provider()
    if isinstance(provider, TracerProvider):
        return OtelTracer(provider, captures_content=captures_content)
    exporters = _load_exporters(env) if is_wanted else []
    if not exporters:
        return NO_TRACER
    # In this order, because attributes given to ``create`` replace those of OTEL_RESOURCE_ATTRIBUTES.
    given = OTELResourceDetector().detect().attributes
    defaults = {"service.name": "toolyard", "service.version": __version__}
    resource = Resource.create({key: given.get(key, value) for key, value in defaults.items()})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return OtelTracer(provider, captures_content=captures_content, shut_down=provider.shutdown)


def _load_exporters(env: Mapping[str, str]) -> list[SpanExporter]:
    protocol = env.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or env.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    otlp = "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"
    names = [name.strip() for name in (env.get("OTEL_TRACES_EXPORTER") or "otlp").split(",")]
    exporters: list[SpanExporter] = []
    for name in names:
        name = otlp if name == "otlp" else name
        found = entry_points(group="opentelemetry_traces_exporter", name=name)
        if found:
            exporters.append(next(iter(found)).load()())
        else:
            log.warning(
                "no traces are sent by '%s': no installed package has this exporter; "
                "hint: install one, or set OTEL_TRACES_EXPORTER=otlp with the protocol http/protobuf",
                name,
            )
    return exporters


def _extract_context(carrier: Mapping[str, Any]) -> context.Context:
    """Return the current context with the trace context of a request, of which every value may be invalid."""
    texts = {key: value for key, value in carrier.items() if isinstance(value, str)}
    return propagate.extract(texts, context.get_current())
