"""Redirect targets from forms, limited to pages of this app."""

from __future__ import annotations

from fastapi import Request, Response

__all__ = ["clear_return_path", "read_return_path", "safe_redirect_path", "set_return_path"]

_RETURN_COOKIE_NAME = "toolyard_return"
_RETURN_LIFETIME_SECONDS = 1800
_RETURN_PREFIX = "/ui/chat"


def safe_redirect_path(requested: str, default: str) -> str:
    """Return ``requested`` if it is a page of this app, else ``default``.

    Control characters and backslashes are rejected, because browsers normalise them: ``/\\evil.test`` would
    lead to another site (open redirect).
    """
    has_unsafe_character = any(ord(char) < 0x21 or char == "\\" for char in requested)
    return requested if requested.startswith("/ui/") and not has_unsafe_character else default


# A sign-in to a server that was started in a chat returns there from the provider. A cookie carries the path,
# because the redirect address at the provider is fixed.


def set_return_path(response: Response, requested: str) -> None:
    """Remember the chat page to return to. Any other page makes an earlier one forgotten."""
    path = safe_redirect_path(requested, "")
    if not path.startswith(_RETURN_PREFIX) or len(path) > 200:
        clear_return_path(response)
        return
    response.set_cookie(
        _RETURN_COOKIE_NAME,
        path,
        max_age=_RETURN_LIFETIME_SECONDS,
        path="/ui/",
        httponly=True,
        samesite="lax",
    )


def read_return_path(request: Request, default: str) -> str:
    """Return the remembered chat page, else ``default``."""
    path = safe_redirect_path(request.cookies.get(_RETURN_COOKIE_NAME, ""), "")
    return path if path.startswith(_RETURN_PREFIX) else default


def clear_return_path(response: Response) -> None:
    """Forget the page to return to."""
    response.delete_cookie(_RETURN_COOKIE_NAME, path="/ui/", httponly=True, samesite="lax")
