"""What a connection needs of a transport, and what a transport tells its connection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from toolyard.errors import ServerError
from toolyard.protocol.byte_buffer import MessageBytes
from toolyard.protocol.framing import Line
from toolyard.protocol.incremental_decoder import MessageLimitExceeded
from toolyard.protocol.pending import Message

__all__ = [
    "MAX_MESSAGE_BYTES",
    "Receiver",
    "Transport",
    "TransportInfo",
    "describe_decode_error",
    "to_single_line",
]

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""The longest message, in bytes, that a transport takes in."""

_ANSI_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


def to_single_line(text: str, width: int = 200) -> str:
    """What a server said, fit to stand in a sentence of ours: one line, printable, not too long."""
    line = " ".join(_ANSI_ESCAPE.sub("", text[: width * 4]).split())
    return "".join(char if char.isprintable() else "\ufffd" for char in line[:width])


def describe_decode_error(data: MessageBytes, error: ValueError) -> str:
    """Return what is wrong with an answer that could not be decoded, with its beginning if it is not JSON."""
    if isinstance(error, MessageLimitExceeded):
        return f"its answer {error}"
    return f"its answer is no JSON: {to_single_line(str(data[:800], 'utf-8', 'replace'))}"


class Receiver(Protocol):
    """The connection's side. Called in the event loop, never blocking, never raising."""

    def on_message(self, message: object, size: int = 0) -> None:
        """One decoded JSON value came in, of whatever shape. ``size`` is its length in bytes; None stands for
        one that could not be decoded."""
        ...

    def should_decode(self, undecoded: Line) -> bool:
        """Return whether to decode a large message of a stream. A refused one has been counted."""
        ...

    def on_lost(self, error: ServerError) -> None:
        """Nothing more will come. Called at most once, and not after ``close``."""
        ...


@dataclass(slots=True)
class TransportInfo:
    """What a transport knows about the other end, for status records."""

    pid: int | None = None
    stderr: tuple[str, ...] = ()
    skipped_lines: int = 0
    """Lines that were no messages."""
    has_session: bool = False
    stream_reconnects: int = 0
    """How often the stream on which it speaks unasked was lost and came back, where no session would tell
    that it is another process since."""


class Transport(Protocol):
    """One way to one server.

    ``send`` of a request over HTTP returns when the answer has been handed to the receiver or the
    stream has ended; over a shared channel it returns once the message is on its way.
    """

    @property
    def cancels_on_disconnect(self) -> bool:
        """Abandoning ``send`` tells the server, so that no cancellation need be sent."""
        ...

    @property
    def mirrors_headers(self) -> bool:
        """Requests mirror parts of their body into headers."""
        ...

    async def open(self, receiver: Receiver) -> None:
        """Make the way. Raises Unreachable, and leaves nothing behind, where that fails."""
        ...

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Send one message. Raises a ServerError that tells whether the server may have seen it:
        Unreachable for no, OutcomeUnknown for perhaps, others for what it answered."""
        ...

    def set_protocol_version(self, version: str, *, modern: bool) -> None:
        """The revision that both sides agreed on."""
        ...

    def start_listening(self) -> None:
        """Begin to take in what the server sends of its own accord, where that needs a stream of its own."""
        ...

    def get_info(self) -> TransportInfo:
        """What is known about the other end right now."""
        ...

    async def close(self) -> None:
        """End it, within a bounded time, leaving no process, task or descriptor. May be called twice."""
        ...


@dataclass(slots=True)
class LogTail:
    """The last lines of a text, each cut to a bearable length."""

    max_lines: int = 100
    max_line_chars: int = 2000
    lines: list[str] = field(default_factory=list[str])

    def add(self, line: str) -> None:
        self.lines.append(line[: self.max_line_chars])
        if len(self.lines) > self.max_lines:
            del self.lines[0]
