"""Assembles the chunks of one message into one buffer, also for very large messages."""

from __future__ import annotations

import mmap
import sys
from typing import TypeAlias

__all__ = ["LARGE_MESSAGE_BYTES", "ByteBuffer", "MessageBytes"]

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
