"""Where to go after a form: only ever to a page of ours."""

from __future__ import annotations

__all__ = ["safe_redirect_path"]


def safe_redirect_path(requested: str, default: str) -> str:
    """``wanted`` where it is a page of this app, else ``otherwise``: no form leads elsewhere."""
    odd = any(ord(char) < 0x21 or char == "\\" for char in requested)
    return requested if requested.startswith("/ui/") and not odd else default
