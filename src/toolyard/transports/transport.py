"""What a connection needs of a transport, and what a transport tells its connection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from toolyard.errors import ServerError
from toolyard.protocol.byte_buffer import Raw
from toolyard.protocol.framing import Line
from toolyard.protocol.incremental_decoder import OverLimit
from toolyard.protocol.pending import Message

__all__ = ["MESSAGE_LIMIT", "Receiver", "Transport", "TransportFacts", "in_one_line", "unreadable"]

MESSAGE_LIMIT = 64 * 1024 * 1024
"""The longest message, in bytes, that a transport takes in."""

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


def in_one_line(words: str, width: int = 200) -> str:
    """What a server said, fit to stand in a sentence of ours: one line, printable, not too long."""
    line = " ".join(_ESCAPES.sub("", words[: width * 4]).split())
    return "".join(char if char.isprintable() else "\ufffd" for char in line[:width])


def unreadable(answer: Raw, error: ValueError) -> str:
    """Return what is wrong with an answer that could not be decoded, with its beginning if it is not JSON."""
    if isinstance(error, OverLimit):
        return f"its answer {error}"
    return f"its answer is no JSON: {in_one_line(str(answer[:800], 'utf-8', 'replace'))}"


class Receiver(Protocol):
    """The connection's side. Called in the event loop, never blocking, never raising."""

    def on_message(self, message: object, size: int = 0) -> None:
        """One decoded JSON value came in, of whatever shape. ``size`` is its length in bytes; None stands for
        one that could not be decoded."""
        ...

    def accepts(self, undecoded: Line) -> bool:
        """Return whether to decode a large message of a stream. A refused one has been counted."""
        ...

    def on_lost(self, error: ServerError) -> None:
        """Nothing more will come. Called at most once, and not after ``close``."""
        ...


@dataclass(slots=True)
class TransportFacts:
    """What a transport knows about the other end, for status records."""

    pid: int | None = None
    stderr: tuple[str, ...] = ()
    noise: int = 0
    """Lines that were no messages."""
    session: bool = False
    returns: int = 0
    """How often the stream on which it speaks unasked was lost and came back, where no session would tell
    that it is another process since."""


class Transport(Protocol):
    """One way to one server.

    ``send`` of a request over HTTP returns when the answer has been handed to the receiver or the
    stream has ended; over a shared channel it returns once the message is on its way.
    """

    @property
    def closing_cancels(self) -> bool:
        """Abandoning ``send`` tells the server, so that no cancellation need be sent."""
        ...

    @property
    def uses_headers(self) -> bool:
        """Requests mirror parts of their body into headers."""
        ...

    async def open(self, receiver: Receiver) -> None:
        """Make the way. Raises Unreachable, and leaves nothing behind, where that fails."""
        ...

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Send one message. Raises a ServerError that tells whether the server may have seen it:
        Unreachable for no, OutcomeUnknown for perhaps, others for what it answered."""
        ...

    def adopt(self, version: str, *, modern: bool) -> None:
        """The revision that both sides agreed on."""
        ...

    def listen(self) -> None:
        """Begin to take in what the server sends of its own accord, where that needs a stream of its own."""
        ...

    def facts(self) -> TransportFacts:
        """What is known about the other end right now."""
        ...

    async def close(self) -> None:
        """End it, within a bounded time, leaving no process, task or descriptor. May be called twice."""
        ...


@dataclass(slots=True)
class Ring:
    """The last lines of a text, each cut to a bearable length."""

    limit: int = 100
    width: int = 2000
    lines: list[str] = field(default_factory=list[str])

    def add(self, line: str) -> None:
        self.lines.append(line[: self.width])
        if len(self.lines) > self.limit:
            del self.lines[0]
