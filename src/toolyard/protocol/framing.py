"""Splits byte streams into lines and server-sent events, in linear time and bounded memory.

``ByteBuffer`` assembles the chunks of one message, also of a very large one.
"""

from __future__ import annotations

import mmap
import sys
from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "LARGE_MESSAGE_BYTES",
    "SSE_STEP_BYTES",
    "ByteBuffer",
    "LineFramer",
    "MessageBytes",
    "OversizeLine",
    "SseEvent",
    "SseParser",
]


MessageBytes: TypeAlias = bytes | bytearray | memoryview
"""The bytes of a message. A large one is a view of mapped memory, which is freed with the last view."""

LARGE_MESSAGE_BYTES = 16 * 1024 * 1024
"""Size in bytes from which memory dominates the cost of a message. Such a message exceeds the CPU caches, and
allocators do not reuse blocks of that size (glibc from 32 MiB on). They request them from the system in
thousands of small pages, and each page costs more to obtain than to fill. Huge pages avoid most of that
cost."""


class ByteBuffer:
    """Collects chunks in order and returns them as one buffer of at most ``max_bytes``.

    A message of more than ``large_message_bytes`` is collected in huge pages.
    """

    __slots__ = ("_buffer", "_large_message_bytes", "_mapped_memory", "_max_bytes", "size")

    def __init__(
        self, max_bytes: int, expected_bytes: int = 0, large_message_bytes: int = LARGE_MESSAGE_BYTES
    ) -> None:
        self._max_bytes = max_bytes
        self._large_message_bytes = large_message_bytes
        self._buffer: bytes | bytearray = b""
        self._mapped_memory = (
            _map_huge_pages(max_bytes) if large_message_bytes < expected_bytes <= max_bytes else None
        )
        self.size = 0

    def add(self, chunk: bytes) -> None:
        """Append a chunk. It is copied at once, while it is still in the CPU cache."""
        start, self.size = self.size, self.size + len(chunk)
        if self._mapped_memory is None and start and self.size > self._large_message_bytes:
            # The message turns out to be large: continue in huge pages.
            self._mapped_memory = _map_huge_pages(self._max_bytes)
            if self._mapped_memory is not None:
                self._mapped_memory[:start] = self._buffer
                self._buffer = b""
        if self._mapped_memory is not None:
            self._mapped_memory[start : self.size] = chunk
        elif not start:
            # The first chunk is not copied: most messages consist of one.
            self._buffer = chunk
        else:
            self._buffer = bytearray(self._buffer) if isinstance(self._buffer, bytes) else self._buffer
            self._buffer += chunk

    def take(self) -> MessageBytes:
        """Return everything that was added, and start over with an empty buffer."""
        data = self._buffer if self._mapped_memory is None else memoryview(self._mapped_memory)[: self.size]
        self._buffer, self._mapped_memory, self.size = b"", None, 0
        return data


def _map_huge_pages(size: int) -> mmap.mmap | None:
    """Map anonymous memory, of which only written pages are allocated. Return None if that is not
    possible."""
    if sys.platform != "linux":
        return None
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
    except (OSError, OverflowError):
        return None
    return memory


SSE_STEP_BYTES = 32 * 1024
"""Number of bytes to parse in one step of the event loop. Each may be an empty line."""

_ENDLESS_FACTOR = 4
"""A line that is this many times longer than the limit is not expected to end."""

_OTHER_FIELDS = (b"event", b"id", b"retry")
"""Fields of an event beside its data."""

_EDGE_BYTES = 4096
"""Number of bytes kept of each end of an oversize line."""


@dataclass(slots=True)
class OversizeLine:
    """A skipped line that exceeded the size limit, with its first and last bytes to identify the message."""

    head: bytes
    tail: bytes
    size: int

    @classmethod
    def keep_edges(cls, data: MessageBytes, edge_bytes: int) -> OversizeLine:
        """Return the record of a line of which only the ends are kept."""
        return cls(bytes(data[:edge_bytes]), bytes(data[-edge_bytes:]), len(data))

    def append_line(self, line: OversizeLine, edge_bytes: int) -> OversizeLine:
        """Return both lines joined by a line feed."""
        # An edge that holds a whole line is shorter than allowed, so it continues into the other line. An
        # edge that was cut must not: the bytes between would be missing, and unrelated text would look
        # adjacent.
        head = self.head + b"\n" + line.head if len(self.head) == self.size else self.head
        tail = self.tail + b"\n" + line.tail if len(line.tail) == line.size else line.tail
        return OversizeLine(head[:edge_bytes], tail[-edge_bytes:], self.size + 1 + line.size)


