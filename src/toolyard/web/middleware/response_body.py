"""Bodies of responses of pages, API and static files: compressed with gzip, and none for HEAD.

Event streams are not compressed, since each event must arrive at once; the gateway does not pass through
here. Secrets in pages are safe from BREACH: the CSRF token is masked differently on each page.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["ResponseBodies", "accepts_gzip"]

_MIN_BYTES = 1000
_MAX_INLINE_BYTES = 100_000
"""Bodies that are longer are compressed in a thread, because it takes milliseconds."""
_GZIP_LEVEL = 5
_GZIP_WINDOW_BITS = 31
_COMPRESSIBLE_TYPES = ("text/", "application/json", "application/problem+json", "image/svg+xml")
_EVENT_STREAM_TYPE = "text/event-stream"


class ResponseBodies:
    """ASGI middleware that compresses responses for clients that accept gzip, and handles a HEAD request as a
    GET request without the body of the response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if scope["method"] == "HEAD":
                await self._respond_without_body(scope, send)
                return
            if accepts_gzip(Headers(scope=scope)):
                send = _CompressedResponse(send).send
        await self._app(scope, receive, send)

    async def _respond_without_body(self, scope: Scope, send: Send) -> None:
        started = asyncio.Event()
        requests = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive_disconnect() -> Message:
            # The response needs no more than its start: an event stream would never end.
            if requests:
                return requests.pop()
            await started.wait()
            return {"type": "http.disconnect"}

        async def send_start(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                started.set()

        await self({**scope, "method": "GET"}, receive_disconnect, send_start)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def accepts_gzip(headers: Headers) -> bool:
    """Return whether a request allows a response that is compressed with gzip."""
    for part in headers.get("accept-encoding", "").lower().split(","):
        name, _, quality = part.partition(";")
        if name.strip() == "gzip":
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


class _CompressedResponse:
    """Sends one response. Its start waits for the first part of the body, which decides."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._compressor: Any = None
        """Takes 260 KB, which event streams and small responses do without; None until it is needed."""

    async def send(self, message: Message) -> None:
        """Send a message of the application."""
        if message["type"] == "http.response.start":
            self._start = message
            return
        if message["type"] != "http.response.body":
            await self._send(message)
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if self._start is not None:
            start, self._start = self._start, None
            if _is_compressible(start, len(body), more=more):
                self._compressor = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_WINDOW_BITS)
            if self._compressor is not None and not more:
                body = await self._compress(body, is_last=True)
                _set_headers(start, len(body))
                await self._send(start)
                await self._send({**message, "body": body})
                return
            if self._compressor is not None:
                _set_headers(start, None)
            await self._send(start)
        if self._compressor is not None:
            message = {**message, "body": await self._compress(body, is_last=not more)}
        await self._send(message)

    async def _compress(self, body: bytes, *, is_last: bool) -> bytes:
        def compress() -> bytes:
            compressed = self._compressor.compress(body)
            return compressed + self._compressor.flush() if is_last else compressed

        return compress() if len(body) <= _MAX_INLINE_BYTES else await asyncio.to_thread(compress)


def _is_compressible(start: Message, size: int, *, more: bool) -> bool:
    headers = Headers(raw=start["headers"])
    media_type = headers.get("content-type", "")
    return (
        (more or size >= _MIN_BYTES)
        and start["status"] not in (204, 206, 304)
        and media_type.startswith(_COMPRESSIBLE_TYPES)
        and not media_type.startswith(_EVENT_STREAM_TYPE)
        and "content-encoding" not in headers
    )


def _set_headers(start: Message, size: int | None) -> None:
    headers = MutableHeaders(raw=list(start["headers"]))
    headers["Content-Encoding"] = "gzip"
    headers.add_vary_header("Accept-Encoding")
    if size is not None:
        headers["Content-Length"] = str(size)
    else:
        del headers["Content-Length"]
    # A strong validator stands for the same bytes.
    if headers.get("etag", "").startswith('"'):
        headers["ETag"] = f"W/{headers['etag']}"
    start["headers"] = headers.raw
