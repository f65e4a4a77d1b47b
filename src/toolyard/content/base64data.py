"""Base64 as servers send it: with line breaks, without padding, in the alphabet of URLs, as a data: URL."""

from __future__ import annotations

import binascii

__all__ = ["clean_base64"]

URL_ALPHABET = str.maketrans("-_", "+/")


def clean_base64(data: str) -> tuple[str, int] | None:
    """The same bytes in standard base64, and how many there are; None where it is no base64 or empty."""
    size = _size(data)
    if size is None:
        if data.startswith("data:"):
            data = data.partition(";base64,")[2]
        data = "".join(data.split()).rstrip("=").translate(URL_ALPHABET)
        data += "=" * (-len(data) % 4)
        size = _size(data)
    return (data, size) if size else None


def _size(data: str) -> int | None:
    try:
        return len(binascii.a2b_base64(data, strict_mode=True))
    except ValueError:
        return None
