"""The gateway over standard streams: one message a line, and nothing else on standard output."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import BinaryIO

from toolyard.gateway.endpoint import Front
from toolyard.gateway.stdio.session import Channel
from toolyard.protocol.codec import encode
from toolyard.protocol.framing import LineFramer, Oversize
from toolyard.protocol.incremental_decoder import decode_message
from toolyard.protocol.pending import Message

__all__ = ["serve_lines"]

_CHUNK = 256 * 1024
_LIMIT = 64 * 1024 * 1024
"""Bytes of one message."""
_LAST = 5.0
"""Seconds for answers to what was asked before the input ended, as when it comes out of a pipe."""
_HUNG_UP = getattr(select, "POLLRDHUP", 0)
"""Of a socket whose other end writes no more. Of a pipe, and of a socket without another end, it is told
unasked."""


async def serve_lines(front: Front, source: BinaryIO, sink: BinaryIO) -> None:
    """Answer what comes from ``source`` until it ends or nobody reads ``sink`` any more."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_CHUNK)
    incoming, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
    outgoing, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sink)
    outgoing.set_write_buffer_limits(high=0)
    writer = asyncio.StreamWriter(outgoing, protocol, None, loop)

    def tell(message: Message) -> None:
        if not outgoing.is_closing():
            writer.write(encode(message) + b"\n")

    channel = Channel(front, tell)
    try:
        await _converse(channel, reader, writer, lambda: incoming.is_closing() or _hung_up(source))
        await channel.finish(_LAST)
        async with asyncio.timeout(_LAST):
            await writer.drain()
    except (BrokenPipeError, ConnectionResetError, TimeoutError):
        pass
    finally:
        await channel.close()
        incoming.close()
        outgoing.close()


async def _converse(
    channel: Channel, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ended: Callable[[], bool]
) -> None:
    framer = LineFramer(_LIMIT)
    while chunk := await reader.read(_CHUNK):
        for line in framer.feed(chunk):
            if isinstance(line, Oversize):
                channel.unreadable()
                continue
            if not bytes(line[:1000]).strip():
                continue
            try:
                message = await decode_message(line)
            except ValueError:
                channel.unreadable()
                continue
            channel.receive(message)
        # Who does not read what they are told is not listened to either.
        await _drained(writer, ended)


async def _drained(writer: asyncio.StreamWriter, ended: Callable[[], bool]) -> None:
    """Until all was taken. Raises TimeoutError where nothing more is asked either: then nobody may be there.
    Who asks may take their time."""
    while True:
        try:
            async with asyncio.timeout(_LAST):
                return await writer.drain()
        except TimeoutError:
            if ended():
                raise


def _hung_up(source: BinaryIO) -> bool:
    """Whether nothing more can come, though not all that came was read."""
    poll = select.poll()
    poll.register(source, _HUNG_UP)
    return bool(poll.poll(0))
