"""Bodies that are packed with gzip, unpacked as far as somebody reads them."""

from __future__ import annotations

import zlib

__all__ = ["MAX_COMPRESSION_RATIO", "RATIO_EXEMPT_BYTES", "GzipDecoder", "RatioExceeded"]

_GZIP_WINDOW_BITS = 16 + zlib.MAX_WBITS
MAX_COMPRESSION_RATIO = 100
RATIO_EXEMPT_BYTES = 1024 * 1024
"""Bytes that a body may unpack to whatever the ratio."""
_WINDOW_BYTES = 8 * 1024
"""Bytes that are looked at in one step: what follows the end of a part is copied, and parts can be tiny."""


class RatioExceeded(Exception):
    """Raised for a body that unpacks to far more than it was sent as."""


class GzipDecoder:
    """What came and what is left of it. A body may have several parts, each packed by itself."""

    def __init__(
        self,
        max_chunk_bytes: int,
        *,
        max_ratio: int = MAX_COMPRESSION_RATIO,
        ratio_exempt_bytes: int = RATIO_EXEMPT_BYTES,
    ) -> None:
        """``max_ratio`` bounds unpacked to packed bytes of the whole body beyond ``free_bytes``."""
        self._max_chunk_bytes = max_chunk_bytes
        self._max_ratio = max_ratio
        self._ratio_exempt_bytes = ratio_exempt_bytes
        self._compressed_bytes = 0
        self._decompressed_bytes = 0
        self._member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        self._piece = b""
        self._position = 0
        self.is_complete = True
        """Whether what came so far could be all."""

    @property
    def has_more(self) -> bool:
        """Whether something that came is not unpacked yet."""
        return self._position < len(self._piece)

    def feed(self, piece: bytes) -> None:
        """A piece came, and everything before it was unpacked."""
        self._piece, self._position = piece, 0

    def decompress(self) -> bytes:
        """What the next bytes become, at most ``most``; perhaps nothing. Raises zlib.error, RatioExceeded."""
        if self._member.eof:
            self._member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        window = self._piece[self._position : self._position + _WINDOW_BYTES]
        unpacked = self._member.decompress(window, self._max_chunk_bytes)
        self.is_complete = self._member.eof
        used = len(window) - len(self._member.unused_data or self._member.unconsumed_tail)
        self._position += used
        self._compressed_bytes += used
        self._decompressed_bytes += len(unpacked)
        if self._decompressed_bytes > max(self._ratio_exempt_bytes, self._compressed_bytes * self._max_ratio):
            raise RatioExceeded(f"its body unpacks to more than {self._max_ratio} times its size")
        return unpacked
