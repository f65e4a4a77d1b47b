"""Route dependencies that authenticate requests and check rights."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from urllib.parse import quote

from fastapi import Request
from starlette.exceptions import HTTPException

from toolyard.accounts import AccountService
from toolyard.accounts.errors import NotAllowed, NotSignedIn
from toolyard.config.settings.table import PeopleMode, Settings
from toolyard.errors import ToolyardError
from toolyard.types.account import RequestBrowser, RequestUser, Right, Role
from toolyard.web.access.cookies import ensure_browser, find_browser
from toolyard.web.access.form_data import parse_form
from toolyard.web.access.request_context import REQUEST_CONTEXT_KEY
from toolyard.web.middleware import request_body
from toolyard.web.service_lookup import get_service

__all__ = [
    "CSRF_FIELD",
    "CSRF_HEADER",
    "RequestUser",
    "authenticate_by_headers",
    "authenticate_request",
    "check_csrf",
    "find_user",
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
"""Alternative to the form field, for scripts of our pages."""

_BINARY_TYPE = "application/octet-stream"
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


def require_right(right: Right | None = None) -> Callable[[Request], Awaitable[RequestUser]]:
    """Return a dependency on the user, for which a token needs a right: by default ``read``, or ``manage``
    for methods that change data.

    It raises NotSignedIn or NotAllowed; for a page, it redirects to the sign-in.
    """

    async def require_user_with_right(request: Request) -> RequestUser:
        user = await authenticate_request(request)
        needed = right or (Right.READ if request.method in _SAFE_METHODS else Right.MANAGE)
        if not user.has_right(needed):
            raise NotAllowed(
                f"this token does not have the right '{needed}'", hint="create a token with this right"
            )
        return user

    return require_user_with_right


require_user = require_right()
_require_admin_right = require_right(Right.ADMIN)


async def require_admin(request: Request) -> RequestUser:
    """Return the user if they are an admin. A token needs the right ``admin``.

    Raises NotAllowed; for a page, responds 404 to hide that it exists.
    """
    user = await _require_admin_right(request)
    if user.user.role is not Role.ADMIN:
        if is_page_request(request):
            raise HTTPException(404)
        raise NotAllowed("only admins may do this", hint="ask an admin")
    return user


async def require_browser_user(request: Request) -> RequestUser:
    """Return the user, refusing tokens: for actions such as creating tokens."""
    user = await authenticate_request(request)
    if user.scope is not None:
        raise NotAllowed("this action is not available to API tokens", hint="sign in with a browser")
    return user


def is_page_request(request: Request) -> bool:
    """Return True for requests to pages, as opposed to the API."""
    path: str = request.scope["path"]
    return path == "/" or path.startswith("/ui")


async def check_csrf(request: Request, browser: RequestBrowser | None) -> None:
    """Verify the CSRF token of a form or script. Raises NotAllowed."""
    token = request.headers.get(CSRF_HEADER)
    if token is None:
        field = (await parse_form(request)).get(CSRF_FIELD)
        token = field if isinstance(field, str) else ""
    if browser is None or not browser.is_valid_csrf(token):
        raise NotAllowed(
            "this form is outdated, or was not opened in this browser",
            hint="reload the page and send the form again; cookies must be enabled",
        )


async def authenticate_request(request: Request) -> RequestUser:
    """Return the user, whatever their rights. The result is cached in the request.

    Raises NotSignedIn or NotAllowed, and HTTPException for a body type that a cross-site form could send.
    """
    known_user: RequestUser | None = getattr(request.state, "request_user", None)
    if known_user is not None:
        return known_user
    identity: RequestUser | None = getattr(request.state, "identity", None)
    user = identity or await authenticate_by_headers(request)
    # Tokens need no check, because a browser does not attach them by itself.
    if user.scope is None and request.method not in _SAFE_METHODS:
        # Checked here for all unsafe methods, so that no route can forget it.
        if is_page_request(request):
            await check_csrf(request, user.browser)
        elif request_body.has_body(request.scope) and not _has_safe_body_type(request):
            # Cross-site forms cannot send these.
            wanted = _BINARY_TYPE if request.url.path == request_body.UPLOAD_PATH else "application/json"
            raise HTTPException(415, f"the API accepts request bodies of type {wanted} only")
    request.state.request_user = user
    return user


def forget_identity(request: Request) -> None:
    """Drop the cached user of a request, so that the next dependency reads the database again."""
    for name in ("request_user", "identity"):
        if hasattr(request.state, name):
            delattr(request.state, name)


async def authenticate_by_headers(request: Request) -> RequestUser:
    """Return the user by the request head alone, without reading the body or checking the CSRF token.

    The result is cached in the request. Raises NotSignedIn or NotAllowed.
    """
    user: RequestUser | None = getattr(request.state, "identity", None)
    if user is None:
        token = parse_bearer_token(request.headers.get("authorization", ""))
        user = request.state.identity = await (
            _authenticate_without_token(request) if token is None else _authenticate_token(request, token)
        )
    return user


async def find_user(request: Request) -> RequestUser | None:
    """Return the user by the request head, or None for a stranger: for pages that anyone may read."""
    if getattr(request.state, "request_user", None) is None:
        with contextlib.suppress(ToolyardError, HTTPException):
            request.state.request_user = await authenticate_by_headers(request)
    return getattr(request.state, "request_user", None)


async def _authenticate_without_token(request: Request) -> RequestUser:
    people = get_service(request, AccountService)
    mode = people.people_mode
    address = request.scope[REQUEST_CONTEXT_KEY].address
    if mode in (PeopleMode.PASSWORD, PeopleMode.OIDC):
        browser = find_browser(request)
        found = None if browser is None else await people.authenticate_cookie(browser.text, address)
        if found is None:
            raise _build_sign_in_error(request)
        return RequestUser(found[1], None, address, browser, signed_in=True)
    if mode is PeopleMode.NONE:
        user = await people.local_user()
    else:
        user = await people.authenticate_proxy_name(_read_proxy_user_name(request))
    # Pages set a cookie, which in these modes no sign-in would do; the API does not.
    browser = ensure_browser(request) if is_page_request(request) else find_browser(request)
    return RequestUser(user, None, address, browser)


async def _authenticate_token(request: Request, token: str) -> RequestUser:
    if is_page_request(request):
        raise NotAllowed("API tokens cannot be used for pages", hint="use /api/v1, or sign in with a browser")
    token_and_user = await get_service(request, AccountService).authenticate_token(token)
    if token_and_user is None:
        raise NotSignedIn(
            "this token is not valid: it is unknown or expired, or its owner's account is disabled",
            hint="create a new one on the API tokens page",
        )
    api_token, user = token_and_user
    return RequestUser(user, api_token.scope, request.scope[REQUEST_CONTEXT_KEY].address)


def _read_proxy_user_name(request: Request) -> str:
    header = get_service(request, Settings).proxy_header
    names = request.headers.getlist(header)
    if names and not request.scope[REQUEST_CONTEXT_KEY].is_trusted_proxy:
        raise NotAllowed(
            f"the header {header} is accepted from trusted proxies only, and this request came from "
            f"{request.scope[REQUEST_CONTEXT_KEY].peer}",
            hint="open Toolyard through the proxy; if this is the proxy, add its address to trusted_proxies",
        )
    if len(names) > 1:
        raise NotAllowed(
            f"the header {header} was sent more than once", hint="configure the proxy to replace the header"
        )
    name = _decode_header(names[0]).strip() if names else ""
    if not name:
        raise NotSignedIn(
            "the proxy in front of Toolyard did not send a user name",
            hint=f"configure it to send the header {header}",
        )
    return name


def _build_sign_in_error(request: Request) -> Exception:
    if not is_page_request(request):
        return NotSignedIn(
            "you are not signed in", hint="send an API token: Authorization: Bearer ty_…, or sign in"
        )
    target = request.url.path
    if request.url.query:
        target += f"?{request.url.query}"
    # A form cannot be submitted again by following a link, so only safe methods get a target.
    next_ = (
        f"?next={quote(target, safe='')}"
        if request.method in _SAFE_METHODS and target not in ("/", "/ui/")
        else ""
    )
    return HTTPException(303, headers={"Location": f"/ui/sign-in{next_}"})


def read_bearer_token(request: Request) -> str | None:
    """Return the bearer token of a request. Other schemes are left to a proxy in front."""
    return parse_bearer_token(request.headers.get("authorization", ""))


def parse_bearer_token(authorization: str) -> str | None:
    """Return the token in the value of an ``Authorization`` header, or None for any other scheme."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _has_safe_body_type(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.url.path == request_body.UPLOAD_PATH:
        return kind == _BINARY_TYPE
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _decode_header(text: str) -> str:
    """Decode a header value that Starlette read as Latin-1, but that proxies send as UTF-8."""
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        return text
