"""Base64 as servers send it: with line breaks, without padding, in the alphabet of URLs, as a data: URL."""

from __future__ import annotations

import binascii

__all__ = ["decode_base64", "normalize_base64"]

_STANDARD_ALPHABET = bytes.maketrans(b"-_", b"+/")
_SPACE = b" \t\n\r\f\v"
_PIECE = 1_000_000
"""Characters handled in one call, a multiple of four. Other threads run in between."""


def normalize_base64(data: str) -> tuple[str, int] | None:
    """The same bytes in standard base64, and how many there are; None where it is no base64 or empty."""
    size = _decoded_size(data)
    if size is None:
        if data.startswith("data:"):
            data = data[data.find(";base64,") + 8 :] if ";base64," in data else ""
        pieces = (data[start : start + _PIECE] for start in range(0, len(data), _PIECE))
        try:
            cleaned = b"".join(
                piece.encode("ascii").translate(_STANDARD_ALPHABET, _SPACE) for piece in pieces
            )
        except UnicodeEncodeError:
            return None
        cleaned = cleaned.rstrip(b"=")
        data = (cleaned + b"=" * (-len(cleaned) % 4)).decode("ascii")
        size = _decoded_size(data)
    return (data, size) if size else None


def _decoded_size(data: str) -> int | None:
    size = 0
    try:
        for start in range(0, len(data), _PIECE):
            piece = data[start : start + _PIECE]
            if piece.endswith("=") and start + _PIECE < len(data):
                return None
            size += len(binascii.a2b_base64(piece, strict_mode=True))
    except ValueError:
        return None
    return size


def decode_base64(data: str) -> bytes:
    """Decode what ``clean_base64`` returned, in pieces."""
    pieces = (data[start : start + _PIECE] for start in range(0, len(data), _PIECE))
    return b"".join(map(binascii.a2b_base64, pieces))
