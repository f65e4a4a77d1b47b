"""Bodies that are packed with gzip, unpacked as far as somebody reads them."""

from __future__ import annotations

import zlib

__all__ = ["Gzip"]

_GZIP = 16 + zlib.MAX_WBITS
_WINDOW = 8 * 1024
"""Bytes that are looked at in one step: what follows the end of a part is copied, and parts can be tiny."""


class Gzip:
    """What came and what is left of it. A body may have several parts, each packed by itself."""

    def __init__(self, most: int) -> None:
        self._most = most
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
        """What the next bytes become, at most ``most``; perhaps nothing. Raises zlib.error."""
        if self._part.eof:
            self._part = zlib.decompressobj(_GZIP)
        window = self._piece[self._at : self._at + _WINDOW]
        unpacked = self._part.decompress(window, self._most)
        self.is_whole = self._part.eof
        self._at += len(window) - len(self._part.unused_data or self._part.unconsumed_tail)
        return unpacked
