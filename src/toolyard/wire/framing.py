"""Bytes into lines and server-sent events: linear in what comes, bounded in what is kept."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LineFramer", "Oversize", "SseEvent", "SseParser"]

_EDGE = 4096


@dataclass(slots=True)
class Oversize:
    """A line that was longer than the limit. It was skipped; its ends are kept to tell what it was."""

    head: bytes
    tail: bytes
    size: int


class LineFramer:
    """Cuts a stream of chunks at line feeds. What is longer than ``limit`` becomes :class:`Oversize`."""

    __slots__ = ("_head", "_limit", "_parts", "_size", "_tail")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""
        self._tail = b""

    def feed(self, chunk: bytes) -> list[bytes | Oversize]:
        """The lines that this chunk completes, without their line feed."""
        lines: list[bytes | Oversize] = []
        pieces = chunk.split(b"\n")
        last = pieces.pop()
        for piece in pieces:
            if self._size:
                self._hold(piece)
                lines.append(self._take())
            elif len(piece) > self._limit:
                lines.append(Oversize(piece[:_EDGE], piece[-_EDGE:], len(piece)))
            else:
                lines.append(piece)
        if last:
            self._hold(last)
        return lines

    def rest(self) -> bytes | Oversize | None:
        """What stood after the last line feed, when the stream has ended."""
        return self._take() if self._size else None

    def _hold(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._limit:
            self._parts.append(piece)
            return
        if self._parts:
            kept = b"".join(self._parts)
            self._parts.clear()
            self._head, self._tail = kept[:_EDGE], kept[-_EDGE:]
        if len(self._head) < _EDGE:
            self._head += piece[: _EDGE - len(self._head)]
        self._tail = (self._tail + piece[-_EDGE:])[-_EDGE:]

    def _take(self) -> bytes | Oversize:
        line: bytes | Oversize
        if self._size > self._limit:
            line = Oversize(self._head, self._tail, self._size)
        else:
            line = b"".join(self._parts)
        self._parts.clear()
        self._size, self._head, self._tail = 0, b"", b""
        return line


@dataclass(slots=True)
class SseEvent:
    """One server-sent event. ``data`` is None for an event that only sets ``id`` or ``retry``."""

    data: bytes | Oversize | None
    event: str = "message"
    id: str | None = None
    retry: int | None = None


class SseParser:
    """Reads an event stream chunk by chunk."""

    __slots__ = ("_data", "_event", "_framer", "_id", "_limit", "_oversize", "_retry", "_size", "_started")

    def __init__(self, limit: int) -> None:
        self._framer = LineFramer(limit + 8)
        self._limit = limit
        self._started = False
        self._reset()

    def _reset(self) -> None:
        self._data: list[bytes] = []
        self._size = 0
        self._oversize: Oversize | None = None
        self._event = "message"
        self._id: str | None = None
        self._retry: int | None = None

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that this chunk completes. Comments are skipped."""
        events: list[SseEvent] = []
        for line in self._framer.feed(chunk):
            if isinstance(line, Oversize):
                self._oversize = line
                continue
            if not self._started:
                self._started = True
                line = line.removeprefix(b"\xef\xbb\xbf")
            line = line.removesuffix(b"\r")
            # A lone carriage return also ends a line in this format; hardly anyone writes it.
            for part in line.split(b"\r") if b"\r" in line else (line,):
                if part:
                    self._field(part)
                elif (event := self._event_of_fields()) is not None:
                    events.append(event)
        return events

    def _event_of_fields(self) -> SseEvent | None:
        data: bytes | Oversize | None = self._oversize
        if data is None and self._data:
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        empty = data is None and self._id is None and self._retry is None
        event = None if empty else SseEvent(data, self._event, self._id, self._retry)
        self._reset()
        return event

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._size += len(value) + 1
            if self._size > self._limit + 1:
                self._oversize = Oversize(value[:_EDGE], value[-_EDGE:], self._size)
                self._data.clear()
            else:
                self._data.append(value)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) < 10:
            self._retry = int(value)
