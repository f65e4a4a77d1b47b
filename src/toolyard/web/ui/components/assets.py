"""Files that pages load: where they are, and addresses that change with their contents."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

__all__ = ["STATIC_FOLDER", "static_url"]

STATIC_FOLDER = Path(__file__).parent.parent / "static"
"""The folder that is served under /static."""


@cache
def static_url(name: str) -> str:
    """The address of a file in ``static``. It names the contents, so browsers may keep it for good."""
    digest = hashlib.sha256((STATIC_FOLDER / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?v={digest}"
