"""Light, dark, or as the system has it: remembered in a cookie, so that the first paint is right."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import Response

from toolyard.web.ui.components.flash import go
from toolyard.web.ui.components.safe_redirect import inner_path

__all__ = ["router", "theme_of"]

router = APIRouter()

_COOKIE = "toolyard_theme"
_THEMES = ("auto", "light", "dark")
_YEAR = 365 * 24 * 3600


def theme_of(request: Request) -> str:
    """What this browser wants."""
    wanted = request.cookies.get(_COOKIE, "auto")
    return wanted if wanted in _THEMES else "auto"


@router.post("/ui/theme")
async def choose_theme(theme: Annotated[str, Form()] = "auto", next: Annotated[str, Form()] = "") -> Response:
    """Remember a choice, for browsers without script."""
    response = go(inner_path(next, "/ui/"))
    # The script sets the same cookie by itself.
    chosen = theme if theme in _THEMES else "auto"
    response.set_cookie(_COOKIE, chosen, max_age=_YEAR, path="/", samesite="lax")
    return response
