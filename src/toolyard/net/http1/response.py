"""HTTP response: the head is available at once, the body is read in chunks, which are decompressed as far as
they are read."""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from typing import Protocol

import aiohttp
from multidict import CIMultiDict

__all__ = [
    "MAX_BUFFERED_BYTES",
    "GzipDecoder",
    "HttpProtocolError",
    "HttpResponse",
    "RatioExceeded",
]


_GZIP_WINDOW_BITS = 16 + zlib.MAX_WBITS
_MAX_COMPRESSION_RATIO = 100
_RATIO_EXEMPT_BYTES = 1024 * 1024
"""Number of decompressed bytes up to which no compression ratio is enforced."""
_WINDOW_BYTES = 8 * 1024
"""Number of compressed bytes processed in one step. zlib copies all input after the end of a gzip member, and
members can be tiny: larger steps would cost quadratic time."""


class RatioExceeded(Exception):
    """Raised for a body that decompresses to far more than its compressed size (a decompression bomb)."""


class GzipDecoder:
    """Decompressor of one body, which may consist of several gzip members (RFC 1952)."""

    def __init__(self) -> None:
        self._compressed_bytes = 0
        self._decompressed_bytes = 0
        self._member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        self._chunk = b""
        self._position = 0
        self.is_complete = True
        """True if the data so far ends with a complete member, so that the body may end here."""

    @property
    def has_more(self) -> bool:
        """True if received data has not been decompressed yet."""
        return self._position < len(self._chunk)

    def feed(self, chunk: bytes) -> None:
        """Add received data. All earlier data must have been decompressed (see ``has_more``)."""
        self._chunk, self._position = chunk, 0

    def decompress(self) -> bytes:
        """Return the next decompressed bytes, at most ``MAX_BUFFERED_BYTES``, possibly none.

        Raise zlib.error or RatioExceeded.
        """
        if self._member.eof:
            self._member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        window = self._chunk[self._position : self._position + _WINDOW_BYTES]
        data = self._member.decompress(window, MAX_BUFFERED_BYTES)
        self.is_complete = self._member.eof
        # zlib reports the rest of the input in one of two places: after the end of a member as unused,
        # otherwise, if the output is full, as unconsumed.
        used = len(window) - len(self._member.unused_data or self._member.unconsumed_tail)
        self._position += used
        self._compressed_bytes += used
        self._decompressed_bytes += len(data)
        if self._decompressed_bytes > max(
            _RATIO_EXEMPT_BYTES, self._compressed_bytes * _MAX_COMPRESSION_RATIO
        ):
            raise RatioExceeded(f"the body decompresses to more than {_MAX_COMPRESSION_RATIO} times its size")
        return data


MAX_BUFFERED_BYTES = 256 * 1024
"""Number of bytes that are buffered for the reader before the connection stops reading from the socket; also
the maximum size of one decompressed chunk."""
_INVALID_GZIP_MESSAGE = "the body is not valid gzip data"


class HttpProtocolError(aiohttp.ClientError):
    """Raised for data from the server that is not valid HTTP, or that was not requested."""


class BodyFlowControl(Protocol):
    """Control of the connection by the reader of a response: pause it, or close it early."""

    def set_paused(self, paused: bool) -> None:
        """Stop or continue to read from the socket."""
        ...

    def close(self) -> None:
        """Close the connection, because the rest of the body is not needed."""
        ...


