"""Confirmation before something is deleted. The script shows the page as a dialog."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from toolyard.web.ui.components.render import render_page

__all__ = ["ConfirmPage", "render_confirm_page"]


@dataclass(frozen=True, slots=True)
class ConfirmPage:
    """Content of a confirmation page. ``action`` receives the form; ``back`` is the target of Cancel."""

    title: str
    text: str
    action: str
    back: str
    verb: str = "Delete"
    details: tuple[str, ...] = ()


def render_confirm_page(request: Request, page: ConfirmPage) -> Response:
    """Render the confirmation page."""
    return render_page(request, "confirm.html", page=page)
