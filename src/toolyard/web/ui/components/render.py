"""Pages from templates: compiled once, escaped always, with what every page has."""

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
"""The script sends it when it asks for a part of a page and not for the whole."""


def render_page(request: Request, template: str, *, status: int = 200, **context: Any) -> HTMLResponse:
    """The page of a template. Each has ``visitor``, ``csrf``, ``flash``, ``theme``, ``path`` and ``here``."""
    visitor: RequestUser | None = getattr(request.state, "visitor", None)
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
    # Pages show what is a person's own, and say so to every cache on the way.
    response.headers["cache-control"] = "no-store"
    if flash is not None:
        clear_flash(response)
    return response


def render_macro(template: str, macro: str, *arguments: Any, **keywords: Any) -> Markup:
    """A part alone: what a macro of a template makes of what it is given."""
    return getattr(_build_environment().get_template(template).module, macro)(*arguments, **keywords)


def _get_return_path(request: Request) -> str:
    """The way back to this page; empty where it answers a form, since it cannot be got again."""
    if request.method != "GET":
        return ""
    query = request.url.query
    return f"{request.url.path}?{query}" if query else request.url.path


def is_fragment_request(request: Request) -> bool:
    """Whether the script asks for a part only."""
    return FRAGMENT_HEADER in request.headers


@cache
def _build_environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent.parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        cache_size=-1,
    )
    # Jinja does not say what its filters and globals are.
    environment.filters.update(TEMPLATE_FILTERS)  # pyright: ignore[reportUnknownMemberType]
    environment.globals["static_url"] = static_url  # pyright: ignore[reportUnknownMemberType]
    return environment