class HttpResponse:
    """One response. Its connection is reused once the body is complete; ``close`` abandons an incomplete
    one."""

    __slots__ = (
        "_buffered_bytes",
        "_chunks",
        "_complete",
        "_failure",
        "_flow_control",
        "_gzip",
        "_waiter",
        "headers",
        "reason",
        "status",
    )

    def __init__(self, flow_control: BodyFlowControl) -> None:
        self.status = 0
        self.reason = ""
        self.headers: CIMultiDict[str] = CIMultiDict()
        self._flow_control = flow_control
        self._chunks: deque[bytes] = deque()
        self._buffered_bytes = 0
        self._gzip: GzipDecoder | None = None
        self._complete = False
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def content_type(self) -> str:
        """Media type of the body, in lower case and without parameters."""
        value = self.headers.get("Content-Type", "")
        # Fast path for the exact value that most MCP servers send.
        return value if value == "application/json" else value.partition(";")[0].strip().lower()

    @property
    def content_length(self) -> int | None:
        """Size of the body in bytes, or None if it is not declared or the body is compressed."""
        text = self.headers.get("Content-Length", "")
        is_number = text.isascii() and text.isdigit() and len(text) < 20
        return int(text) if is_number and self._gzip is None else None

    @property
    def is_finished(self) -> bool:
        """True if the whole body has arrived and has been read."""
        return self._complete and not self._has_data

    async def read_chunk(self) -> bytes:
        """Return the next chunk of the body, or b"" at its end. Raise aiohttp.ClientError."""
        while True:
            if self._has_data:
                chunk = self._read_decompressed()
                if self._gzip is not None:
                    # One received chunk may decompress to many, or to nothing at all: let other tasks run.
                    await asyncio.sleep(0)
                if chunk:
                    return chunk
            elif self._failure is not None:
                # A copy each time: the traceback of a raised error references frames that reference this
                # response, which would keep the stored error and all of them alive in a cycle.
                raise type(self._failure)(*self._failure.args)
            elif self._complete:
                if self._gzip is not None and not self._gzip.is_complete:
                    raise HttpProtocolError(_INVALID_GZIP_MESSAGE)
                return b""
            else:
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter

    def close(self) -> None:
        """Abandon the rest of the body together with the connection. No effect if the body is complete."""
        if not self._complete:
            self._flow_control.close()

    # Called by the connection.

    def begin_body(self) -> None:
        """Prepare for the body once the head is complete. Raise HttpProtocolError for a content encoding that
        was not requested."""
        encoding = self.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding in ("gzip", "x-gzip"):
            self._gzip = GzipDecoder()
        elif encoding not in ("identity", ""):
            raise HttpProtocolError(
                f"the body has the content encoding {encoding[:40]!r}, which was not requested"
            )

    def feed(self, chunk: bytes) -> None:
        """Add a chunk of the body, and pause reading if too much is buffered."""
        self._chunks.append(chunk)
        self._buffered_bytes += len(chunk)
        if self._buffered_bytes > MAX_BUFFERED_BYTES:
            self._flow_control.set_paused(True)
        self._wake_reader()

    def end(self) -> None:
        """Mark the body as complete."""
        self._complete = True
        self._wake_reader()

    def fail(self, failure: Exception) -> None:
        """Make the reader fail once it has read the chunks that arrived before."""
        self._failure = failure
        self._wake_reader()

    @property
    def _has_data(self) -> bool:
        return bool(self._chunks) or (self._gzip is not None and self._gzip.has_more)

    def _read_decompressed(self) -> bytes:
        if self._gzip is None:
            return self._take_chunk()
        if not self._gzip.has_more:
            self._gzip.feed(self._take_chunk())
        try:
            # Decompressed only as far as it is read, because a small chunk may become very large.
            return self._gzip.decompress()
        except zlib.error:
            self.close()
            raise HttpProtocolError(_INVALID_GZIP_MESSAGE) from None
        except RatioExceeded as error:
            self.close()
            raise HttpProtocolError(str(error)) from None

    def _take_chunk(self) -> bytes:
        chunk = self._chunks.popleft()
        was_paused = self._buffered_bytes > MAX_BUFFERED_BYTES
        self._buffered_bytes -= len(chunk)
        # After the end of the body the connection may serve another request already, whose reading is not
        # ours to control.
        if was_paused and self._buffered_bytes <= MAX_BUFFERED_BYTES and not self._complete:
            self._flow_control.set_paused(False)
        return chunk

    def _wake_reader(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
