"""Rendering of Jinja templates, with autoescaping and the context that every page shares."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from toolyard.web.ui.components.assets import static_url
from toolyard.web.ui.components.flash import clear_flash, read_flash
from toolyard.web.ui.components.formatting import TEMPLATE_FILTERS
from toolyard.web.ui.components.theme import read_theme

if TYPE_CHECKING:
    from toolyard.web.access.dependencies import RequestUser

__all__ = ["FRAGMENT_HEADER", "is_fragment_request", "render_macro", "render_page"]

FRAGMENT_HEADER = "toolyard-part"
"""Request header by which the script asks for a fragment instead of a whole page."""


def render_page(request: Request, template: str, *, status: int = 200, **context: Any) -> HTMLResponse:
    """Render a template. The context always has ``visitor``, ``csrf``, ``flash``, ``theme``, ``path`` and
    ``here`` (the path with the query)."""
    visitor: RequestUser | None = getattr(request.state, "visitor", None)
    # Fragments have no place for the message, so they leave the cookie for the next page.
    flash = None if is_fragment_request(request) else read_flash(request)
    page = _build_environment().get_template(template)
    text = page.render(
        visitor=visitor,
        csrf=visitor.csrf if visitor is not None else "",
        flash=flash,
        theme=read_theme(request),
        path=request.url.path,
        here=_get_return_path(request),
        **context,
    )
    response = HTMLResponse(text, status)
    # Pages contain personal data, which no cache may store.
    response.headers["cache-control"] = "no-store"
    if flash is not None:
        clear_flash(response)
    return response


def render_macro(template: str, macro: str, *arguments: Any, **keywords: Any) -> Markup:
    """Render one macro of a template."""
    return getattr(_build_environment().get_template(template).module, macro)(*arguments, **keywords)


def _get_return_path(request: Request) -> str:
    """Return the path and query of this page for the redirect after a form. Empty for responses to POST,
    which cannot be loaded again."""
    if request.method != "GET":
        return ""
    query = request.url.query
    return f"{request.url.path}?{query}" if query else request.url.path


def is_fragment_request(request: Request) -> bool:
    """Return True if the script asks for a fragment."""
    return FRAGMENT_HEADER in request.headers


@cache
def _build_environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent.parent / "templates"),
        autoescape=True,
        # A misspelt name in a template is an error, not an empty text.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Templates never change while the process runs. Checking their files would cost a stat call per
        # render.
        auto_reload=False,
        cache_size=-1,
    )
    # Jinja leaves the types of its filters and globals open.
    environment.filters.update(TEMPLATE_FILTERS)  # pyright: ignore[reportUnknownMemberType]
    environment.globals["static_url"] = static_url  # pyright: ignore[reportUnknownMemberType]
    return environment
