"""Who asks: the dependencies by which every route knows its visitor, and turns away those who may not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from fastapi import Request
from starlette.exceptions import HTTPException

from toolyard.accounts.errors import NotAllowed, NotSignedIn
from toolyard.config.settings.choices import PeopleMode
from toolyard.types.account import Right, Role, TokenScope, User
from toolyard.types.principal import Principal
from toolyard.web.access.cookies import Browser, ensure_browser, find_browser
from toolyard.web.access.request_context import get_request_context
from toolyard.web.middleware.request_body import get_body_limit, has_body

if TYPE_CHECKING:
    from toolyard.web.services import Services

__all__ = [
    "CSRF_FIELD",
    "CSRF_HEADER",
    "RequestUser",
    "authenticate_by_headers",
    "authenticate_request",
    "check_csrf",
    "forget_identity",
    "is_page_request",
    "parse_bearer_token",
    "read_bearer_token",
    "require_admin",
    "require_browser_user",
    "require_right",
    "require_user",
]

CSRF_FIELD = "csrf"
CSRF_HEADER = "x-csrf-token"
"""For scripts of our pages, which may send it instead of the field."""

_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_MAX_FORM_FIELDS = 5000
"""The forms of our pages are long where a server has many tools."""


@dataclass(frozen=True, slots=True)
class RequestUser:
    """Who asks. ``scope`` None: a browser, or whoever sits at this machine; else what a token is limited to.

    ``browser`` is what things begun in one browser are bound to; empty for tokens and for programs without a
    cookie. ``signed_in``: by a session, which can be ended.
    """

    user: User
    scope: TokenScope | None
    browser: str
    csrf: str
    address: str
    signed_in: bool = False

    @property
    def principal(self) -> Principal:
        """The same person as the call path sees them."""
        return Principal(self.user.id, self.user.name, admin=self.is_admin)

    @property
    def is_admin(self) -> bool:
        """Whether they may do what only admins may; with a token, only if it has that right too."""
        return self.user.role is Role.ADMIN and self.has_right(Right.ADMIN)

    def has_right(self, right: Right) -> bool:
        """Whether this is among their token's rights; without a token it is."""
        return self.scope is None or right in self.scope.rights


async def require_user(request: Request) -> RequestUser:
    """Whoever is signed in. A token needs the right ``read``, or ``manage`` where something is changed.

    Raises NotSignedIn or NotAllowed; on a page, sends people to sign in first.
    """
    return await _authenticate_with_right(
        request, Right.READ if request.method in _SAFE_METHODS else Right.MANAGE
    )


def require_right(right: Right) -> Callable[[Request], Awaitable[RequestUser]]:
    """The same, where a token needs this right instead."""

    async def require_user_with_right(request: Request) -> RequestUser:
        return await _authenticate_with_right(request, right)

    return require_user_with_right


async def require_admin(request: Request) -> RequestUser:
    """An admin. Others get NotAllowed, or no page at all. A token needs the right ``admin``."""
    found = await _authenticate_with_right(request, Right.ADMIN)
    if found.user.role is not Role.ADMIN:
        if is_page_request(request):
            raise HTTPException(404)
        raise NotAllowed("only admins may do this", hint="ask an admin")
    return found


async def require_browser_user(request: Request) -> RequestUser:
    """Whoever is signed in, but by no token: for what must not be handed on, such as making tokens."""
    found = await authenticate_request(request)
    if found.scope is not None:
        raise NotAllowed("no token may do this", hint="sign in with a browser")
    return found


def is_page_request(request: Request) -> bool:
    """Whether a person in a browser asks, and not a program."""
    return request.url.path == "/" or request.url.path.startswith("/ui")


async def check_csrf(request: Request, browser: Browser | None) -> None:
    """Whether what is sent to a page comes from a page of ours, in this browser. Raises NotAllowed."""
    sent = request.headers.get(CSRF_HEADER)
    if sent is None:
        # It is read here for all who ask for it later; one field may be as long as the whole.
        most = get_body_limit(request.url.path)
        form = await request.form(max_fields=_MAX_FORM_FIELDS, max_files=0, max_part_size=most)
        field = form.get(CSRF_FIELD)
        sent = field if isinstance(field, str) else ""
    if browser is None or not browser.is_valid_csrf(sent):
        raise NotAllowed(
            "this form is not from a page that this browser got from here, or is from long ago",
            hint="open the page again, and send it from there; cookies must be allowed",
        )


async def _authenticate_with_right(request: Request, right: Right) -> RequestUser:
    found = await authenticate_request(request)
    if not found.has_right(right):
        raise NotAllowed(f"this token does not have the right '{right}'", hint="make one that has it")
    return found


async def authenticate_request(request: Request) -> RequestUser:
    """Whoever is signed in, whatever they may do; looked up once for a request. Raises NotSignedIn or
    NotAllowed, and HTTPException for a body that a form elsewhere could send."""
    known: RequestUser | None = getattr(request.state, "visitor", None)
    if known is None:
        known = request.state.visitor = await _authenticate_and_check_body(request)
    return known


