"""The gateway over standard streams: one message per line, and nothing else on standard output."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import BinaryIO

from toolyard.gateway.endpoint import Endpoint
from toolyard.gateway.stdio.session import StdioSession
from toolyard.protocol.codec import encode
from toolyard.protocol.framing import LineFramer, OversizeLine
from toolyard.protocol.incremental_decoder import decode_message
from toolyard.protocol.pending import Message

__all__ = ["serve_streams"]

_READ_CHUNK_BYTES = 256 * 1024
_MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Maximum size of one message."""
_MAX_UNSENT_BYTES = 2 * 1024 * 1024
"""Size of unsent output beyond which everything but responses is dropped: the client does not read."""
_DRAIN_TIMEOUT_SECONDS = 5.0
"""Time for the remaining responses after the input has ended, as with a pipe."""
_POLL_HANG_UP_FLAG = getattr(select, "POLLRDHUP", 0)
"""Poll flag for a socket whose other end no longer writes. For a pipe, or a socket without a peer, it is
reported without being requested."""


async def serve_streams(endpoint: Endpoint, source: BinaryIO, sink: BinaryIO) -> None:
    """Serve messages from ``source`` until it ends or ``sink`` is closed."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_READ_CHUNK_BYTES)
    incoming, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
    outgoing, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sink)
    outgoing.set_write_buffer_limits(high=0)
    writer = asyncio.StreamWriter(outgoing, protocol, None, loop)

    def send_to_client(message: Message) -> None:
        is_response = "method" not in message
        if not outgoing.is_closing() and (
            is_response or outgoing.get_write_buffer_size() <= _MAX_UNSENT_BYTES
        ):
            writer.write(encode(message) + b"\n")

    channel = StdioSession(endpoint, send_to_client)
    try:
        await _read_messages(channel, reader, writer, lambda: incoming.is_closing() or _is_hung_up(source))
        await channel.finish(_DRAIN_TIMEOUT_SECONDS)
        async with asyncio.timeout(_DRAIN_TIMEOUT_SECONDS):
            await writer.drain()
    except (BrokenPipeError, ConnectionResetError, TimeoutError):
        pass
    finally:
        await channel.close()
        incoming.close()
        outgoing.close()


async def _read_messages(
    channel: StdioSession,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    ended: Callable[[], bool],
) -> None:
    framer = LineFramer(_MAX_MESSAGE_BYTES)
    while chunk := await reader.read(_READ_CHUNK_BYTES):
        for line in framer.feed(chunk):
            if isinstance(line, OversizeLine):
                channel.reject_unreadable()
                continue
            if not bytes(line[:1000]).strip():
                continue
            try:
                message = await decode_message(line)
            except ValueError:
                channel.reject_unreadable()
                continue
            channel.receive(message)
        # Backpressure: a client that does not read its messages is not read from either.
        await _drain_writer(writer, ended)


async def _drain_writer(writer: asyncio.StreamWriter, ended: Callable[[], bool]) -> None:
    """Wait until all output is written.

    Raises TimeoutError if the input has ended as well, since then nobody may be reading. A client that still
    sends requests may take its time.
    """
    while True:
        try:
            async with asyncio.timeout(_DRAIN_TIMEOUT_SECONDS):
                return await writer.drain()
        except TimeoutError:
            if ended():
                raise


def _is_hung_up(source: BinaryIO) -> bool:
    """Return whether the input has ended, even if buffered input is left."""
    poll = select.poll()
    poll.register(source, _POLL_HANG_UP_FLAG)
    return bool(poll.poll(0))
