"""Asking again before something is gone: a page, which the script shows as a dialog."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from toolyard.web.ui.components.render import render

__all__ = ["Confirm", "confirm_page"]


@dataclass(frozen=True, slots=True)
class Confirm:
    """What would happen, and the way back."""

    title: str
    text: str
    action: str
    back: str
    verb: str = "Delete"
    details: tuple[str, ...] = ()


def confirm_page(request: Request, page: Confirm) -> Response:
    """The page that asks."""
    return render(request, "confirm.html", page=page)
