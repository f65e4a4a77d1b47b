"""What a server answered to one request: its head at once, its body piece by piece."""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from typing import Protocol

import aiohttp
from multidict import CIMultiDict

from toolyard.net.http1.gzip_body import Gzip, RatioExceeded

__all__ = ["PIECE", "Answer", "NotHttp"]

PIECE = 256 * 1024
"""Bytes that wait for their reader before the server is slowed down, and that one packed piece may become."""
_BADLY_PACKED = "its body is not packed as it says"


class NotHttp(aiohttp.ClientError):
    """The server said something that is no HTTP, or none that was asked for."""


class Source(Protocol):
    """Where the pieces of an answer come from."""

    def slow_down(self, slow: bool) -> None:
        """Whether to wait with reading more."""
        ...

    def close(self) -> None:
        """Nobody reads the rest."""
        ...


class Answer:
    """One answer. Its connection is used again once all of it came; ``close`` gives up what did not."""

    __slots__ = (
        "_complete",
        "_failure",
        "_packed",
        "_pieces",
        "_size",
        "_source",
        "_waiter",
        "headers",
        "reason",
        "status",
    )

    def __init__(self, source: Source) -> None:
        self.status = 0
        self.reason = ""
        self.headers: CIMultiDict[str] = CIMultiDict()
        self._source = source
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._packed: Gzip | None = None
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
        return int(text) if number and self._packed is None else None

    @property
    def ended(self) -> bool:
        """Whether everything came and was read."""
        return self._complete and not self._waits

    async def more(self) -> bytes:
        """The next piece of the body; empty once there is no more. Raises aiohttp.ClientError."""
        while True:
            if self._waits:
                piece = self._next()
                if self._packed is not None:
                    # One received piece unpacks to many, or to nothing at all: let other tasks run.
                    await asyncio.sleep(0)
                if piece:
                    return piece
            elif self._failure is not None:
                # Another one each time: an error keeps the frames that it passed, and these keep this.
                raise type(self._failure)(*self._failure.args)
            elif self._complete:
                if self._packed is not None and not self._packed.is_whole:
                    raise NotHttp(_BADLY_PACKED)
                return b""
            else:
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter

    def close(self) -> None:
        """Give up what has not come yet, and its connection with it. Nothing where all came."""
        if not self._complete:
            self._source.close()

    # For the connection.

    def begin(self) -> None:
        """The head is there. Raises NotHttp where the body is packed in a way that nobody asked for."""
        packing = self.headers.get("Content-Encoding", "identity").strip().lower()
        if packing in ("gzip", "x-gzip"):
            self._packed = Gzip(PIECE)
        elif packing not in ("identity", ""):
            raise NotHttp(f"its body is packed as {packing[:40]!r}, which it was not asked for")

    def feed(self, piece: bytes) -> None:
        """A piece of the body came."""
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > PIECE:
            self._source.slow_down(True)
        self._wake()

    def end(self) -> None:
        """All of it came."""
        self._complete = True
        self._wake()

    def fail(self, failure: Exception) -> None:
        """No more will come."""
        self._failure = failure
        self._wake()

    @property
    def _waits(self) -> bool:
        return bool(self._pieces) or (self._packed is not None and self._packed.has_more)

    def _next(self) -> bytes:
        if self._packed is None:
            return self._taken()
        if not self._packed.has_more:
            self._packed.feed(self._taken())
        try:
            # A small piece can become very much: it is unpacked as far as somebody reads it.
            return self._packed.unpack()
        except zlib.error:
            self.close()
            raise NotHttp(_BADLY_PACKED) from None
        except RatioExceeded as error:
            self.close()
            raise NotHttp(str(error)) from None

    def _taken(self) -> bytes:
        piece = self._pieces.popleft()
        slow = self._size > PIECE
        self._size -= len(piece)
        if slow and self._size <= PIECE and not self._complete:
            self._source.slow_down(False)
        return piece

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
