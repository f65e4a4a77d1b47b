"""What a server answered to one request: its head at once, its body piece by piece."""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from typing import Protocol

import aiohttp
from multidict import CIMultiDict

from toolyard.net.http1.gzip_body import GzipDecoder, RatioExceeded

__all__ = ["MAX_BUFFERED_BYTES", "HttpProtocolError", "HttpResponse"]

MAX_BUFFERED_BYTES = 256 * 1024
"""Bytes that wait for their reader before the server is slowed down, and that one packed piece may become."""
_INVALID_GZIP_MESSAGE = "its body is not packed as it says"


class HttpProtocolError(aiohttp.ClientError):
    """The server said something that is no HTTP, or none that was asked for."""


class BodySource(Protocol):
    """Where the pieces of an answer come from."""

    def set_paused(self, paused: bool) -> None:
        """Whether to wait with reading more."""
        ...

    def close(self) -> None:
        """Nobody reads the rest."""
        ...


class HttpResponse:
    """One answer. Its connection is used again once all of it came; ``close`` gives up what did not."""

    __slots__ = (
        "_buffered_bytes",
        "_complete",
        "_failure",
        "_gzip",
        "_pieces",
        "_source",
        "_waiter",
        "headers",
        "reason",
        "status",
    )

    def __init__(self, source: BodySource) -> None:
        self.status = 0
        self.reason = ""
        self.headers: CIMultiDict[str] = CIMultiDict()
        self._source = source
        self._pieces: deque[bytes] = deque()
        self._buffered_bytes = 0
        self._gzip: GzipDecoder | None = None
        self._complete = False
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def content_type(self) -> str:
        """The kind of the body, in small letters and without its parameters."""
        kind = self.headers.get("Content-Type", "")
        # What servers of MCP say, said as they say it.
        return kind if kind == "application/json" else kind.partition(";")[0].strip().lower()

    @property
    def content_length(self) -> int | None:
        """How long the body will be, where the server says so and does not pack it."""
        text = self.headers.get("Content-Length", "")
        number = text.isascii() and text.isdigit() and len(text) < 20
        return int(text) if number and self._gzip is None else None

    @property
    def is_finished(self) -> bool:
        """Whether everything came and was read."""
        return self._complete and not self._has_data

    async def more(self) -> bytes:
        """The next piece of the body; empty once there is no more. Raises aiohttp.ClientError."""
        while True:
            if self._has_data:
                piece = self._next_chunk()
                if self._gzip is not None:
                    # One received piece unpacks to many, or to nothing at all: let other tasks run.
                    await asyncio.sleep(0)
                if piece:
                    return piece
            elif self._failure is not None:
                # Another one each time: an error keeps the frames that it passed, and these keep this.
                raise type(self._failure)(*self._failure.args)
            elif self._complete:
                if self._gzip is not None and not self._gzip.is_complete:
                    raise HttpProtocolError(_INVALID_GZIP_MESSAGE)
                return b""
            else:
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter

    def close(self) -> None:
        """Give up what has not come yet, and its connection with it. Nothing where all came."""
        if not self._complete:
            self._source.close()

    # For the connection.

    def begin_body(self) -> None:
        """The head is there. Raises NotHttp where the body is packed in a way that nobody asked for."""
        packing = self.headers.get("Content-Encoding", "identity").strip().lower()
        if packing in ("gzip", "x-gzip"):
            self._gzip = GzipDecoder(MAX_BUFFERED_BYTES)
        elif packing not in ("identity", ""):
            raise HttpProtocolError(f"its body is packed as {packing[:40]!r}, which it was not asked for")

    def feed(self, piece: bytes) -> None:
        """A piece of the body came."""
        self._pieces.append(piece)
        self._buffered_bytes += len(piece)
        if self._buffered_bytes > MAX_BUFFERED_BYTES:
            self._source.set_paused(True)
        self._wake_reader()

    def end(self) -> None:
        """All of it came."""
        self._complete = True
        self._wake_reader()

    def fail(self, failure: Exception) -> None:
        """No more will come."""
        self._failure = failure
        self._wake_reader()

    @property
    def _has_data(self) -> bool:
        return bool(self._pieces) or (self._gzip is not None and self._gzip.has_more)

    def _next_chunk(self) -> bytes:
        if self._gzip is None:
            return self._take_piece()
        if not self._gzip.has_more:
            self._gzip.feed(self._take_piece())
        try:
            # A small piece can become very much: it is unpacked as far as somebody reads it.
            return self._gzip.decompress()
        except zlib.error:
            self.close()
            raise HttpProtocolError(_INVALID_GZIP_MESSAGE) from None
        except RatioExceeded as error:
            self.close()
            raise HttpProtocolError(str(error)) from None

    def _take_piece(self) -> bytes:
        piece = self._pieces.popleft()
        slow = self._buffered_bytes > MAX_BUFFERED_BYTES
        self._buffered_bytes -= len(piece)
        if slow and self._buffered_bytes <= MAX_BUFFERED_BYTES and not self._complete:
            self._source.set_paused(False)
        return piece

    def _wake_reader(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
