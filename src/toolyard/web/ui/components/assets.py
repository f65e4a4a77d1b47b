"""Static files, and their URLs with a content hash."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

__all__ = ["STATIC_FOLDER", "static_url"]

STATIC_FOLDER = Path(__file__).parent.parent / "static"
"""Folder served under ``/static``."""


@cache
def static_url(name: str) -> str:
    """Return the URL of a file in ``static``. Its hash of the contents lets browsers cache it forever."""
    digest = hashlib.sha256((STATIC_FOLDER / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?v={digest}"
