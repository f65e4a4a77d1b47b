"""Light, dark, or as the system has it: remembered in a cookie, so that the first paint is right."""

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
    """What this browser wants."""
    wanted = request.cookies.get(_COOKIE_NAME, "auto")
    return wanted if wanted in _THEMES else "auto"


@router.post("/ui/theme")
async def choose_theme(theme: Annotated[str, Form()] = "auto", next: Annotated[str, Form()] = "") -> Response:
    """Remember a choice, for browsers without script."""
    response = redirect_with_message(safe_redirect_path(next, "/ui/"))
    # The script sets the same cookie by itself.
    chosen = theme if theme in _THEMES else "auto"
    response.set_cookie(_COOKIE_NAME, chosen, max_age=_COOKIE_LIFETIME_SECONDS, path="/", samesite="lax")
    return response
