"""Redirect targets from forms, limited to pages of this app."""

from __future__ import annotations

__all__ = ["safe_redirect_path"]


def safe_redirect_path(requested: str, default: str) -> str:
    """Return ``requested`` if it is a page of this app, else ``default``.

    Control characters and backslashes are rejected, because browsers normalise them: ``/\\evil.test`` would
    lead to another site (open redirect).
    """
    has_unsafe_character = any(ord(char) < 0x21 or char == "\\" for char in requested)
    return requested if requested.startswith("/ui/") and not has_unsafe_character else default
