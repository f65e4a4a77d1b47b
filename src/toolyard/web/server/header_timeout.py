"""Limits on what the HTTP server does by itself, before and after the application reads a request."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import get_remote_addr

from toolyard.web.server.connection_limits import ConnectionLimits

__all__ = ["MAX_REQUEST_HEAD_BYTES", "REQUEST_HEAD_TIMEOUT_SECONDS", "BoundedHttpProtocol"]

REQUEST_HEAD_TIMEOUT_SECONDS = 20.0
"""From the first byte of a request to the end of its head."""
MAX_REQUEST_HEAD_BYTES = 64 * 1024
"""Bytes of a request line and its headers."""
_NO_CAPACITY_RESPONSE = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)
_UPGRADE_HEADER_PATTERN = re.compile(rb"\r\nupgrade:", re.IGNORECASE)


class BoundedHttpProtocol(HttpToolsProtocol):
    """Uvicorn's protocol, with bounds for each connection.

    Heads of requests have a clock, a size and a number of headers. A body that was answered before it was
    read is discarded as it arrives, within bounds, so that the client gets to see the response. (Uvicorn
    itself stops reading after 64 KiB of a body that the application does not ask for.)
    """

    limits: ConnectionLimits | None = None
    first_byte_seconds = 5.0
    """From the connection to the first byte; later requests have the time of keep-alive for it."""
    head_seconds = REQUEST_HEAD_TIMEOUT_SECONDS
    discard_seconds = 60.0
    max_discarded_bytes = 16 * 1024 * 1024
    max_headers = 256
    max_pipelined = 16

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._timer: asyncio.TimerHandle | None = None
        self._received_bytes = 0
        """Bytes of the head, or of the body that is discarded."""
        self._in_head = False
        self._in_body = False
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first byte, if there is a place for the connection."""
        peer = get_remote_addr(transport)
        if self.limits is not None and not self.limits.add(self, peer[0] if peer else ""):
            self._refused = True
            transport.write(_NO_CAPACITY_RESPONSE)
            transport.close()
            return
        super().connection_made(transport)
        self._schedule_close(self.first_byte_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock, and give the place away."""
        if self._refused:
            return
        if self.limits is not None:
            self.limits.remove(self)
        self._cancel_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take more of a head, of a body, or of both."""
        begins = not self._in_head and not self._in_body and self._is_answered
        if begins:
            self._cancel_timer()
            self._in_head, self._received_bytes = True, 0
            if self.limits is not None:
                self.limits.mark_busy(self)
        self._received_bytes += len(data)
        super().data_received(_mask_upgrade_header(data) if self._in_head else data)
        if self.transport.is_closing():
            return
        if self._in_head:
            # Most heads come whole: only one that did not needs a clock.
            if begins:
                self._schedule_close(self.head_seconds)
            if self._received_bytes > MAX_REQUEST_HEAD_BYTES:
                self._close_transport()
        elif self._in_body:
            if self._is_answered and self._received_bytes > self.max_discarded_bytes:
                self._close_transport()
        elif self._is_answered and self.timeout_keep_alive_task is None:
            # The end of a discarded body: uvicorn took its timer back when the rest arrived.
            if self.limits is not None:
                self.limits.mark_idle(self)
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count headers: each costs many times the bytes that it was sent with."""
        if len(self.headers) >= self.max_headers:
            raise ValueError("too many headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        if len(self.pipeline) >= self.max_pipelined:
            raise ValueError("too many pipelined requests")
        self._in_head, self._in_body = False, True
        self._cancel_timer()
        super().on_headers_complete()
        if self.expect_100_continue:
            # Whether the body follows is up to the client, so another request cannot be told from it.
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """The body is whole."""
        self._in_body = False
        self._cancel_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Discard what is still to come of the body."""
        super().on_response_complete()
        if not self._is_answered or self.transport.is_closing():
            return
        if self._in_body:
            self._received_bytes = 0
            self._schedule_close(self.discard_seconds)
        elif self.limits is not None and not self._in_head:
            self.limits.mark_idle(self)

    def evict(self) -> None:
        """Close the connection, because another one needs its place."""
        self._close_transport()

    @property
    def _is_answered(self) -> bool:
        """Whether no request of this connection waits for its response."""
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
        # Nobody who means well is still there to read an answer.
        self.transport.close()


def _mask_upgrade_header(data: bytes) -> bytes:
    """The head of a request that offers to speak something else, as Java's client offers HTTP/2, without the
    offer: we take none, and the parser would leave the body to that other protocol."""
    if _UPGRADE_HEADER_PATTERN.search(data) is None:
        return data
    head, end, body = data.partition(b"\r\n\r\n")
    return _UPGRADE_HEADER_PATTERN.sub(b"\r\nX-Upgrade:", head) + end + body
