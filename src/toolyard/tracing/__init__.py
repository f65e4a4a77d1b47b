"""Traces: the seam that other packages use, and its implementation with OpenTelemetry.

``tracer`` has the tracer that records nothing. ``selection`` chooses one by the ``OTEL_*`` variables, and
imports ``otel`` only if they ask for traces. This package imports ``errors`` and ``types``.
"""
