"""A text, or bytes with their media type, as one run of bytes and back."""

from __future__ import annotations

__all__ = ["pack_body", "unpack_body"]

_BYTES_MARKER = b"\xff"
"""Stands in no UTF-8: what begins with it is no packed text."""


def pack_body(body: str | bytes, mime: str) -> bytes:
    """The bytes. ``mime`` counts for bytes only, and has ASCII letters."""
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    return _BYTES_MARKER.join((b"", mime.encode("ascii", "replace"), body))


def unpack_body(packed: bytes) -> tuple[str | bytes, str]:
    """What was packed. Raises ValueError for what nobody packed."""
    if not packed.startswith(_BYTES_MARKER):
        return packed.decode("utf-8", "surrogatepass"), ""
    mime, mark, body = packed[1:].partition(_BYTES_MARKER)
    if not mark:
        raise ValueError("bytes without their media type")
    return body, mime.decode("ascii")
