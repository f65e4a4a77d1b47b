"""Sign-in and sign-out, invite links, and the account page."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from fastapi import Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse

from toolyard.accounts import AccountService
from toolyard.accounts.browser_sessions import derive_session_id as session_id_of
from toolyard.accounts.errors import (
    Invalid,
    NeverBegun,
    NotAllowed,
    ProviderFailed,
    SignInRefused,
    TooManySignIns,
)
from toolyard.accounts.passwords import MIN_PASSWORD_CHARACTERS
from toolyard.config.settings.table import PeopleMode, Settings
from toolyard.errors import ToolyardError
from toolyard.net import OutboundHttp
from toolyard.store.repositories.accounts import SqlAccountStorage
from toolyard.store.repositories.audit import SqlAuditLog
from toolyard.types.account import RequestUser, User
from toolyard.types.audit import AuditEntry
from toolyard.web import service_dependencies as deps
from toolyard.web.access.cookies import (
    clear_session_cookie,
    ensure_browser,
    find_browser,
    find_device,
    set_device_cookie,
    set_session_cookie,
)
from toolyard.web.access.dependencies import check_csrf
from toolyard.web.access.request_context import get_request_context
from toolyard.web.access.services import get_service
from toolyard.web.account_admin import AccountAdmin
from toolyard.web.public_urls import PublicUrls
from toolyard.web.routes import Routes
from toolyard.web.ui.components.error_pages import render_error_page
from toolyard.web.ui.components.flash import redirect_with_message
from toolyard.web.ui.components.formatting import sentence
from toolyard.web.ui.components.forms import field_errors, read_submitted_form
from toolyard.web.ui.components.render import render_page
from toolyard.web.ui.components.safe_redirect import safe_redirect_path

if TYPE_CHECKING:
    from toolyard.accounts.oidc.sign_in import OidcSignIn

__all__ = ["OIDC_CALLBACK_PATH", "router"]

router = Routes(include_in_schema=False)

OIDC_CALLBACK_PATH = "/ui/oidc/callback"
"""Redirect URI path that the operator registers at the identity provider."""

_HOME_PATH = "/ui/"
_STALE_FORM_ERROR = NotAllowed(
    "this page is out of date: someone has signed in or out in this browser since it was opened",
    hint="sign in again; cookies must be enabled",
)
_FIELD_LABELS = {"password": "Password", "new_password": "New password", "old_password": "Old password"}


@router.get("/ui/sign-in")
async def show_sign_in(request: Request, next: str = "") -> Response:
    """Show the form for name and password, or the link to the identity provider."""
    to = safe_redirect_path(next, _HOME_PATH)
    if not _has_sign_in(request) or await _is_signed_in(request):
        return RedirectResponse(to, 303)
    return _render_sign_in_page(request, to)


@router.post("/ui/sign-in")
async def sign_in_with_password(request: Request) -> Response:
    """Sign in with name and password."""
    form, people = await read_submitted_form(request), _get_people(request)
    name, to = form.text("name"), safe_redirect_path(form.text("next"), _HOME_PATH)
    try:
        await check_csrf(request, find_browser(request))
    except NotAllowed:
        # Another window signed in or out since, so that the CSRF token of this form is out of date.
        return _render_sign_in_page(request, to, name=name, error=_STALE_FORM_ERROR, status=403)
    try:
        user, cookie = await people.sign_in(
            name,
            form.text("password"),
            _get_client_address(request),
            device=find_device(request),
            user_agent=_get_user_agent(request),
        )
    except SignInRefused as error:
        # The audit log names the account, if there is one.
        known = await people.find_user(name)
        # Unknown names are not logged, because people sometimes type their password in the name field.
        _record_audit_entry(request, "sign_in", known, outcome="refused", target=known.name if known else "")
        return _render_sign_in_page(request, to, name=name, error=error, status=401)
    except TooManySignIns as error:
        page = _render_sign_in_page(request, to, name=name, error=error, status=429)
        page.headers["Retry-After"] = str(math.ceil(error.retry_after))
        return page
    await _start_browser_session(request, user, cookie)
    return redirect_with_message(to)


@router.get("/ui/sign-in/oidc")
async def begin_oidc_sign_in(request: Request, next: str = "") -> Response:
    """Redirect to the identity provider.

    This is a GET, because the content security policy keeps forms from redirecting to another site. No CSRF
    protection is needed: a forged request could only sign in the person themselves.
    """
    oidc = _get_oidc(request)
    redirect_uri = get_service(request, PublicUrls).base_url(request) + OIDC_CALLBACK_PATH
    try:
        url = await oidc.begin(
            safe_redirect_path(next, _HOME_PATH),
            browser=ensure_browser(request).text,
            redirect_uri=redirect_uri,
            address=_get_client_address(request),
        )
    except (ProviderFailed, TooManySignIns) as error:
        return _render_sign_in_failure(request, error)
    return RedirectResponse(url, 303)


@router.get(OIDC_CALLBACK_PATH)
async def finish_oidc_sign_in(request: Request) -> Response:
    """Finish the sign-in after the identity provider redirected back."""
    oidc, browser = _get_oidc(request), find_browser(request)
    pairs = request.query_params.multi_items()
    # RFC 6749, section 3.1: parameters must not be repeated. Repeated ones are ignored.
    times = Counter(name for name, _ in pairs)
    answer = {name: value for name, value in pairs if times[name] == 1}
    try:
        user, to = await oidc.finish(answer, browser=browser.text if browser else "")
    except NeverBegun as error:
        # Anyone can request this address without a sign-in in progress: do not let them fill the audit log.
        return _render_sign_in_failure(request, error)
    except ToolyardError as error:
        _record_audit_entry(request, "sign_in", None, outcome="refused")
        return _render_sign_in_failure(request, error)
    people = _get_people(request)
    await _start_browser_session(
        request,
        user,
        await people.begin_session(user, _get_client_address(request), _get_user_agent(request)),
    )
    return RedirectResponse(safe_redirect_path(to, _HOME_PATH), 303)


@router.post("/ui/sign-out")
async def sign_out(request: Request) -> Response:
    """End the session of this browser."""
    browser = find_browser(request)
    await check_csrf(request, browser)
    people = _get_people(request)
    if browser is not None and _has_sign_in(request):
        found = await people.authenticate_cookie(browser.text)
        await people.sign_out(browser.text)
        clear_session_cookie(request)
        if found is not None:
            _record_audit_entry(request, "sign_out", found[1])
    return redirect_with_message("/ui/sign-in", "You are signed out.")


@router.get("/ui/invite/{token}")
async def show_invite(request: Request, token: str) -> Response:
    """Show the form that sets a password with an invite link."""
    invited = await _get_people(request).find_invited_user(token)
    if invited is None:
        return _render_invalid_invite(request)
    return await _render_invite_page(request, invited)


@router.post("/ui/invite/{token}")
async def accept_invite(request: Request, token: str) -> Response:
    """Set the password, use up the link, and sign in its owner."""
    await check_csrf(request, find_browser(request))
    form, people = await read_submitted_form(request), _get_people(request)
    revoke_tokens = bool(form.text("revoke_tokens"))
    invited = await people.find_invited_user(token)
    if invited is None:
        return _render_invalid_invite(request)
    # Compared before the link is used up.
    if form.text("password") != form.text("again"):
        return await _render_invite_page(request, invited, {"again": "The passwords don’t match."})
    try:
        user, cookie = await get_service(request, AccountAdmin).accept_invite(
            invited,
            token,
            form.text("password"),
            address=_get_client_address(request),
            user_agent=_get_user_agent(request),
            revoke_tokens=revoke_tokens,
        )
    except Invalid as error:
        return await _render_invite_page(request, invited, field_errors(error, _FIELD_LABELS))
    except SignInRefused:
        return _render_invalid_invite(request)
    made_by = user.notice.by if user.notice is not None else ""
    details = {"link_made_by": made_by, "tokens_revoked": revoke_tokens}
    _record_audit_entry(request, "invite.accept", user, target=user.name, details=details)
    await _start_browser_session(request, user, cookie)
    return redirect_with_message(_HOME_PATH, "Your password is set and you are signed in.")


@router.get("/ui/account")
async def show_account(request: Request, me: deps.BrowserUser) -> Response:
    """Show the account page."""
    return await _render_account_page(request, me)


@router.post("/ui/account/password")
async def change_password(request: Request, me: deps.BrowserUser) -> Response:
    """Change the password and sign out all other browsers."""
    form, people = await read_submitted_form(request), _get_people(request)
    old, new = form.text("old_password"), form.text("new_password")
    if new != form.text("again"):
        return await _render_account_page(request, me, {"again": "The passwords don’t match."})
    try:
        cookie = await people.change_password(
            me.user, old, new, me.address, user_agent=_get_user_agent(request)
        )
    except Invalid as error:
        return await _render_account_page(request, me, field_errors(error, _FIELD_LABELS))
    except (SignInRefused, TooManySignIns) as error:
        return await _render_account_page(request, me, {"old_password": _format_error(error)})
    set_session_cookie(request, cookie)
    _record_audit_entry(request, "password.change", me.user, target=me.user.name)
    return redirect_with_message(
        "/ui/account", "Your password is changed. Every other browser is signed out."
    )


@router.post("/ui/account/sign-out-everywhere")
async def sign_out_everywhere(request: Request, me: deps.BrowserUser) -> Response:
    """End all sessions of the person, including this one."""
    await _get_people(request).sign_out_everywhere(me.user)
    clear_session_cookie(request)
    _record_audit_entry(request, "sign_out", me.user, target="everywhere")
    return redirect_with_message("/ui/sign-in", "You are signed out everywhere.")


@router.post("/ui/account/sessions/{session_id}/sign-out")
async def sign_out_session(request: Request, me: deps.BrowserUser, session_id: str) -> Response:
    """End one session of the person."""
    if not await _get_people(request).end_session(me.user, session_id):
        return redirect_with_message("/ui/account", "This browser was already signed out.", kind="note")
    _record_audit_entry(request, "sign_out", me.user, target=session_id)
    return redirect_with_message("/ui/account", "The browser is signed out.")


@router.post("/ui/account/notice")
async def dismiss_notice(request: Request, me: deps.BrowserUser) -> Response:
    """Dismiss the notice about a password reset link."""
    await _get_people(request).dismiss_notice(me.user)
    return redirect_with_message(
        safe_redirect_path((await read_submitted_form(request)).text("next"), _HOME_PATH)
    )


# Pages.


def _render_sign_in_page(
    request: Request, next_path: str, *, name: str = "", error: ToolyardError | None = None, status: int = 200
) -> Response:
    issuer = get_service(request, Settings).oidc_issuer or ""
    with_password = _get_people_mode(request) is PeopleMode.PASSWORD
    return render_page(
        request,
        "people/sign_in.html",
        status=status,
        form_csrf=ensure_browser(request).csrf,
        next=next_path,
        name=name,
        error=error,
        provider="" if with_password else urlsplit(issuer).netloc,
        begin=f"/ui/sign-in/oidc?next={quote(next_path, safe='')}",
    )


async def _render_invite_page(request: Request, user: User, errors: dict[str, str] | None = None) -> Response:
    return render_page(
        request,
        "people/invite.html",
        status=422 if errors else 200,
        form_csrf=ensure_browser(request).csrf,
        name=user.name,
        is_reset=user.has_password,
        tokens=len(await get_service(request, SqlAccountStorage).list_tokens(user.id)),
        errors=errors or {},
        shortest=MIN_PASSWORD_CHARACTERS,
    )


def _render_invalid_invite(request: Request) -> Response:
    return render_error_page(
        request,
        404,
        "This link is invalid, already used, or expired.",
        "Ask an admin for a new one.",
        title="Invalid link",
    )


async def _render_account_page(
    request: Request, me: RequestUser, errors: dict[str, str] | None = None
) -> Response:
    browser = find_browser(request)
    return render_page(
        request,
        "people/account.html",
        status=422 if errors else 200,
        sessions=await _get_people(request).list_sessions(me.user) if me.signed_in else (),
        this_session=session_id_of(browser.text) if browser is not None else "",
        mode=_get_people_mode(request).value,
        errors=errors or {},
        shortest=MIN_PASSWORD_CHARACTERS,
    )


def _render_sign_in_failure(request: Request, error: ToolyardError) -> Response:
    status = 502 if isinstance(error, ProviderFailed) else 429 if isinstance(error, TooManySignIns) else 403
    page = render_error_page(request, status, error.cause, error.hint, title="Sign-in failed")
    if isinstance(error, TooManySignIns):
        page.headers["Retry-After"] = str(math.ceil(error.retry_after))
    return page


# Helpers.


async def _start_browser_session(request: Request, user: User, cookie: str) -> None:
    """Start a session with a new cookie, and end the previous one, which prevents session fixation."""
    previous = find_browser(request)
    if previous is not None:
        await _get_people(request).sign_out(previous.text)
    set_session_cookie(request, cookie)
    # A known device has its own counter of failed sign-ins, so that others cannot lock its owner out.
    set_device_cookie(request, user.id)
    _record_audit_entry(request, "sign_in", user, target=user.name)


async def _is_signed_in(request: Request) -> bool:
    browser = find_browser(request)
    return browser is not None and await _get_people(request).authenticate_cookie(browser.text) is not None


def _get_oidc(request: Request) -> OidcSignIn:
    if _get_people_mode(request) is not PeopleMode.OIDC:
        raise HTTPException(404)
    oidc = getattr(request.app.state, "oidc", None)
    if oidc is None:
        from toolyard.accounts.oidc.sign_in import (
            OidcSignIn,  # deferred: Authlib is slow to import, and only this mode needs it
        )

        oidc = request.app.state.oidc = OidcSignIn(
            get_service(request, Settings),
            get_service(request, SqlAccountStorage),
            get_service(request, OutboundHttp),
        )
    return oidc


def _record_audit_entry(
    request: Request,
    action: str,
    user: User | None,
    *,
    outcome: str = "ok",
    target: str = "",
    details: Mapping[str, object] | None = None,
) -> None:
    get_service(request, SqlAuditLog).record(
        AuditEntry(
            at=time.time(),
            action=action,
            actor=user.id if user is not None and outcome == "ok" else "",
            actor_name=user.name if user is not None and outcome == "ok" else "",
            target=target,
            outcome=outcome,
            address=_get_client_address(request),
            details=details or {},
        )
    )


def _format_error(error: ToolyardError) -> str:
    return " ".join(sentence(part) for part in (error.cause, error.hint) if part)


def _has_sign_in(request: Request) -> bool:
    return _get_people_mode(request) in (PeopleMode.PASSWORD, PeopleMode.OIDC)


def _get_people_mode(request: Request) -> PeopleMode:
    return get_service(request, Settings).people_mode


def _get_client_address(request: Request) -> str:
    return get_request_context(request.scope).address


def _get_user_agent(request: Request) -> str:
    return request.headers.get("user-agent", "")


def _get_people(request: Request) -> AccountService:
    return get_service(request, AccountService)