Line: TypeAlias = MessageBytes | OversizeLine
"""A line without its line feed. A long line is the buffer in which it was assembled, to avoid a copy."""


class LineFramer:
    """Splits a stream of chunks at line feeds. A line longer than ``limit`` bytes becomes an OversizeLine.

    Each byte is searched and copied once, however the stream is divided into chunks. A framer that joined its
    buffer with every chunk and searched it again would take quadratic time for a long line.
    """

    __slots__ = ("_buffer", "_edge_bytes", "_head", "_limit", "_tail", "excess_bytes", "pending_bytes")

    def __init__(
        self,
        limit: int,
        *,
        edge_bytes: int = _EDGE_BYTES,
        large_message_bytes: int = LARGE_MESSAGE_BYTES,
    ) -> None:
        self._limit = limit
        self._edge_bytes = edge_bytes
        self._buffer = ByteBuffer(limit, large_message_bytes=large_message_bytes)
        self.pending_bytes = 0
        """Bytes of the line that is not complete yet."""
        self._head = b""
        self._tail = b""
        self.excess_bytes = 0
        """Bytes of the last chunk that belong to an unfinished line of several times the limit."""

    def feed(self, chunk: bytes) -> list[Line]:
        """Add a chunk and return the lines that it completes, without their line feed."""
        lines: list[Line] = []
        self.excess_bytes = 0
        # The piece after the last line feed is an incomplete line, often empty. It waits for the next chunk.
        pieces = chunk.split(b"\n")
        last = pieces.pop()
        for piece in pieces:
            # 0 unless an earlier chunk ended within a line: the common case copies nothing.
            if self.pending_bytes:
                self._buffer_piece(piece)
                lines.append(self._take_line())
            elif len(piece) > self._limit:
                lines.append(OversizeLine.keep_edges(piece, self._edge_bytes))
            else:
                lines.append(piece)
        if last:
            self._buffer_piece(last)
        return lines

    def take_remainder(self) -> Line | None:
        """Return the unterminated last line when the stream has ended, or None."""
        return self._take_line() if self.pending_bytes else None

    def _buffer_piece(self, piece: bytes) -> None:
        self.pending_bytes += len(piece)
        if self.pending_bytes <= self._limit:
            self._buffer.add(piece)
            return
        if self.pending_bytes > _ENDLESS_FACTOR * self._limit:
            self.excess_bytes = len(piece)
        # Over the limit: drop the buffered part and from now on keep only the two ends.
        if self._buffer.size:
            before = OversizeLine.keep_edges(self._buffer.take(), self._edge_bytes)
            self._head, self._tail = before.head, before.tail
        # The limit may be smaller than the edge, and chunks may be single bytes: the head grows until it is
        # full, and the tail always holds the latest bytes.
        if len(self._head) < self._edge_bytes:
            self._head += piece[: self._edge_bytes - len(self._head)]
        self._tail = (self._tail + piece[-self._edge_bytes :])[-self._edge_bytes :]

    def _take_line(self) -> Line:
        line: Line = self._buffer.take()
        if self.pending_bytes > self._limit:
            line = OversizeLine(self._head, self._tail, self.pending_bytes)
        self.pending_bytes, self._head, self._tail = 0, b"", b""
        return line


@dataclass(slots=True)
class SseEvent:
    """One server-sent event. ``data`` is None for an event that only sets ``id`` or ``retry``."""

    data: Line | None
    event: str = "message"
    id: str | None = None
    retry: int | None = None


