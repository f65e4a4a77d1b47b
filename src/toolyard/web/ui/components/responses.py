"""Responses of pages: rendered templates, redirects with a message, confirmations and error pages.

Static files have URLs with a content hash. The theme and the collapsed panels are stored in cookies, so that
the first paint is right.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from http.client import responses as REASON_PHRASES
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from fastapi import Request, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse

from toolyard.types.account import RequestUser
from toolyard.types.server import URL_TRANSPORT_LABELS
from toolyard.web import service_dependencies as deps
from toolyard.web.problem_details import ProblemDetails
from toolyard.web.routes import Routes
from toolyard.web.ui.components.formatting import TEMPLATE_FILTERS
from toolyard.web.ui.components.forms import FormDep
from toolyard.web.ui.components.navigation import HELP_TOPICS, build_navigation
from toolyard.web.ui.components.rule_texts import RULE_FILTERS

__all__ = [
    "FRAGMENT_HEADER",
    "STATIC_FOLDER",
    "Flash",
    "FlashKind",
    "get_macros",
    "is_fragment_request",
    "preload_templates",
    "read_flash",
    "read_static_files",
    "redirect_to",
    "render_alert",
    "render_confirmation",
    "render_error_page",
    "render_large_page",
    "render_page",
    "router",
    "static_url",
]

_TRANSPORT_LABELS = {"stdio": "Local command", **URL_TRANSPORT_LABELS}


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
    """Return the contents of a file in ``static``, or of those whose names are joined by ``-``, each once.
    Raises FileNotFoundError."""
    suffix, files = Path(path).suffix, {each.name: each for each in STATIC_FOLDER.iterdir()}
    names = [f"{name}{suffix}" for name in path.removesuffix(suffix).split("-")]
    if not files.keys() >= set(names) or len(names) > len(set(names)):
        raise FileNotFoundError(path)
    return b"\n".join(files[name].read_bytes() for name in names)


FRAGMENT_HEADER = "toolyard-part"
"""Request header by which the script asks for a fragment instead of a whole page."""


def render_page(
    request: Request,
    template: str,
    *,
    status: int | None = None,
    errors: Mapping[str, str] | None = None,
    **context: Any,
) -> HTMLResponse:
    """Render a template with ``request_user``, ``csrf``, ``flash``, ``theme``, ``panels``, ``navigation``,
    ``status``, ``errors``, ``path``, ``here`` (the path with the query) and ``help_topic`` in its context.

    ``errors`` are those of a form, by field. With any, the status is 422.
    """
    status = status or (422 if errors else 200)
    request_user: RequestUser | None = getattr(request.state, "request_user", None)
    # Fragments have no place for the message, so they leave the cookie for the next page.
    flash = None if is_fragment_request(request) else read_flash(request)
    page = _build_environment().get_template(template)
    text = page.render(
        request_user=request_user,
        csrf=request_user.csrf if request_user is not None else "",
        flash=flash,
        theme=_read_theme(request),
        panels={name: _read_panel(request, cookie) for name, cookie in _PANEL_COOKIES.items()},
        navigation={} if request_user is None else build_navigation(request_user),
        status=status,
        errors=errors or {},
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


@cache
def get_macros(template: str) -> Any:
    """Return the macros of a template, as functions that return Markup."""
    return _build_environment().get_template(template).module


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
    environment.filters.update({**TEMPLATE_FILTERS, **RULE_FILTERS})  # pyright: ignore[reportUnknownMemberType]
    environment.globals["now"] = time.time  # pyright: ignore[reportUnknownMemberType]
    environment.globals["static_url"] = static_url  # pyright: ignore[reportUnknownMemberType]
    environment.globals["transport_labels"] = _TRANSPORT_LABELS  # pyright: ignore[reportUnknownMemberType]
    return environment


# Confirmations and errors.


def render_confirmation(
    request: Request,
    *,
    title: str,
    text: str,
    action: str,
    back: str,
    verb: str = "Delete",
    details: Sequence[str] = (),
    status: int = 200,
) -> Response:
    """Render the page that confirms an action, which the script shows as a dialog. ``action`` receives the
    form; ``back`` is the target of Cancel."""
    return render_page(
        request,
        "confirm.html",
        status=status,
        title=title,
        text=text,
        action=action,
        back=back,
        verb=verb,
        details=details,
    )


def render_alert(problem: ProblemDetails) -> Response:
    """Render an error as a message that the script shows in the page."""
    html = get_macros("parts.html").alert("bad", problem.detail, hint=problem.hint or "", closes=True)
    return HTMLResponse(html, problem.status)


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


def render_error_page(
    request: Request, status: int, detail: str = "", hint: str | None = None, *, title: str | None = None
) -> Response:
    """Render an error page. A ``detail`` that is only the reason phrase is replaced by a sentence."""
    # Starlette's own HTTPExceptions have the reason phrase as their detail.
    if detail in ("", REASON_PHRASES.get(status, "")):
        detail, hint = _TEXTS_BY_STATUS.get(status, ""), None
    title = title or _TITLES_BY_STATUS.get(status, "Request failed")
    return render_page(request, "failure.html", status=status, title=title, detail=detail, hint=hint)


# Messages and redirects.


FlashKind: TypeAlias = Literal["good", "bad", "note"]

_FLASH_COOKIE_NAME = "toolyard_flash"
_FLASH_SECONDS = 60
_MAX_TEXT_CHARACTERS = 1200
"""Maximum length of a message in the cookie."""
_MAX_COOKIE_BYTES = 3600
"""Maximum size of the cookie value. Browsers reject cookies over 4 KB."""


@dataclass(frozen=True, slots=True)
class Flash:
    """Message for the next page. It must not contain secrets, because it is stored in the browser."""

    text: str
    kind: FlashKind = "good"
    hint: str | None = None


def redirect_to(
    url: str, message: str | None = None, *, kind: FlashKind = "good", hint: str | None = None
) -> Response:
    """Return a redirect (303) after a form, with a message for the next page."""
    response = RedirectResponse(url, status_code=303)
    if message:
        value = _encode_flash(Flash(message, kind, hint or None))
        response.set_cookie(
            _FLASH_COOKIE_NAME, value, max_age=_FLASH_SECONDS, path="/", httponly=True, samesite="lax"
        )
    return response


def read_flash(request: Request) -> Flash | None:
    """Return the message for this page. None without a cookie, or if its value is not valid."""
    value = request.cookies.get(_FLASH_COOKIE_NAME)
    if not value:
        return None
    try:
        decoded: object = json.loads(base64.urlsafe_b64decode(value.encode()))
    # The cookie comes from the browser and may hold anything, including deeply nested JSON.
    except (binascii.Error, ValueError, RecursionError):
        return None
    if not isinstance(decoded, dict):
        return None
    parts = cast("dict[str, object]", decoded)
    text, kind, hint = parts.get("text"), parts.get("kind"), parts.get("hint")
    # The kind becomes a CSS class, so only known ones are accepted.
    if not isinstance(text, str) or kind not in ("good", "bad", "note"):
        return None
    return Flash(
        text[:_MAX_TEXT_CHARACTERS], kind, hint[:_MAX_TEXT_CHARACTERS] if isinstance(hint, str) else None
    )


def clear_flash(response: Response) -> None:
    """Delete the cookie after the message was shown."""
    response.delete_cookie(_FLASH_COOKIE_NAME, path="/", httponly=True, samesite="lax")


def _encode_flash(flash: Flash) -> str:
    # Characters take up to four bytes and base64 a third more: shorten the text until the cookie fits.
    max_characters = _MAX_TEXT_CHARACTERS
    while True:
        cut = Flash(
            _truncate_text(flash.text, max_characters),
            flash.kind,
            flash.hint and _truncate_text(flash.hint, max_characters // 2),
        )
        body = json.dumps(asdict(cut), ensure_ascii=False).encode("utf-8", "replace")
        value = base64.urlsafe_b64encode(body).decode()
        if len(value) <= _MAX_COOKIE_BYTES:
            return value
        max_characters //= 2


def _truncate_text(text: str, max_characters: int) -> str:
    return text if len(text) <= max_characters else f"{text[: max_characters - 2]} …"


# Theme and panels.

router = Routes()

_THEME_COOKIE_NAME = "toolyard_theme"
_THEMES = ("auto", "light", "dark")
_PANEL_COOKIES = {"nav": "toolyard_nav", "chats": "toolyard_chats"}
_PANEL_STATES = ("open", "closed")
_PREFERENCE_SECONDS = 365 * 24 * 3600


def _read_theme(request: Request) -> str:
    """Return the theme chosen in this browser; ``auto`` by default."""
    theme = request.cookies.get(_THEME_COOKIE_NAME, "auto")
    return theme if theme in _THEMES else "auto"


@router.post("/ui/theme")
async def choose_theme(form: FormDep) -> Response:
    """Store the chosen theme, for browsers without JavaScript."""
    # Available without sign-in: the choice affects only the browser that makes it.
    response = redirect_to(form.next_path("/ui/"))
    # Not HttpOnly, because the script sets the same cookie.
    chosen = form.text("theme") if form.text("theme") in _THEMES else "auto"
    response.set_cookie(_THEME_COOKIE_NAME, chosen, max_age=_PREFERENCE_SECONDS, path="/", samesite="lax")
    return response


def _read_panel(request: Request, cookie: str) -> str:
    """Return whether a panel is open or closed in this browser."""
    return "closed" if request.cookies.get(cookie) == "closed" else "open"


@router.post("/ui/panels")
async def set_panels(me: deps.CurrentUser, form: FormDep) -> Response:
    """Collapse or expand the navigation or the list of chats, for browsers without JavaScript."""
    response = redirect_to(form.next_path("/ui/"))
    for field, cookie in _PANEL_COOKIES.items():
        if (state := form.text(field)) in _PANEL_STATES:
            response.set_cookie(cookie, state, max_age=_PREFERENCE_SECONDS, path="/", samesite="lax")
    return response
