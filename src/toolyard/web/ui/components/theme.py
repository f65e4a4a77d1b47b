"""Choice of the light, dark or system theme. It is stored in a cookie, so that the first paint is right."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import Response

from toolyard.web.ui.components.flash import redirect_with_message
from toolyard.web.ui.components.safe_redirect import safe_redirect_path

__all__ = ["read_theme", "router"]

router = APIRouter()

_COOKIE_NAME = "toolyard_theme"
_THEMES = ("auto", "light", "dark")
_COOKIE_LIFETIME_SECONDS = 365 * 24 * 3600


def read_theme(request: Request) -> str:
    """Return the theme chosen in this browser; ``auto`` by default."""
    theme = request.cookies.get(_COOKIE_NAME, "auto")
    return theme if theme in _THEMES else "auto"


@router.post("/ui/theme")
async def choose_theme(theme: Annotated[str, Form()] = "auto", next: Annotated[str, Form()] = "") -> Response:
    """Store the chosen theme, for browsers without JavaScript."""
    # Available without sign-in: the choice affects only the browser that makes it.
    response = redirect_with_message(safe_redirect_path(next, "/ui/"))
    # Not HttpOnly, because the script sets the same cookie.
    chosen = theme if theme in _THEMES else "auto"
    response.set_cookie(_COOKIE_NAME, chosen, max_age=_COOKIE_LIFETIME_SECONDS, path="/", samesite="lax")
    return response
