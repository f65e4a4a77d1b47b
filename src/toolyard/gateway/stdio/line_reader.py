"""Lines of a client on a socket, handled in the callback that reads them.

A task that waits for each chunk would cost another turn of the event loop for every message.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from toolyard.gateway.stdio.local_gateway import MAX_MESSAGE_BYTES, MessageReceiver
from toolyard.protocol.codec import decode
from toolyard.protocol.framing import Line, LineFramer, MessageBytes, OversizeLine
from toolyard.protocol.incremental_decoder import MAX_ONE_STEP_BYTES, decode_message

__all__ = ["LineReader"]


class LineReader(asyncio.Protocol):
    """Passes each line of a transport to a receiver, in order. A client that does not read its messages is
    not read from either."""

    def __init__(self, receiver: MessageReceiver, transport: asyncio.Transport) -> None:
        """Become the protocol of the transport, whose earlier input must have been read."""
        self._receiver = receiver
        self._transport = transport
        self._framer = LineFramer(MAX_MESSAGE_BYTES)
        self._waiting: deque[Line] = deque()
        self._decoding: asyncio.Task[None] | None = None
        """Task that decodes a long line, which the lines after it wait for."""
        self._has_ended = False
        self._end: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._is_writable = asyncio.Event()
        self._is_writable.set()
        transport.set_protocol(self)

    async def wait_for_end(self) -> bool:
        """Return True once the input has ended, or False if it was stopped or the connection is lost."""
        return await self._end

    async def drain(self) -> None:
        """Wait until the output is written, but for a part that the system takes soon."""
        await self._is_writable.wait()

    def stop(self) -> None:
        """Read no more."""
        self._waiting.clear()
        if self._decoding is not None:
            self._decoding.cancel()
        self._pause()
        if not self._end.done():
            self._end.set_result(False)

    # Callbacks of the transport.

    def data_received(self, data: bytes) -> None:
        if self._end.done():
            return
        self._waiting += self._framer.feed(data)
        if self._decoding is None:
            self._handle_lines()

    def eof_received(self) -> bool:
        self._has_ended = True
        self._check_end()
        return True  # The answers are still to be written.

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_writable.set()
        self.stop()

    def pause_writing(self) -> None:
        self._is_writable.clear()
        self._pause()

    def resume_writing(self) -> None:
        self._is_writable.set()
        self._resume()

    # Lines.

    def _handle_lines(self) -> None:
        receiver = self._receiver
        while self._waiting:
            line = self._waiting.popleft()
            if isinstance(line, OversizeLine):
                receiver.reject_unreadable()
            elif not bytes(line[:1000]).strip():
                receiver.skip_blank()
            elif len(line) > MAX_ONE_STEP_BYTES:
                self._pause()
                self._decoding = asyncio.get_running_loop().create_task(self._handle_long_line(line))
                return
            else:
                try:
                    message = decode(line)
                except ValueError:
                    receiver.reject_unreadable()
                else:
                    receiver.receive(message)
        self._check_end()

    async def _handle_long_line(self, line: MessageBytes) -> None:
        try:
            message = await decode_message(line)
        except ValueError:
            self._receiver.reject_unreadable()
        else:
            self._receiver.receive(message)
        self._decoding = None
        self._resume()
        self._handle_lines()

    def _check_end(self) -> None:
        if self._has_ended and not self._waiting and self._decoding is None and not self._end.done():
            self._end.set_result(True)

    def _pause(self) -> None:
        with contextlib.suppress(RuntimeError):  # It is closing, or paused already.
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._is_writable.is_set() and self._decoding is None and not self._end.done():
            with contextlib.suppress(RuntimeError):
                self._transport.resume_reading()
