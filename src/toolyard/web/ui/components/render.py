"""Rendering of Jinja templates, with autoescaping and the context that every page shares.

Static files have URLs with a content hash. The theme and the collapsed panels are stored in cookies, so that
the first paint is right.
"""

from __future__ import annotations

import asyncio
import hashlib
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import Form, Request, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse

from toolyard.types.account import RequestUser
from toolyard.types.server import URL_TRANSPORT_LABELS
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.ui.components.flash import clear_flash, read_flash, redirect_with_message
from toolyard.web.ui.components.formatting import TEMPLATE_FILTERS
from toolyard.web.ui.components.help_topics import HELP_TOPICS
from toolyard.web.ui.components.navigation import build_navigation
from toolyard.web.ui.components.safe_redirect import safe_redirect_path

__all__ = [
    "FRAGMENT_HEADER",
    "STATIC_FOLDER",
    "is_fragment_request",
    "preload_templates",
    "read_static_files",
    "read_theme",
    "render_large_page",
    "render_macro",
    "render_page",
    "router",
    "static_url",
]


STATIC_FOLDER = Path(__file__).parent.parent / "static"
"""Folder served under ``/static``."""


@cache
def static_url(*names: str) -> str:
    """Return the URL of a file in ``static``, or of several of one type as one. The hash of the contents lets
    browsers cache it forever."""
    suffix = Path(names[0]).suffix
    path = "-".join(name.removesuffix(suffix) for name in names) + suffix
    return f"/static/{path}?v={hashlib.sha256(read_static_files(path)).hexdigest()[:12]}"


def read_static_files(path: str) -> bytes:
    """Return the contents of a file in ``static``, or of those whose names are joined by ``-``. Raises
    FileNotFoundError."""
    suffix, files = Path(path).suffix, {each.name: each for each in STATIC_FOLDER.iterdir()}
    names = [f"{name}{suffix}" for name in path.removesuffix(suffix).split("-")]
    if not files.keys() >= set(names):
        raise FileNotFoundError(path)
    return b"\n".join(files[name].read_bytes() for name in names)


FRAGMENT_HEADER = "toolyard-part"
"""Request header by which the script asks for a fragment instead of a whole page."""


def render_page(request: Request, template: str, *, status: int = 200, **context: Any) -> HTMLResponse:
    """Render a template with ``request_user``, ``csrf``, ``flash``, ``theme``, ``panels``, ``navigation``,
    ``path``, ``here`` (the path with the query) and ``help_topic`` in its context."""
    request_user: RequestUser | None = getattr(request.state, "request_user", None)
    # Fragments have no place for the message, so they leave the cookie for the next page.
    flash = None if is_fragment_request(request) else read_flash(request)
    page = _build_environment().get_template(template)
    text = page.render(
        request_user=request_user,
        csrf=request_user.csrf if request_user is not None else "",
        flash=flash,
        theme=read_theme(request),
        panels={name: _read_panel(request, cookie) for name, cookie in _PANEL_COOKIES.items()},
        navigation={} if request_user is None else build_navigation(request_user),
        path=request.url.path,
        here=_get_return_path(request),
        help_topic=HELP_TOPICS.get(template, ""),
        **context,
    )
    response = HTMLResponse(text, status)
    # Pages contain personal data, which no cache may store.
    response.headers["cache-control"] = "no-store"
    if flash is not None:
        clear_flash(response)
    return response


def preload_templates() -> None:
    """Compile all templates, which takes up to 50 ms each. Call it in a thread."""
    environment = _build_environment()
    for name in environment.list_templates():
        environment.get_template(name)


async def render_large_page(request: Request, template: str, **context: Any) -> HTMLResponse:
    """Render a page with long texts of servers in a thread: to escape hidden characters takes time."""
    return await asyncio.to_thread(partial(render_page, request, template, **context))


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
    environment.globals["url_transport_labels"] = URL_TRANSPORT_LABELS  # pyright: ignore[reportUnknownMemberType]
    return environment


router = Routes()

_COOKIE_NAME = "toolyard_theme"
_THEMES = ("auto", "light", "dark")
_PANEL_COOKIES = {"nav": "toolyard_nav", "chats": "toolyard_chats"}
_PANEL_STATES = ("open", "closed")
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


def _read_panel(request: Request, cookie: str) -> str:
    """Return whether a panel is open or closed in this browser."""
    return "closed" if request.cookies.get(cookie) == "closed" else "open"


@router.post("/ui/panels")
async def toggle_panel(
    me: deps.CurrentUser,
    nav: Annotated[str, Form()] = "",
    chats: Annotated[str, Form()] = "",
    next: Annotated[str, Form()] = "",
) -> Response:
    """Collapse or expand the navigation or the list of chats, for browsers without JavaScript."""
    response = redirect_with_message(safe_redirect_path(next, "/ui/"))
    for cookie, state in zip(_PANEL_COOKIES.values(), (nav, chats), strict=True):
        if state in _PANEL_STATES:
            response.set_cookie(cookie, state, max_age=_COOKIE_LIFETIME_SECONDS, path="/", samesite="lax")
    return response
