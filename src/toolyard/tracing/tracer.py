"""The tracer and the span that record nothing, and the types of the seam."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context
from types import TracebackType
from typing import Any, ClassVar, Literal, Self, TypeAlias
from urllib.parse import urlsplit

__all__ = ["NO_TRACER", "Attributes", "Span", "SpanKind", "Tracer", "describe_address"]

Attributes: TypeAlias = Mapping[str, str | int | float | Sequence[str] | None]
"""Attributes of a span by their names in the semantic conventions. None means that there is no value."""
SpanKind: TypeAlias = Literal["internal", "server", "client"]


class Span:
    """One operation. It is current inside its context, and ends with it. This class records nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def set(self, attributes: Attributes) -> None:
        """Add attributes."""

    def rename(self, name: str) -> None:
        """Replace the name."""

    def fail(self, error_type: str) -> None:
        """Mark the operation as failed, for a failure that is not an exception."""


class Tracer:
    """Starts spans, and moves their context in and out of this process. This class records nothing."""

    is_on: ClassVar[bool] = False
    captures_content: bool = False
    """True if the operator wants arguments, results and messages to be recorded."""
    list_secrets: Callable[[], Iterable[str]] = tuple
    """Returns the secrets of all servers, which are not recorded in messages either."""

    def span(
        self,
        name: str,
        kind: SpanKind = "internal",
        attributes: Attributes | None = None,
        carrier: Mapping[str, Any] | None = None,
    ) -> Span:
        """Start a span. Its parent is the trace context in ``carrier``, or else the current span."""
        return _NO_SPAN

    def current_span(self) -> Span:
        return _NO_SPAN

    def attach(self, carrier: Mapping[str, Any]) -> AbstractContextManager[None]:
        """Use the trace context in ``carrier`` as the current one, inside the returned context."""
        return nullcontext()

    def inject(self) -> dict[str, str]:
        """Return the current trace context, for HTTP headers or ``_meta``."""
        return {}

    def isolate_context(self) -> Context:
        """Return context variables for a task that shares nothing but the current span with its creator."""
        return Context()

    async def close(self) -> None:
        """Send the remaining spans. Takes a bounded time."""


_NO_SPAN = Span()
NO_TRACER = Tracer()
_DEFAULT_PORTS = {"http": 80, "https": 443}


def describe_address(url: str) -> Attributes:
    """Return the attributes of a span for the host and port of a URL."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = None
    return {"server.address": parts.hostname, "server.port": port or _DEFAULT_PORTS.get(parts.scheme)}
