"""HTTP to model endpoints: connections to public addresses only, and limited responses.

The libraries of providers read an error to its end and decode each event of an answer at once, in the event
loop, so a long one would fill the memory and hold up everybody.

Loaded with the libraries of models, whose HTTP client it extends.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable
from typing import Any, cast

import httpcore2
import httpx2

from toolyard.net import AddressGuard, AddressRefused
from toolyard.net.guarded_connector import DaemonThreadResolver

__all__ = ["GuardedTransport", "ResponseRefused", "limit_responses"]

_MAX_CONNECTIONS = 1_000
_KEEP_ALIVE_SECONDS = 5.0


class GuardedTransport(httpx2.AsyncHTTPTransport):
    """Checks the address of every connection, and uses no proxy, which would connect to any address."""

    def __init__(self, guard: AddressGuard) -> None:
        context = httpx2.create_ssl_context()
        super().__init__(verify=context)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=context,
            max_connections=_MAX_CONNECTIONS,
            keepalive_expiry=_KEEP_ALIVE_SECONDS,
            network_backend=_GuardedBackend(guard),
        )


class _GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Resolves a host itself and connects to the checked address, so that a name cannot change in between."""

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        self._backend = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())
        self._resolver = DaemonThreadResolver()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                found = await self._resolver.resolve(host, port, socket.AF_UNSPEC)
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(f"the host name {host} was not resolved in time") from error
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error
        failure: Exception | None = None
        for address in (each["host"] for each in found):
            try:
                if (refusal := self._guard.find_refusal(address)) is not None:
                    raise refusal
                return await self._backend.connect_tcp(address, port, timeout, local_address, socket_options)
            except AddressRefused as error:
                # The pool clears ``__cause__``; the context stays, from which the hint of the error follows.
                failure = httpcore2.ConnectError(str(error))
                failure.__context__ = error
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure or httpcore2.ConnectError(f"the host name {host} has no address")

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore2.AsyncNetworkStream:
        raise httpcore2.ConnectError("a model address cannot be a Unix socket")

    async def sleep(self, seconds: float) -> None:
        await self._backend.sleep(seconds)


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
        raise ResponseRefused(
            f"the response has the content encoding {encoding[:20]}, which was not requested"
        )
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
