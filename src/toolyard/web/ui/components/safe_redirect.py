"""Where to go after a form: only ever to a page of ours."""

from __future__ import annotations

__all__ = ["inner_path"]


def inner_path(wanted: str, otherwise: str) -> str:
    """``wanted`` where it is a page of this app, else ``otherwise``: no form leads elsewhere."""
    odd = any(ord(char) < 0x21 or char == "\\" for char in wanted)
    return wanted if wanted.startswith("/ui/") and not odd else otherwise
