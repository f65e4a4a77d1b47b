"""Choice of the tracer of a process by the environment."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping

from toolyard.tracing.tracer import NO_TRACER, Tracer

__all__ = ["choose_tracer"]

log = logging.getLogger("toolyard.tracing")


def choose_tracer(env: Mapping[str, str]) -> Tracer:
    """Return a tracer that sends spans if the standard variables name a destination, or if the program that
    uses this library has set up OpenTelemetry itself; else the tracer that records nothing."""
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return NO_TRACER
    # Loading OpenTelemetry takes a tenth of a second, so it happens only for those who use it.
    exporters = env.get("OTEL_TRACES_EXPORTER", "").strip()
    endpoint = env.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or env.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    is_wanted = exporters != "none" if exporters else bool(endpoint)
    if not is_wanted and (exporters or "opentelemetry.sdk.trace" not in sys.modules):
        return NO_TRACER
    try:
        from toolyard.tracing.otel import build_tracer
    except ImportError:
        log.warning(
            "the OTEL_ variables ask for traces, but OpenTelemetry is not installed; "
            "hint: pip install 'toolyard[otel]', or set OTEL_SDK_DISABLED=true"
        )
        return NO_TRACER
    return build_tracer(env, is_wanted=is_wanted)
