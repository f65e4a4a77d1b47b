"""Limits of the responses of model endpoints, as hooks of the HTTP client.

The libraries of providers read an error to its end and decode each event of an answer at once, in the event
loop, so that a long one would fill the memory and hold up everybody.

Loaded with the libraries of models, whose HTTP client it extends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import httpx2

__all__ = ["ResponseRefused", "limit_responses"]

_MAX_ERROR_BYTES = 256 * 1024
_MAX_EVENT_BYTES = 4_000_000
"""The last event of an answer of OpenAI repeats the whole answer and the definitions of all tools."""
_MAX_EVENT_VALUES = 200_000
_EVENT_ENDS = (b"\n\n", b"\n\r\n", b"\r\r")
_VALUE_MARKS = (b",", b"[", b"{")


class ResponseRefused(httpx2.TransportError):
    """Raised for a response that exceeds a limit, which the message names."""


def limit_responses(client: httpx2.AsyncClient) -> None:
    """Make a client read limited responses only. Compressed ones, of unknown size, are refused."""
    client.headers["Accept-Encoding"] = "identity"
    client.event_hooks = {**client.event_hooks, "response": [*client.event_hooks["response"], _limit]}


async def _limit(response: httpx2.Response) -> None:
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        await response.aclose()
        raise ResponseRefused(f"the response is compressed ({encoding[:20]})")
    stream = cast("httpx2.AsyncByteStream", response.stream)
    response.stream = _AnswerStream(stream) if response.is_success else _ErrorStream(stream)


class _LimitedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def aclose(self) -> None:
        await self._stream.aclose()


class _ErrorStream(_LimitedStream):
    """The beginning of the body of an error."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        remaining = _MAX_ERROR_BYTES
        async for chunk in self._stream:
            yield chunk[:remaining]
            remaining -= len(chunk)
            if remaining <= 0:
                return


class _AnswerStream(_LimitedStream):
    """The body of an answer: an event stream, or a document, which counts as one event."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = values = 0
        former_end = b""
        async for chunk in self._stream:
            text = former_end + chunk
            former_end = text[-2:]
            if (start := max(text.rfind(end) for end in _EVENT_ENDS)) >= 0:
                size = values = 0
                text = text[start + 2 :]
            else:
                text = chunk
            size += len(text)
            values += sum(text.count(mark) for mark in _VALUE_MARKS)
            if size > _MAX_EVENT_BYTES:
                raise ResponseRefused(f"an event has more than {_MAX_EVENT_BYTES:,} bytes")
            if values > _MAX_EVENT_VALUES:
                raise ResponseRefused(f"an event has more than {_MAX_EVENT_VALUES:,} values")
            yield chunk
