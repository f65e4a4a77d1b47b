"""One HTTP/1.1 connection: sends a request, parses its response, then is free for the next one."""

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
"""Called with a connection that has become idle."""

_MAX_OVERHEAD_BYTES = 128 * 1024
"""Maximum number of bytes received without any body bytes among them: heads, and framing between chunks. It
stops a server that sends headers or chunk extensions without end."""


class Http1Connection(asyncio.Protocol):
    """HTTP/1.1 on a connection opened by aiohttp, which handles DNS, the address guard, TLS and proxies.

    The object replaces aiohttp's protocol on the transport. It handles one request at a time and no
    pipelining. ``_response`` is set from sending a request until the end of its response;
    ``_head_future`` is set until the connection is released, and completed when the head has arrived.
    """

    def __init__(self, connection: Connection, on_idle: OnIdle) -> None:
        transport, aiohttp_protocol = connection.transport, connection.protocol
        if transport is None or aiohttp_protocol is None or aiohttp_protocol.should_close:
            connection.close()
            raise HttpProtocolError("data arrived before the request was sent")
        self._connection = connection
        self._aiohttp_protocol = aiohttp_protocol
        self._transport = transport
        self._on_idle = on_idle
        self._has_unread_data = _make_readability_check(transport.get_extra_info("socket").fileno())
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
        # From here on aiohttp no longer sees the data, so its parser, timers and pool do no work. It still
        # owns the connection and must be told of its end.
        transport.set_protocol(self)

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    @property
    def is_reusable(self) -> bool:
        """True if the connection is open and no unread data is pending.

        Pending data is either the end of the connection, or an unsolicited response. The event loop would see
        it only after the next request is written, and take it for the response to that request.
        """
        return self.is_open and not self._has_unread_data()

    async def send_request(self, head: bytes, body: bytes | None) -> HttpResponse:
        """Send a request and wait for the head of its response. Raise aiohttp.ClientError."""
        self._response = HttpResponse(self)
        self._head_future = head_future = asyncio.get_running_loop().create_future()
        try:
            if body is None or len(body) <= MAX_BUFFERED_BYTES:
                # One write for head and body: two would often become two packets, and two wake-ups of the
                # server.
                self._transport.write(head + body if body else head)
            else:
                await self._write_long_body(head, body, head_future)
            return await head_future
        except BaseException:
            if not head_future.cancel() and not head_future.cancelled():
                # It failed, but another exception ended the writing: mark its exception as retrieved.
                head_future.exception()
            # Without pipelining, a connection with an abandoned request can only be closed: its response may
            # still arrive, and would be taken for that of the next request.
            self.close()
            raise
        finally:
            # The error references this frame, and the future references the error: break the cycle.
            del head_future

    async def _write_long_body(
        self, head: bytes, body: bytes, head_future: asyncio.Future[HttpResponse]
    ) -> None:
        """Write a long body in chunks, yielding to other tasks; stop early if the server responds."""
        # If the response comes before the body is complete, the rest of the body is never sent. The server
        # would take the next request for that rest, so the connection must not be reused.
        self._keep_alive = False
        self._transport.write(head)
        view = memoryview(body)
        for start in range(0, len(body), MAX_BUFFERED_BYTES):
            if self._writable_future is not None:
                await self._writable_future
            if head_future.done():
                return
            self._transport.write(view[start : start + MAX_BUFFERED_BYTES])
            await asyncio.sleep(0)
        self._keep_alive = not head_future.done()

    def set_paused(self, paused: bool) -> None:
        # pause_reading and resume_reading raise if called twice, or after the transport is closed.
        if paused is self._is_paused or self._transport.is_closing():
            return
        self._is_paused = paused
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def close(self) -> None:
        # Only once: a transport that has been closed already cannot report its write buffer.
        if not self._is_closed_locally and self._transport.get_write_buffer_size():
            # A graceful close would wait until the server has read the buffer, which may be never.
            self._transport.abort()
        self._is_closed_locally = True
        self._connection.close()

    def abort(self) -> None:
        """Close at once. A pending request fails."""
        self._is_closed_locally = True
        self._transport.abort()

    # Callbacks of the transport (asyncio.Protocol).

    def data_received(self, data: bytes) -> None:
        self._overhead_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            # An exception raised in a parser callback below arrives here as the context of the parser error.
            cause = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else None
            self._fail_response(
                cause if isinstance(cause, HttpProtocolError) else HttpProtocolError(str(error))
            )
        else:
            if self._overhead_bytes > _MAX_OVERHEAD_BYTES:
                self._fail_response(HttpProtocolError("the headers are too long"))
            elif self._response is None and self._head_future is not None:
                # The response is complete. Released only after the whole chunk is parsed: unexpected data
                # after the response makes on_message_begin fail the connection first.
                self._release_or_close()

    def eof_received(self) -> None:
        """Abort if unsent data remains: the transport closes only after sending it, and a server that has
        ended its side may never read it."""
        if self._transport.get_write_buffer_size():
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._aiohttp_protocol.connection_lost(exc)
        # The parser references this object: break the cycle.
        del self._parser
        response = self._response
        if response is None or not response.status:
            self._fail_response(self._missing_head_error(exc))
        # Without a length the end of the connection is the end of the body, unless it broke or we closed it:
        # then a truncated body must not look complete.
        elif exc is None and not self._is_closed_locally and _is_delimited_by_close(response):
            self._response = None
            response.end()
            self.close()
        else:
            self._fail_response(aiohttp.ClientPayloadError("the response is incomplete"))

    def pause_writing(self) -> None:
        self._writable_future = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        future, self._writable_future = self._writable_future, None
        if future is not None and not future.done():
            future.set_result(None)

    # Callbacks of the parser (httptools).

    def on_message_begin(self) -> None:
        if self._response is None:
            raise HttpProtocolError("a response arrived that no request was waiting for")
        self._reason = b""

    def on_status(self, status: bytes) -> None:
        # May be called several times with parts of the reason phrase.
        self._reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailer fields, which come after the body, are ignored.
        if self._response is not None and not self._response.status:
            text = value.rstrip(b" \t").decode("utf-8", "surrogateescape")
            self._response.headers.add(name.decode("utf-8", "surrogateescape"), text)

    def on_headers_complete(self) -> None:
        response, status = self._response, self._parser.get_status_code()
        if response is None or self._head_future is None:
            return
        # 101 would change the protocol on this connection, for which we never ask.
        if status < 100 or status == 101:
            raise HttpProtocolError(
                "the connection switched to another protocol" if status == 101 else f"the status is {status}"
            )
        if status < 200:
            # An interim response (1xx); the final one follows.
            response.headers.clear()
            return
        response.begin_body()
        response.status = status
        response.reason = self._reason.decode("utf-8", "surrogateescape")
        self._keep_alive = self._keep_alive and self._parser.should_keep_alive()
        if not self._head_future.done():
            self._head_future.set_result(response)
        # A writer that waits for the server to read would wait forever: a server that has answered may never
        # read the rest.
        self.resume_writing()

    def on_body(self, body: bytes) -> None:
        self._overhead_bytes = 0
        if self._response is not None:
            self._response.feed(body)

    def on_message_complete(self) -> None:
        if self._response is not None and self._response.status:
            self._overhead_bytes = 0
            response, self._response = self._response, None
            response.end()

    def _release_or_close(self) -> None:
        self._head_future = None
        # A server that responds before reading the whole request continues to read it: not reusable then.
        if self._keep_alive and self.is_open and not self._transport.get_write_buffer_size():
            self.set_paused(False)
            self._on_idle(self)
        else:
            self.close()

    def _missing_head_error(self, exc: Exception | None) -> Exception:
        """Return the reason why the response head did not arrive."""
        if exc is not None:
            return aiohttp.ClientOSError(*exc.args)
        if self._is_closed_locally:
            return aiohttp.ClientConnectionError("the connection was closed on this side")
        return aiohttp.ServerDisconnectedError()

    def _fail_response(self, failure: Exception) -> None:
        response, self._response = self._response, None
        if response is not None:
            if self._head_future is not None and not self._head_future.done():
                self._head_future.set_exception(failure)
            else:
                response.fail(failure)
        self._head_future = None
        self.resume_writing()
        self.close()


def _is_delimited_by_close(response: HttpResponse) -> bool:
    """Return True if the end of the connection marks the end of the body (RFC 9112, section 6.3)."""
    return "Content-Length" not in response.headers and "Transfer-Encoding" not in response.headers


def _make_readability_check(descriptor: int) -> Callable[[], bool]:
    """Return a function that tells whether a socket has unread data or has been closed by the peer, without
    reading from it."""
    if sys.platform == "win32":
        return lambda: bool(select.select([descriptor], [], [], 0)[0])
    # Registered once, because each request asks.
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return lambda: bool(poll.poll(0))