class SseParser:
    """Parses an event stream (the text/event-stream format of the HTML standard) chunk by chunk."""

    __slots__ = (
        "_after_carriage_return",
        "_data",
        "_data_size",
        "_edge_bytes",
        "_event",
        "_framer",
        "_id",
        "_is_started",
        "_limit",
        "_other_fields",
        "_oversize",
        "_retry",
        "_stray_bytes",
        "_stray_lines",
    )

    def __init__(
        self,
        limit: int,
        *,
        edge_bytes: int = _EDGE_BYTES,
        large_message_bytes: int = LARGE_MESSAGE_BYTES,
    ) -> None:
        # Room for the field name of a line with data up to the limit.
        self._framer = LineFramer(limit + 8, edge_bytes=edge_bytes, large_message_bytes=large_message_bytes)
        self._limit = limit
        self._edge_bytes = edge_bytes
        self._is_started = False
        self._after_carriage_return = False
        self._stray_lines = self._stray_bytes = 0
        self._reset_fields()

    def _reset_fields(self) -> None:
        self._data: MessageBytes | None = None
        self._data_size = 0
        self._oversize: OversizeLine | None = None
        self._event = "message"
        self._id: str | None = None
        self._retry: int | None = None
        self._other_fields = 0

    def take_stray_lines(self) -> tuple[int, int]:
        """Return number and size of the lines since the last call that belong to no event: comments, unknown
        and repeated fields, blank lines, parts of endless lines."""
        taken = self._stray_lines, self._stray_bytes
        self._stray_lines = self._stray_bytes = 0
        return taken

    def _count_stray_line(self, size: int) -> None:
        self._stray_lines += 1
        self._stray_bytes += size + 1

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Add a chunk and return the events that it completes. Comments are skipped."""
        events: list[SseEvent] = []
        lines = self._framer.feed(self._normalize_line_endings(chunk))
        self._stray_bytes += self._framer.excess_bytes
        for line in lines:
            first, self._is_started = not self._is_started, True
            # An oversize line can still be the data of an event. Its ends identify the request to which it
            # responds, so that this request fails instead of waiting for its timeout.
            if isinstance(line, OversizeLine):
                self._parse_oversize_field(line)
                continue
            # The stream may begin with a byte order mark.
            if first and line[:3] == b"\xef\xbb\xbf":
                line = line[3:]
            if line:
                self._parse_field(line)
            elif (event := self._build_event()) is not None:
                events.append(event)
            else:
                self._count_stray_line(0)
        return events

    def _normalize_line_endings(self, chunk: bytes) -> bytes:
        """Replace CR and CRLF by LF. All three end a line, and a chunk may end between CR and LF."""
        if self._after_carriage_return and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_carriage_return = False
        if b"\r" not in chunk:
            return chunk
        self._after_carriage_return = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _build_event(self) -> SseEvent | None:
        data: Line | None = self._data if self._oversize is None else self._oversize
        # The standard drops an event without data. It is returned here if it has an id or a retry delay,
        # which are needed to resume the stream.
        is_empty = data is None and self._id is None and self._retry is None
        event = None if is_empty else SseEvent(data, self._event, self._id, self._retry)
        self._reset_fields()
        return event

    def _parse_field(self, line: MessageBytes) -> None:
        # Six bytes suffice to tell the known field names apart. A long line is not copied: only views are
        # taken.
        name = bytes(line[:6]).partition(b":")[0]
        start = len(name) + (2 if line[len(name) + 1 : len(name) + 2] == b" " else 1)
        value = line[start:] if isinstance(line, bytes) else memoryview(line)[start:]
        if name == b"data":
            # One more for the line feed that joins the data lines of an event. The first line has none, hence
            # the ``+ 1`` in the comparison with the limit.
            self._data_size += len(value) + 1
            if self._oversize is None and self._data_size <= self._limit + 1:
                self._append_data(value)
            else:
                self._add_oversize_data(OversizeLine.keep_edges(value, self._edge_bytes))
                if self._data_size > _ENDLESS_FACTOR * self._limit:
                    self._count_stray_line(len(line))
            return
        # An event has one line of each other field. Further ones are counted like comments.
        self._other_fields += name in _OTHER_FIELDS
        if name not in _OTHER_FIELDS or self._other_fields > len(_OTHER_FIELDS):
            self._count_stray_line(len(line))
        if name == b"event":
            self._event = str(value, "utf-8", "replace") or "message"
        # The HTML standard ignores an id with NUL, and a retry that is not all digits. The bound on the
        # length keeps int() from raising ValueError, as it does for thousands of digits.
        elif name == b"id" and b"\0" not in bytes(value):
            self._id = str(value, "utf-8", "replace")
        elif name == b"retry" and len(value) < 10 and bytes(value).isdigit():
            self._retry = int(bytes(value))

    def _append_data(self, value: MessageBytes) -> None:
        if self._data is None:
            self._data = value
            return
        # Further lines are collected in one buffer: there may be millions, most of them empty.
        if not isinstance(self._data, bytearray):
            self._data = bytearray(self._data)
        self._data += b"\n"
        self._data += value

    def _parse_oversize_field(self, line: OversizeLine) -> None:
        if line.head.startswith(b"data:"):
            head = line.head[5:].removeprefix(b" ")
            size = line.size - len(line.head) + len(head)
            self._add_oversize_data(OversizeLine(head, line.tail[-size:], size))
        else:
            self._count_stray_line(line.size)

    def _add_oversize_data(self, value: OversizeLine) -> None:
        before = self._oversize
        if before is None and self._data is not None:
            before = OversizeLine.keep_edges(self._data, self._edge_bytes)
        self._oversize = value if before is None else before.append_line(value, self._edge_bytes)
        # Release the data collected so far: the event is refused, and more lines may follow for long.
        self._data = None
