"""Bodies that are packed with gzip, unpacked as far as somebody reads them."""

from __future__ import annotations

import zlib

__all__ = ["FREE_BYTES", "MAX_RATIO", "Gzip", "RatioExceeded"]

_GZIP = 16 + zlib.MAX_WBITS
MAX_RATIO = 100
FREE_BYTES = 1024 * 1024
"""Bytes that a body may unpack to whatever the ratio."""
_WINDOW = 8 * 1024
"""Bytes that are looked at in one step: what follows the end of a part is copied, and parts can be tiny."""


class RatioExceeded(Exception):
    """Raised for a body that unpacks to far more than it was sent as."""


class Gzip:
    """What came and what is left of it. A body may have several parts, each packed by itself."""

    def __init__(self, most: int, *, max_ratio: int = MAX_RATIO, free_bytes: int = FREE_BYTES) -> None:
        """``max_ratio`` bounds unpacked to packed bytes of the whole body beyond ``free_bytes``."""
        self._most = most
        self._max_ratio = max_ratio
        self._free_bytes = free_bytes
        self._packed_bytes = 0
        self._unpacked_bytes = 0
        self._part = zlib.decompressobj(_GZIP)
        self._piece = b""
        self._at = 0
        self.is_whole = True
        """Whether what came so far could be all."""

    @property
    def has_more(self) -> bool:
        """Whether something that came is not unpacked yet."""
        return self._at < len(self._piece)

    def feed(self, piece: bytes) -> None:
        """A piece came, and everything before it was unpacked."""
        self._piece, self._at = piece, 0

    def unpack(self) -> bytes:
        """What the next bytes become, at most ``most``; perhaps nothing. Raises zlib.error, RatioExceeded."""
        if self._part.eof:
            self._part = zlib.decompressobj(_GZIP)
        window = self._piece[self._at : self._at + _WINDOW]
        unpacked = self._part.decompress(window, self._most)
        self.is_whole = self._part.eof
        used = len(window) - len(self._part.unused_data or self._part.unconsumed_tail)
        self._at += used
        self._packed_bytes += used
        self._unpacked_bytes += len(unpacked)
        if self._unpacked_bytes > max(self._free_bytes, self._packed_bytes * self._max_ratio):
            raise RatioExceeded(f"its body unpacks to more than {self._max_ratio} times its size")
        return unpacked
