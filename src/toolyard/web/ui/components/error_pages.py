"""HTML error pages. The API responds with problem details instead."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from fastapi import Request, Response

from toolyard.web.ui.components.render import render_page

__all__ = ["ErrorPage", "render_error_page"]

_TITLES_BY_STATUS = {
    400: "Invalid request",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "Can’t open this address",
    409: "Already changed",
    413: "Too large",
    422: "Invalid input",
    429: "Too many attempts",
    500: "Something went wrong",
    502: "The server failed",
    503: "Not available right now",
    504: "The server did not respond in time",
}
_TEXTS_BY_STATUS = {
    404: "Page not found, or you don’t have access.",
    405: "This address only accepts submitted forms.",
}


@dataclass(frozen=True, slots=True)
class ErrorPage:
    """Content of an error page. ``detail`` and ``hint`` come from the error."""

    status: int
    title: str
    detail: str
    hint: str | None = None
    back: str = "/ui/"


def render_error_page(
    request: Request, status: int, detail: str = "", hint: str | None = None, *, title: str | None = None
) -> Response:
    """Render an error page. A ``detail`` that is only the reason phrase is replaced by a sentence."""
    # Starlette's own HTTPExceptions have the reason phrase as their detail.
    if detail in ("", _find_reason_phrase(status)):
        detail, hint = _TEXTS_BY_STATUS.get(status, ""), None
    failure = ErrorPage(status, title or _TITLES_BY_STATUS.get(status, "Request failed"), detail, hint)
    return render_page(request, "failure.html", status=status, page=failure)


def _find_reason_phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
