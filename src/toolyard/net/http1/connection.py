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

from toolyard.net.http1.response import PIECE, Answer, NotHttp

__all__ = ["Line"]

Keep: TypeAlias = Callable[["Line"], None]
"""Takes a connection that is free again."""

_UNHEARD = 128 * 1024
"""Bytes that may come without a byte of a body among them: heads, and what stands between chunks."""


class Line(asyncio.Protocol):
    """HTTP/1.1 on a connection that aiohttp made: it knows names, guards, TLS and proxies."""

    def __init__(self, connection: Connection, keep: Keep) -> None:
        transport, made_with = connection.transport, connection.protocol
        if transport is None or made_with is None or made_with.should_close:
            connection.close()
            raise NotHttp("it spoke before it was asked")
        self._connection = connection
        self._made_with = made_with
        self._transport = transport
        self._keep = keep
        self._parser = httptools.HttpResponseParser(self)
        self._answer: Answer | None = None
        self._head: asyncio.Future[Answer] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._reason = b""
        self._unheard = 0
        self._usable = True
        self._slow = False
        self._given_up = False
        self.free_since = 0.0
        transport.set_protocol(self)

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    @property
    def is_silent(self) -> bool:
        """Whether it is open, and nothing waits there that the loop would see only after the next request:
        its end, or words that nobody asked for and that would be taken for the answer."""
        return self.is_open and not _has_news(self._transport.get_extra_info("socket").fileno())

    async def ask(self, head: bytes, body: bytes | None) -> Answer:
        """Send a request, and wait for the head of its answer. Raises aiohttp.ClientError."""
        self._answer = Answer(self)
        self._head = coming = asyncio.get_running_loop().create_future()
        try:
            if body is None or len(body) <= PIECE:
                self._transport.write(head + body if body else head)
            else:
                await self._write(head, body, coming)
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

    async def _write(self, head: bytes, body: bytes, coming: asyncio.Future[Answer]) -> None:
        """Send what is long in pieces, so that others get their turn, until the server has an answer."""
        # Where that comes before everything was sent, what follows would be taken for the rest.
        self._usable = False
        self._transport.write(head)
        view = memoryview(body)
        for start in range(0, len(body), PIECE):
            if self._writable is not None:
                await self._writable
            if coming.done():
                return
            self._transport.write(view[start : start + PIECE])
            await asyncio.sleep(0)
        self._usable = not coming.done()

    def slow_down(self, slow: bool) -> None:
        if slow is self._slow or self._transport.is_closing():
            return
        self._slow = slow
        if slow:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def close(self) -> None:
        # Once: a transport that is closed for the second time cannot tell what it holds.
        if not self._given_up and self._transport.get_write_buffer_size():
            # Nobody waits until a server that does not read has read.
            self._transport.abort()
        self._given_up = True
        self._connection.close()

    def abort(self) -> None:
        """End it at once. Who waits for an answer is told."""
        self._given_up = True
        self._transport.abort()

    # What the transport calls.

    def data_received(self, data: bytes) -> None:
        self._unheard += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            cause = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else None
            self._fail(cause if isinstance(cause, NotHttp) else NotHttp(str(error)))
        else:
            if self._unheard > _UNHEARD:
                self._fail(NotHttp("its headers have no end"))
            elif self._answer is None and self._head is not None:
                self._free()

    def eof_received(self) -> None:
        """The transport closes itself, once all is sent; who says no more may not read either."""
        if self._transport.get_write_buffer_size():
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._made_with.connection_lost(exc)
        # The parser has what it calls, which is this.
        del self._parser
        answer = self._answer
        if answer is None or not answer.status:
            self._fail(self._unsaid(exc))
        elif exc is None and not self._given_up and _lasts_until_the_end(answer):
            self._answer = None
            answer.end()
            self.close()
        else:
            self._fail(aiohttp.ClientPayloadError("its answer is not complete"))

    def pause_writing(self) -> None:
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        waiting, self._writable = self._writable, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self._answer is None:
            raise NotHttp("it answered more than it was asked")
        self._reason = b""

    def on_status(self, status: bytes) -> None:
        # In pieces, as they came.
        self._reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        # Those after the body say nothing that anybody needs.
        if self._answer is not None and not self._answer.status:
            text = value.rstrip(b" \t").decode("utf-8", "surrogateescape")
            self._answer.headers.add(name.decode("utf-8", "surrogateescape"), text)

    def on_headers_complete(self) -> None:
        answer, status = self._answer, self._parser.get_status_code()
        if answer is None or self._head is None:
            return
        if status < 100 or status == 101:
            raise NotHttp("it switched to another protocol" if status == 101 else f"its status is {status}")
        if status < 200:
            answer.headers.clear()
            return
        answer.begin()
        answer.status = status
        answer.reason = self._reason.decode("utf-8", "surrogateescape")
        self._usable = self._usable and self._parser.should_keep_alive()
        if not self._head.done():
            self._head.set_result(answer)
        self.resume_writing()

    def on_body(self, body: bytes) -> None:
        self._unheard = 0
        if self._answer is not None:
            self._answer.feed(body)

    def on_message_complete(self) -> None:
        if self._answer is not None and self._answer.status:
            self._unheard = 0
            answer, self._answer = self._answer, None
            answer.end()

    def _free(self) -> None:
        self._head = None
        # What answers before it has read everything goes on reading our request, so nothing else can follow.
        if self._usable and self.is_open and not self._transport.get_write_buffer_size():
            self.slow_down(False)
            self._keep(self)
        else:
            self.close()

    def _unsaid(self, exc: Exception | None) -> Exception:
        """Why there is no head."""
        if exc is not None:
            return aiohttp.ClientOSError(*exc.args)
        if self._given_up:
            return aiohttp.ClientConnectionError("it was closed on this side")
        return aiohttp.ServerDisconnectedError()

    def _fail(self, failure: Exception) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            if self._head is not None and not self._head.done():
                self._head.set_exception(failure)
            else:
                answer.fail(failure)
        self._head = None
        self.resume_writing()
        self.close()


def _lasts_until_the_end(answer: Answer) -> bool:
    """Whether the end of the connection is the end of the body."""
    return "Content-Length" not in answer.headers and "Transfer-Encoding" not in answer.headers


def _has_news(descriptor: int) -> bool:
    """Whether a socket has something to read, without reading it."""
    if sys.platform == "win32":
        return bool(select.select([descriptor], [], [], 0)[0])
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(0))
