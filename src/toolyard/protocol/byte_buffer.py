"""The pieces of one message put into one buffer, however large it becomes."""

from __future__ import annotations

import mmap
import sys
from typing import TypeAlias

__all__ = ["LARGE", "Gather", "Raw"]

Raw: TypeAlias = bytes | bytearray | memoryview
"""The bytes of a message. A large one comes as a view, and its memory goes when nobody looks at it."""

LARGE = 16 * 1024 * 1024
"""Bytes. With what is larger, memory is the cost: it outgrows the processor's caches, and allocators keep
no such blocks for the next one (glibc from 32 MiB on) but take them from the system anew, in thousands of
small pages, each of which costs more to get than to fill. Huge ones cost little."""


class Gather:
    """Takes pieces in their order and gives them as one. ``most`` is the size that all may have together."""

    __slots__ = ("_held", "_map", "_most", "size")

    def __init__(self, most: int, expected: int = 0) -> None:
        self._most = most
        self._held: bytes | bytearray = b""
        self._map = _huge_pages(most) if LARGE < expected <= most else None
        self.size = 0

    def add(self, piece: bytes) -> None:
        """Each is copied while it is still in the processor's cache, and its memory used for the next."""
        start, self.size = self.size, self.size + len(piece)
        if self._map is None and start and self.size > LARGE:
            self._map = _huge_pages(self._most)
            if self._map is not None:
                self._map[:start] = self._held
                self._held = b""
        if self._map is not None:
            self._map[start : self.size] = piece
        elif not start:
            self._held = piece
        else:
            self._held = bytearray(self._held) if isinstance(self._held, bytes) else self._held
            self._held += piece

    def take(self) -> Raw:
        """All that was added. What is added from now on is another message's."""
        whole = self._held if self._map is None else memoryview(self._map)[: self.size]
        self._held, self._map, self.size = b"", None, 0
        return whole


def _huge_pages(size: int) -> mmap.mmap | None:
    """Memory of our own, of which only what is written to is taken; None where there is none to be had."""
    if sys.platform != "linux":
        return None
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
    except (OSError, OverflowError):
        return None
    return memory
