"""Asking again before something is gone: a page, which the script shows as a dialog."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from toolyard.web.ui.components.render import render_page

__all__ = ["ConfirmPage", "render_confirm_page"]


@dataclass(frozen=True, slots=True)
class ConfirmPage:
    """What would happen, and the way back."""

    title: str
    text: str
    action: str
    back: str
    verb: str = "Delete"
    details: tuple[str, ...] = ()


def render_confirm_page(request: Request, page: ConfirmPage) -> Response:
    """The page that asks."""
    return render_page(request, "confirm.html", page=page)
