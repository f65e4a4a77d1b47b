"""One connection to a server: a request goes out, its answer comes in, then it is free for the next."""

from __future__ import annotations

import asyncio
import select
import sys
from collections.abc import Callable
from typing import TypeAlias

import aiohttp
import httptools
from aiohttp.connector import Connection

from toolyard.net.http1.response import MAX_BUFFERED_BYTES, HttpProtocolError, HttpResponse

__all__ = ["Http1Connection"]

OnIdle: TypeAlias = Callable[["Http1Connection"], None]
"""Takes a connection that is free again."""

_MAX_OVERHEAD_BYTES = 128 * 1024
"""Bytes that may come without a byte of a body among them: heads, and what stands between chunks."""


class Http1Connection(asyncio.Protocol):
    """HTTP/1.1 on a connection that aiohttp made: it knows names, guards, TLS and proxies."""

    def __init__(self, connection: Connection, on_idle: OnIdle) -> None:
        transport, made_with = connection.transport, connection.protocol
        if transport is None or made_with is None or made_with.should_close:
            connection.close()
            raise HttpProtocolError("it spoke before it was asked")
        self._connection = connection
        self._aiohttp_protocol = made_with
        self._transport = transport
        self._on_idle = on_idle
        self._parser = httptools.HttpResponseParser(self)
        self._response: HttpResponse | None = None
        self._head_future: asyncio.Future[HttpResponse] | None = None
        self._writable_future: asyncio.Future[None] | None = None
        self._reason = b""
        self._overhead_bytes = 0
        self._keep_alive = True
        self._is_paused = False
        self._is_closed_locally = False
        self.idle_since = 0.0
        transport.set_protocol(self)

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    @property
    def is_reusable(self) -> bool:
        """Whether it is open, and nothing waits there that the loop would see only after the next request:
        its end, or words that nobody asked for and that would be taken for the answer."""
        return self.is_open and not _has_unread_data(self._transport.get_extra_info("socket").fileno())

    async def send_request(self, head: bytes, body: bytes | None) -> HttpResponse:
        """Send a request, and wait for the head of its answer. Raises aiohttp.ClientError."""
        self._response = HttpResponse(self)
        self._head_future = coming = asyncio.get_running_loop().create_future()
        try:
            if body is None or len(body) <= MAX_BUFFERED_BYTES:
                self._transport.write(head + body if body else head)
            else:
                await self._write_long_body(head, body, coming)
            return await coming
        except BaseException:
            if not coming.cancel() and not coming.cancelled():
                # It failed while somebody else ended the writing: nobody needs to hear of it.
                coming.exception()
            self.close()
            raise
        finally:
            # An error keeps this frame, and this would keep the error.
            del coming

    async def _write_long_body(self, head: bytes, body: bytes, coming: asyncio.Future[HttpResponse]) -> None:
        """Send what is long in pieces, so that others get their turn, until the server has an answer."""
        # Where that comes before everything was sent, what follows would be taken for the rest.
        self._keep_alive = False
        self._transport.write(head)
        view = memoryview(body)
        for start in range(0, len(body), MAX_BUFFERED_BYTES):
            if self._writable_future is not None:
                await self._writable_future
            if coming.done():
                return
            self._transport.write(view[start : start + MAX_BUFFERED_BYTES])
            await asyncio.sleep(0)
        self._keep_alive = not coming.done()

    def set_paused(self, paused: bool) -> None:
        if paused is self._is_paused or self._transport.is_closing():
            return
        self._is_paused = paused
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def close(self) -> None:
        # Once: a transport that is closed for the second time cannot tell what it holds.
        if not self._is_closed_locally and self._transport.get_write_buffer_size():
            # Nobody waits until a server that does not read has read.
            self._transport.abort()
        self._is_closed_locally = True
        self._connection.close()

    def abort(self) -> None:
        """End it at once. Who waits for an answer is told."""
        self._is_closed_locally = True
        self._transport.abort()

    # What the transport calls.

    def data_received(self, data: bytes) -> None:
        self._overhead_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            cause = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else None
            self._fail_response(
                cause if isinstance(cause, HttpProtocolError) else HttpProtocolError(str(error))
            )
        else:
            if self._overhead_bytes > _MAX_OVERHEAD_BYTES:
                self._fail_response(HttpProtocolError("its headers have no end"))
            elif self._response is None and self._head_future is not None:
                self._release_or_close()

    def eof_received(self) -> None:
        """The transport closes itself, once all is sent; who says no more may not read either."""
        if self._transport.get_write_buffer_size():
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._aiohttp_protocol.connection_lost(exc)
        # The parser has what it calls, which is this.
        del self._parser
        answer = self._response
        if answer is None or not answer.status:
            self._fail_response(self._missing_head_error(exc))
        elif exc is None and not self._is_closed_locally and _is_delimited_by_close(answer):
            self._response = None
            answer.end()
            self.close()
        else:
            self._fail_response(aiohttp.ClientPayloadError("its answer is not complete"))

    def pause_writing(self) -> None:
        self._writable_future = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        waiting, self._writable_future = self._writable_future, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self._response is None:
            raise HttpProtocolError("it answered more than it was asked")
        self._reason = b""

    def on_status(self, status: bytes) -> None:
        # In pieces, as they came.
        self._reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        # Those after the body say nothing that anybody needs.
        if self._response is not None and not self._response.status:
            text = value.rstrip(b" \t").decode("utf-8", "surrogateescape")
            self._response.headers.add(name.decode("utf-8", "surrogateescape"), text)

    def on_headers_complete(self) -> None:
        answer, status = self._response, self._parser.get_status_code()
        if answer is None or self._head_future is None:
            return
        if status < 100 or status == 101:
            raise HttpProtocolError(
                "it switched to another protocol" if status == 101 else f"its status is {status}"
            )
        if status < 200:
            answer.headers.clear()
            return
        answer.begin_body()
        answer.status = status
        answer.reason = self._reason.decode("utf-8", "surrogateescape")
        self._keep_alive = self._keep_alive and self._parser.should_keep_alive()
        if not self._head_future.done():
            self._head_future.set_result(answer)
        self.resume_writing()

    def on_body(self, body: bytes) -> None:
        self._overhead_bytes = 0
        if self._response is not None:
            self._response.feed(body)

    def on_message_complete(self) -> None:
        if self._response is not None and self._response.status:
            self._overhead_bytes = 0
            answer, self._response = self._response, None
            answer.end()

    def _release_or_close(self) -> None:
        self._head_future = None
        # What answers before it has read everything goes on reading our request, so nothing else can follow.
        if self._keep_alive and self.is_open and not self._transport.get_write_buffer_size():
            self.set_paused(False)
            self._on_idle(self)
        else:
            self.close()

    def _missing_head_error(self, exc: Exception | None) -> Exception:
        """Why there is no head."""
        if exc is not None:
            return aiohttp.ClientOSError(*exc.args)
        if self._is_closed_locally:
            return aiohttp.ClientConnectionError("it was closed on this side")
        return aiohttp.ServerDisconnectedError()

    def _fail_response(self, failure: Exception) -> None:
        answer, self._response = self._response, None
        if answer is not None:
            if self._head_future is not None and not self._head_future.done():
                self._head_future.set_exception(failure)
            else:
                answer.fail(failure)
        self._head_future = None
        self.resume_writing()
        self.close()


def _is_delimited_by_close(answer: HttpResponse) -> bool:
    """Whether the end of the connection is the end of the body."""
    return "Content-Length" not in answer.headers and "Transfer-Encoding" not in answer.headers


def _has_unread_data(descriptor: int) -> bool:
    """Whether a socket has something to read, without reading it."""
    if sys.platform == "win32":
        return bool(select.select([descriptor], [], [], 0)[0])
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(0))
