"""Incremental gzip decompression that produces no more than its reader consumes."""

from __future__ import annotations

import zlib

__all__ = ["MAX_COMPRESSION_RATIO", "RATIO_EXEMPT_BYTES", "GzipDecoder", "RatioExceeded"]

_GZIP_WINDOW_BITS = 16 + zlib.MAX_WBITS
MAX_COMPRESSION_RATIO = 100
RATIO_EXEMPT_BYTES = 1024 * 1024
"""Number of decompressed bytes up to which no compression ratio is enforced."""
_WINDOW_BYTES = 8 * 1024
"""Number of compressed bytes processed in one step. zlib copies all input after the end of a gzip member, and
members can be tiny: larger steps would cost quadratic time."""


class RatioExceeded(Exception):
    """Raised for a body that decompresses to far more than its compressed size (a decompression bomb)."""


class GzipDecoder:
    """Decompressor of one body, which may consist of several gzip members (RFC 1952)."""

    def __init__(
        self,
        max_chunk_bytes: int,
        *,
        max_ratio: int = MAX_COMPRESSION_RATIO,
        ratio_exempt_bytes: int = RATIO_EXEMPT_BYTES,
    ) -> None:
        """``max_ratio`` limits decompressed to compressed bytes of the body beyond ``ratio_exempt_bytes``."""
        self._max_chunk_bytes = max_chunk_bytes
        self._max_ratio = max_ratio
        self._ratio_exempt_bytes = ratio_exempt_bytes
        self._compressed_bytes = 0
        self._decompressed_bytes = 0
        self._member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        self._chunk = b""
        self._position = 0
        self.is_complete = True
        """True if the data so far ends with a complete member, so that the body may end here."""

    @property
    def has_more(self) -> bool:
        """True if received data has not been decompressed yet."""
        return self._position < len(self._chunk)

    def feed(self, chunk: bytes) -> None:
        """Add received data. All earlier data must have been decompressed (see ``has_more``)."""
        self._chunk, self._position = chunk, 0

    def decompress(self) -> bytes:
        """Return the next decompressed bytes, at most ``max_chunk_bytes``, possibly none. Raise zlib.error or
        RatioExceeded."""
        if self._member.eof:
            self._member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        window = self._chunk[self._position : self._position + _WINDOW_BYTES]
        data = self._member.decompress(window, self._max_chunk_bytes)
        self.is_complete = self._member.eof
        # zlib reports the rest of the input in one of two places: after the end of a member as unused,
        # otherwise, if the output is full, as unconsumed.
        used = len(window) - len(self._member.unused_data or self._member.unconsumed_tail)
        self._position += used
        self._compressed_bytes += used
        self._decompressed_bytes += len(data)
        if self._decompressed_bytes > max(self._ratio_exempt_bytes, self._compressed_bytes * self._max_ratio):
            raise RatioExceeded(f"its body decompresses to more than {self._max_ratio} times its size")
        return data
