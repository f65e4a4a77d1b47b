"""HTTP protocol with limits for the phases that the application does not see.

These are the wait for a request, the request head, and the rest of a body after an early response.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from typing import Any, cast
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import get_remote_addr

from toolyard.web.access.request_context import BODY_ARRIVED_KEY
from toolyard.web.http_server.connection_limits import ConnectionLimits

__all__ = ["MAX_REQUEST_HEAD_BYTES", "REQUEST_HEAD_TIMEOUT_SECONDS", "BoundedHttpProtocol"]

REQUEST_HEAD_TIMEOUT_SECONDS = 20.0
"""Maximum time from the first byte of a request to the end of its head, in seconds."""
MAX_REQUEST_HEAD_BYTES = 64 * 1024
"""Maximum size of a request line and its headers, in bytes."""
_MAX_UNPROTECTED_BYTES = 64 * 1024
"""Bytes of a request after which a connection counts as busy, although the request is incomplete. Only users
who are signed in may send as many."""
_NO_CAPACITY_RESPONSE = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)
_UPGRADE_HEADER_PATTERN = re.compile(rb"\r\nupgrade:", re.IGNORECASE)
_MAX_JOINED_BYTES = 64 * 1024
"""Maximum length of a body that is copied behind its head. To copy a longer one costs more than a write."""
_FRAMING_HEADERS = (b"content-length", b"transfer-encoding", b"connection")
_NAME_BYTES = bytes(set(range(0x21, 0x100)) - {0x7F, *b'()<>@,;:\\[]={}"'})
"""Bytes that uvicorn allows in the name of a header."""
_VALUE_BYTES = bytes({0x09, *range(0x20, 0x100)} - {0x7F})
"""Bytes that uvicorn allows in the value of a header."""


class _ResponseCycle(RequestResponseCycle):
    """Uvicorn's cycle of a request and its response, with fewer system calls for short responses.

    The head of a response with a Content-Length waits for the body, as ASGI requires: each write costs more
    than to build the head, and may wake up the client before there is anything for it to do. All other
    responses, such as event streams, are left to uvicorn, which writes their head at once.
    """

    _held_head = b""

    async def send(self, message: Any) -> None:
        """Send a message of the application."""
        if self.response_complete or self.disconnected or self.flow.write_paused:
            await self._send_held_and(message)
        elif not self.response_started and message["type"] == "http.response.start":
            head = self._build_head(message["status"], message.get("headers", ()))
            if head is None:
                await super().send(message)
            else:
                self.response_started, self.waiting_for_100_continue = True, False
                self._held_head = head
        elif self._held_head and message["type"] == "http.response.body":
            body, is_last = message.get("body", b""), not message.get("more_body", False)
            if is_last and len(body) == self.expected_content_length <= _MAX_JOINED_BYTES:
                self.transport.write(self._held_head + body)
                self._held_head, self.expected_content_length = b"", 0
                self.response_complete = True
                self.message_event.set()
                if not self.keep_alive:
                    self.transport.close()
                self.on_response()
            else:
                await self._send_held_and(message)
        else:
            await super().send(message)

    async def _send_held_and(self, message: Any) -> None:
        if self._held_head and not self.disconnected:
            head, self._held_head = self._held_head, b""
            self.transport.write(head)
        await super().send(message)

    def _build_head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
        """Return the head of a response with a known length, or None for any other."""
        if self.access_log or self.scope["method"] == "HEAD":
            return None
        parts, names, values, length = [STATUS_LINE[status]], b"", b"", b""
        for name, value in (*self.default_headers, *headers):
            name = name.lower()
            if name in _FRAMING_HEADERS:
                if length or name != b"content-length":
                    return None
                length = value
            names += name
            values += value
            parts += (name, b": ", value, b"\r\n")
        if not length or names.translate(None, _NAME_BYTES) or values.translate(None, _VALUE_BYTES):
            return None
        self.expected_content_length, self.chunked_encoding = int(length), False
        parts.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        return b"".join(parts)


class BoundedHttpProtocol(HttpToolsProtocol):
    """Uvicorn's protocol with limits for each connection.

    Request heads are limited in time, size and number of headers. If a request is answered before its body
    was read, the rest of the body is discarded as it arrives, within limits: a client that is still sending
    would see a connection reset instead of the response. (Uvicorn itself stops reading after 64 KiB of a body
    that the application does not consume.)
    """

    limits: ConnectionLimits | None = None
    first_byte_seconds = 5.0
    """Maximum time from connecting to the first byte; later requests have the keep-alive timeout."""
    head_seconds = REQUEST_HEAD_TIMEOUT_SECONDS
    discard_seconds = 60.0
    max_discarded_bytes = 16 * 1024 * 1024
    max_headers = 256
    max_pipelined = 16

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._timer: asyncio.TimerHandle | None = None
        self._received_bytes = 0
        """Bytes received of the current head, or of the body being discarded."""
        self._in_head = False
        self._in_body = False
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout for the first byte, or refuse the connection with 503 at the limit."""
        peer = get_remote_addr(transport)
        if self.limits is not None and not self.limits.add(self, peer[0] if peer else ""):
            # Without calling super(): uvicorn must not track a connection that is refused.
            self._refused = True
            transport.write(_NO_CAPACITY_RESPONSE)
            transport.close()
            return
        super().connection_made(transport)
        self._schedule_close(self.first_byte_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timer and stop counting the connection."""
        if self._refused:
            return
        if self.limits is not None:
            self.limits.remove(self)
        self._cancel_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser, and apply the limits of the phase that the connection is in."""
        # A connection waits for a request (neither flag is set), receives a head, or receives a body. The
        # parser calls on_headers_complete and on_message_complete from within super().data_received(), so
        # the flags may change there, and one piece of data may span several phases.
        is_new_request = not self._in_head and not self._in_body and self._is_answered
        if is_new_request:
            if self._timer is not None:
                self._cancel_timer()
            self._in_head, self._received_bytes = True, 0
        self._received_bytes += len(data)
        if self._in_head and _UPGRADE_HEADER_PATTERN.search(data) is not None:
            data = _mask_upgrade_header(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head:
            # Most heads arrive in one piece, so the timer is started only for incomplete ones.
            if is_new_request:
                self._schedule_close(self.head_seconds)
            if self._received_bytes > MAX_REQUEST_HEAD_BYTES or len(self.headers or ()) > self.max_headers:
                self._close_transport()
        elif self._in_body:
            if not self._is_answered:
                if self._received_bytes > _MAX_UNPROTECTED_BYTES and self.limits is not None:
                    self.limits.mark_busy(self)
            elif self._received_bytes > self.max_discarded_bytes:
                self._close_transport()
        elif self.timeout_keep_alive_task is None and self._is_answered:
            # End of a discarded body. Uvicorn cancelled its keep-alive timer when the data arrived.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_headers_complete(self) -> None:
        """Start the application, or queue a pipelined request; limit the number of headers and of such
        requests."""
        # An error in a callback makes the parser fail, and uvicorn respond with 400. Each header takes many
        # times its transmitted size in memory.
        if len(self.headers) > self.max_headers:
            raise ValueError("too many headers")
        if len(self.pipeline) >= self.max_pipelined:
            raise ValueError("too many pipelined requests")
        self._in_head, self._in_body = False, True
        if self._timer is not None:
            self._cancel_timer()
        # The rest as in uvicorn, with our own cycle.
        scope = self.scope
        parser: Any = self.parser
        app = cast("Any", self.app)  # pyright: ignore[reportUnknownMemberType]
        http_version: str = parser.get_http_version()
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope["method"] = parser.get_method().decode("ascii")
        scope["http_version"] = http_version
        scope["path"] = self.root_path + (unquote(path) if "%" in path else path)
        scope["raw_path"] = self.root_path.encode("ascii") + url.path
        scope["query_string"] = url.query or b""
        # After "Expect: 100-continue" the client may or may not send the body, so the next request could not
        # be told from it.
        keep_alive = http_version != "1.0" and parser.should_keep_alive() and not self.expect_100_continue
        is_answered = self._is_answered
        self.cycle = _ResponseCycle(
            scope,
            self.transport,
            self.flow,
            self.logger,
            self.access_logger,
            self.access_log,
            self.server_state.default_headers,
            asyncio.Event(),
            self.expect_100_continue,
            keep_alive,
            self.on_response_complete,
        )
        if is_answered:
            self._start_asgi_task(self.cycle, app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, app))

    def on_message_complete(self) -> None:
        """Note the end of the body."""
        self._in_body = False
        self.scope[BODY_ARRIVED_KEY] = True  # pyright: ignore[reportGeneralTypeIssues]
        if self._timer is not None:
            self._cancel_timer()
        super().on_message_complete()
        if not self._is_answered and self.limits is not None:
            self.limits.mark_busy(self)

    def on_response_complete(self) -> None:
        """Discard the rest of an unread body, or mark the connection as idle."""
        super().on_response_complete()
        if not self._is_answered or self.transport.is_closing():
            return
        if self._in_body:
            self._received_bytes = 0
            self._schedule_close(self.discard_seconds)
        if self.limits is not None:
            self.limits.mark_idle(self)

    def pause_writing(self) -> None:
        """Count a connection as idle while its client does not read the response."""
        super().pause_writing()
        if self.limits is not None:
            self.limits.mark_idle(self)

    def resume_writing(self) -> None:
        """Protect it again once the client reads."""
        super().resume_writing()
        if not self._is_answered and not self._in_body and self.limits is not None:
            self.limits.mark_busy(self)

    def evict(self) -> None:
        """Close the connection in favour of another one, without waiting for a client that does not read."""
        self._cancel_timer()
        self.transport.abort()

    @property
    def _is_answered(self) -> bool:
        """True if no request of this connection awaits its response."""
        return self.cycle is None or self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]

    def _schedule_close(self, seconds: float) -> None:
        self._cancel_timer()
        self._timer = self.loop.call_later(seconds, self._close_transport)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_transport(self) -> None:
        self._cancel_timer()
        # No error response: a well-behaved client does not exceed these limits.
        self.transport.close()


def _mask_upgrade_header(data: bytes) -> bytes:
    """Rename the Upgrade header in a request head.

    Java's client offers an upgrade to HTTP/2, for example. We never accept one, but the parser would stop at
    the end of such a head and leave the body to the other protocol.
    """
    head, end, body = data.partition(b"\r\n\r\n")
    return _UPGRADE_HEADER_PATTERN.sub(b"\r\nX-Upgrade:", head) + end + body