def forget_identity(request: Request) -> None:
    """Drop the cached user of a request, so that the next look-up asks the database again."""
    for name in ("visitor", "identity"):
        if hasattr(request.state, name):
            delattr(request.state, name)


async def authenticate_by_headers(request: Request) -> RequestUser:
    """Return the request's user by its head alone, without reading the body.

    Raises what ``recognise`` raises, but does not check whether a form is one of ours.
    """
    return (await _get_identity(request))[0]


async def _authenticate_and_check_body(request: Request) -> RequestUser:
    found, browser = await _get_identity(request)
    if found.scope is None and request.method not in _SAFE_METHODS:
        # Nobody is let in by mistake of a route: whatever changes something is checked here.
        if is_page_request(request):
            await check_csrf(request, browser)
        elif has_body(request.scope) and not _has_json_body(request):
            # Forms of pages elsewhere can have other types only.
            raise HTTPException(415, "the API takes bodies of the type application/json only")
    return found


async def _get_identity(request: Request) -> tuple[RequestUser, Browser | None]:
    known: tuple[RequestUser, Browser | None] | None = getattr(request.state, "identity", None)
    if known is None:
        token = read_bearer_token(request)
        known = await (
            _authenticate_without_token(request) if token is None else _authenticate_token(request, token)
        )
        request.state.identity = known
    return known


async def _authenticate_without_token(request: Request) -> tuple[RequestUser, Browser | None]:
    user, browser = await _authenticate_by_people_mode(request)
    address = get_request_context(request.scope).address
    if browser is None:
        return RequestUser(user, None, "", "", address), None
    signed_in = request.app.state.site.settings.people_mode in (PeopleMode.PASSWORD, PeopleMode.OIDC)
    return RequestUser(user, None, browser.id, browser.csrf, address, signed_in), browser


async def _authenticate_token(request: Request, token: str) -> tuple[RequestUser, None]:
    if is_page_request(request):
        raise NotAllowed(
            "tokens are for the API, not for pages", hint="use /api/v1, or sign in with a browser"
        )
    site: Services = request.app.state.site
    found = await site.people.authenticate_token(token)
    if found is None:
        raise NotSignedIn(
            "this token is not accepted: it is wrong, has run out, or its owner may not use it",
            hint="make a new one on the page API tokens",
        )
    made, user = found
    return RequestUser(user, made.scope, "", "", get_request_context(request.scope).address), None


async def _authenticate_by_people_mode(request: Request) -> tuple[User, Browser | None]:
    site: Services = request.app.state.site
    mode = site.settings.people_mode
    if mode is PeopleMode.NONE:
        return await site.people.local_user(), _get_browser(request)
    if mode is PeopleMode.PROXY:
        return await site.people.authenticate_proxy_name(_read_proxy_user_name(request)), _get_browser(
            request
        )
    browser = find_browser(request)
    found = (
        None
        if browser is None
        else await site.people.authenticate_cookie(browser.text, get_request_context(request.scope).address)
    )
    if found is None:
        raise _build_sign_in_error(request)
    return found[1], browser


def _get_browser(request: Request) -> Browser | None:
    """Pages give browsers a cookie where there is no sign-in that would; programs need none."""
    return ensure_browser(request) if is_page_request(request) else find_browser(request)


def _read_proxy_user_name(request: Request) -> str:
    header: str = request.app.state.site.settings.proxy_header
    named = request.headers.getlist(header)
    if named and not get_request_context(request.scope).is_trusted_proxy:
        raise NotAllowed(
            f"the header {header} is believed only if it comes from a trusted proxy, and this came from "
            f"{get_request_context(request.scope).peer}",
            hint="reach Toolyard through the proxy; if this is the proxy, add its address to trusted_proxies",
        )
    if len(named) > 1:
        raise NotAllowed(f"the header {header} is there more than once", hint="the proxy must replace it")
    name = _decode_header(named[0]).strip() if named else ""
    if not name:
        raise NotSignedIn(
            "the proxy in front of Toolyard did not say who you are", hint=f"it must send the header {header}"
        )
    return name


def _build_sign_in_error(request: Request) -> Exception:
    if not is_page_request(request):
        return NotSignedIn(
            "you are not signed in", hint="send an API token: Authorization: Bearer ty_…, or sign in"
        )
    wanted = request.url.path
    if request.url.query:
        wanted += f"?{request.url.query}"
    # What a form wanted to do cannot be done again by following a link.
    next_ = (
        f"?next={quote(wanted, safe='')}"
        if request.method in _SAFE_METHODS and wanted not in ("/", "/ui/")
        else ""
    )
    return HTTPException(303, headers={"Location": f"/ui/sign-in{next_}"})


def read_bearer_token(request: Request) -> str | None:
    """The token that was sent. Other schemes are the business of whoever stands before us."""
    return parse_bearer_token(request.headers.get("authorization", ""))


def parse_bearer_token(authorization: str) -> str | None:
    """Return the token in the value of an ``Authorization`` header, or None for any other scheme."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _has_json_body(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _decode_header(text: str) -> str:
    """Headers come as Latin-1; proxies send UTF-8."""
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        return text
