"""The pieces of one message put into one buffer, however large it becomes."""

from __future__ import annotations

import mmap
import sys
from typing import TypeAlias

__all__ = ["LARGE_MESSAGE_BYTES", "ByteBuffer", "MessageBytes"]

MessageBytes: TypeAlias = bytes | bytearray | memoryview
"""The bytes of a message. A large one comes as a view, and its memory goes when nobody looks at it."""

LARGE_MESSAGE_BYTES = 16 * 1024 * 1024
"""Bytes. With what is larger, memory is the cost: it outgrows the processor's caches, and allocators keep
no such blocks for the next one (glibc from 32 MiB on) but take them from the system anew, in thousands of
small pages, each of which costs more to get than to fill. Huge ones cost little."""


class ByteBuffer:
    """Takes pieces in their order and gives them as one. ``most`` is the size that all may have together."""

    __slots__ = ("_buffer", "_mapped_memory", "_max_bytes", "size")

    def __init__(self, max_bytes: int, expected_bytes: int = 0) -> None:
        self._max_bytes = max_bytes
        self._buffer: bytes | bytearray = b""
        self._mapped_memory = (
            _map_huge_pages(max_bytes) if LARGE_MESSAGE_BYTES < expected_bytes <= max_bytes else None
        )
        self.size = 0

    def add(self, piece: bytes) -> None:
        """Each is copied while it is still in the processor's cache, and its memory used for the next."""
        start, self.size = self.size, self.size + len(piece)
        if self._mapped_memory is None and start and self.size > LARGE_MESSAGE_BYTES:
            self._mapped_memory = _map_huge_pages(self._max_bytes)
            if self._mapped_memory is not None:
                self._mapped_memory[:start] = self._buffer
                self._buffer = b""
        if self._mapped_memory is not None:
            self._mapped_memory[start : self.size] = piece
        elif not start:
            self._buffer = piece
        else:
            self._buffer = bytearray(self._buffer) if isinstance(self._buffer, bytes) else self._buffer
            self._buffer += piece

    def take(self) -> MessageBytes:
        """All that was added. What is added from now on is another message's."""
        whole = self._buffer if self._mapped_memory is None else memoryview(self._mapped_memory)[: self.size]
        self._buffer, self._mapped_memory, self.size = b"", None, 0
        return whole


def _map_huge_pages(size: int) -> mmap.mmap | None:
    """Memory of our own, of which only what is written to is taken; None where there is none to be had."""
    if sys.platform != "linux":
        return None
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
    except (OSError, OverflowError):
        return None
    return memory
