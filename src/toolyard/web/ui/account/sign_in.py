"""Sign-in and sign-out, invite links, and the account page."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote, urlsplit

from fastapi import Depends, Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse

from toolyard.accounts import errors as account_errors
from toolyard.accounts.browser_sessions import derive_session_id
from toolyard.accounts.passwords import MIN_PASSWORD_CHARACTERS
from toolyard.config.settings.table import PeopleMode
from toolyard.errors import ToolyardError
from toolyard.net import OutboundHttp
from toolyard.types.account import RequestUser, User
from toolyard.types.audit import AuditEntry
from toolyard.web import service_dependencies as deps
from toolyard.web.access import cookies
from toolyard.web.access.authentication import check_csrf
from toolyard.web.access.request_context import REQUEST_CONTEXT_KEY
from toolyard.web.routes import Routes
from toolyard.web.service_lookup import get_service
from toolyard.web.ui.components import forms, responses

if TYPE_CHECKING:
    from toolyard.accounts.oidc.sign_in import OidcSignIn

__all__ = ["OIDC_CALLBACK_PATH", "router"]

router = Routes(include_in_schema=False)

OIDC_CALLBACK_PATH = "/ui/oidc/callback"
"""Redirect URI path that the operator registers at the identity provider."""

_HOME_PATH = "/ui/"
_STALE_FORM_ERROR = account_errors.NotAllowed(
    "this page is out of date: someone has signed in or out in this browser since it was opened",
    hint="sign in again; cookies must be enabled",
)
_FIELD_LABELS = {"password": "Password", "new_password": "New password", "old_password": "Old password"}


@dataclass(frozen=True, slots=True)
class _SignInPages:
    """The request of somebody who signs in or manages their account, and its responses."""

    request: Request
    people: deps.PeopleDep
    settings: deps.SettingsDep
    accounts: deps.AccountsDep
    audit_log: deps.AuditLogDep

    @property
    def has_sign_in(self) -> bool:
        """True if people sign in here, and not at a proxy."""
        return self.settings.people_mode in (PeopleMode.PASSWORD, PeopleMode.OIDC)

    @property
    def address(self) -> str:
        """Address of the client."""
        return self.request.scope[REQUEST_CONTEXT_KEY].address

    @property
    def user_agent(self) -> str:
        """Name of the browser."""
        return self.request.headers.get("user-agent", "")

    async def is_signed_in(self) -> bool:
        """Return True if this browser has a session."""
        browser = cookies.find_browser(self.request)
        return browser is not None and await self.people.authenticate_cookie(browser.text) is not None

    async def start_session(self, user: User, cookie: str) -> None:
        """Start a session with a new cookie, and end the previous one, which prevents session fixation."""
        previous = cookies.find_browser(self.request)
        if previous is not None:
            await self.people.sign_out(previous.text)
        cookies.set_session_cookie(self.request, cookie)
        # A known device has its own counter of failed sign-ins, so that others cannot lock its owner out.
        cookies.set_device_cookie(self.request, user.id)
        self.record("sign_in", user, target=user.name)

    def record(
        self,
        action: str,
        user: User | None,
        *,
        outcome: str = "ok",
        target: str = "",
        details: Mapping[str, object] | None = None,
    ) -> None:
        """Write an entry of the audit log."""
        actor = user if outcome == "ok" else None
        self.audit_log.record(
            AuditEntry(
                at=time.time(),
                action=action,
                actor="" if actor is None else actor.id,
                actor_name="" if actor is None else actor.name,
                target=target,
                outcome=outcome,
                address=self.address,
                details=details or {},
            )
        )

    def render_sign_in(
        self, next_path: str, *, name: str = "", error: ToolyardError | None = None, status: int = 200
    ) -> Response:
        """Render the form for name and password, or the link to the identity provider."""
        issuer = self.settings.oidc_issuer or ""
        with_password = self.settings.people_mode is PeopleMode.PASSWORD
        return responses.render_page(
            self.request,
            "people/sign_in.html",
            status=status,
            form_csrf=cookies.ensure_browser(self.request).csrf,
            next=next_path,
            name=name,
            error=error,
            provider="" if with_password else urlsplit(issuer).netloc,
            begin=f"/ui/sign-in/oidc?next={quote(next_path, safe='')}",
        )

    async def render_invite(
        self, user: User, errors: dict[str, str] | None = None, *, revoke_tokens: bool = True
    ) -> Response:
        """Render the form that sets a password with an invite link."""
        return responses.render_page(
            self.request,
            "people/invite.html",
            form_csrf=cookies.ensure_browser(self.request).csrf,
            name=user.name,
            is_reset=user.has_password,
            tokens=len(await self.accounts.list_tokens(user.id)),
            revoke_tokens=revoke_tokens,
            errors=errors,
            shortest=MIN_PASSWORD_CHARACTERS,
        )

    def render_invalid_invite(self) -> Response:
        """Render the error page about a link that cannot be used."""
        return responses.render_error_page(
            self.request,
            404,
            "This link is invalid, already used, or expired.",
            "Ask an admin for a new one.",
            title="Invalid link",
        )

    async def render_account(self, me: RequestUser, errors: dict[str, str] | None = None) -> Response:
        """Render the account page."""
        browser = cookies.find_browser(self.request)
        return responses.render_page(
            self.request,
            "people/account.html",
            sessions=await self.people.list_sessions(me.user) if me.signed_in else (),
            this_session=derive_session_id(browser.text) if browser is not None else "",
            mode=self.settings.people_mode.value,
            errors=errors,
            shortest=MIN_PASSWORD_CHARACTERS,
        )

    def render_failure(self, error: ToolyardError) -> Response:
        """Render the error page about a sign-in that failed."""
        statuses = {account_errors.ProviderFailed: 502, account_errors.TooManySignIns: 429}
        status = next((status for kind, status in statuses.items() if isinstance(error, kind)), 403)
        page = responses.render_error_page(
            self.request, status, error.cause, error.hint, title="Sign-in failed"
        )
        return _set_retry_after(page, error)


_SignInPagesDep = Annotated[_SignInPages, Depends()]


@router.get("/ui/sign-in")
async def show_sign_in(pages: _SignInPagesDep, next: str = "") -> Response:
    """Show the form for name and password, or the link to the identity provider."""
    to = forms.safe_redirect_path(next, _HOME_PATH)
    if not pages.has_sign_in or await pages.is_signed_in():
        return RedirectResponse(to, 303)
    return pages.render_sign_in(to)


@router.post("/ui/sign-in")
async def sign_in_with_password(request: Request, pages: _SignInPagesDep, form: forms.FormDep) -> Response:
    """Sign in with name and password."""
    people, name, to = pages.people, form.text("name"), form.next_path(_HOME_PATH)
    try:
        await check_csrf(request, cookies.find_browser(request))
    except account_errors.NotAllowed:
        # Another window signed in or out since, so the CSRF token of this form is out of date.
        return pages.render_sign_in(to, name=name, error=_STALE_FORM_ERROR, status=403)
    try:
        user, cookie = await people.sign_in(
            name,
            form.text("password"),
            pages.address,
            device=cookies.find_device(request),
            user_agent=pages.user_agent,
        )
    except account_errors.SignInRefused as error:
        # The audit log names the account, if there is one.
        known = await people.find_user(name)
        # Unknown names are not logged, because people sometimes type their password in the name field.
        pages.record("sign_in", known, outcome="refused", target=known.name if known else "")
        return pages.render_sign_in(to, name=name, error=error, status=401)
    except account_errors.TooManySignIns as error:
        return _set_retry_after(pages.render_sign_in(to, name=name, error=error, status=429), error)
    await pages.start_session(user, cookie)
    return responses.redirect_to(to)


@router.get("/ui/sign-in/oidc")
async def begin_oidc_sign_in(
    request: Request, pages: _SignInPagesDep, urls: deps.UrlsDep, next: str = ""
) -> Response:
    """Redirect to the identity provider.

    This is a GET, because the content security policy keeps forms from redirecting to another site. No CSRF
    protection is needed: a forged request could only sign in the person themselves.
    """
    oidc = _get_oidc(pages)
    redirect_uri = urls.base_url(request) + OIDC_CALLBACK_PATH
    try:
        url = await oidc.begin(
            forms.safe_redirect_path(next, _HOME_PATH),
            browser=cookies.ensure_browser(request).text,
            redirect_uri=redirect_uri,
            address=pages.address,
        )
    except (account_errors.ProviderFailed, account_errors.TooManySignIns) as error:
        return pages.render_failure(error)
    return RedirectResponse(url, 303)


@router.get(OIDC_CALLBACK_PATH)
async def finish_oidc_sign_in(request: Request, pages: _SignInPagesDep) -> Response:
    """Finish the sign-in after the identity provider redirected back."""
    oidc, browser = _get_oidc(pages), cookies.find_browser(request)
    pairs = request.query_params.multi_items()
    # RFC 6749, section 3.1: parameters must not be repeated. Repeated ones are ignored.
    times = Counter(name for name, _ in pairs)
    answer = {name: value for name, value in pairs if times[name] == 1}
    try:
        user, to = await oidc.finish(answer, browser=browser.text if browser else "")
    except account_errors.NeverBegun as error:
        # Anyone can request this address without a sign-in in progress: do not let them fill the audit log.
        return pages.render_failure(error)
    except ToolyardError as error:
        pages.record("sign_in", None, outcome="refused")
        return pages.render_failure(error)
    cookie = await pages.people.begin_session(user, pages.address, pages.user_agent)
    await pages.start_session(user, cookie)
    return RedirectResponse(forms.safe_redirect_path(to, _HOME_PATH), 303)


@router.post("/ui/sign-out")
async def sign_out(request: Request, pages: _SignInPagesDep) -> Response:
    """End the session of this browser."""
    browser = cookies.find_browser(request)
    await check_csrf(request, browser)
    people = pages.people
    if browser is not None and pages.has_sign_in:
        found = await people.authenticate_cookie(browser.text)
        await people.sign_out(browser.text)
        cookies.clear_session_cookie(request)
        if found is not None:
            pages.record("sign_out", found[1])
    return responses.redirect_to("/ui/sign-in", "You are signed out.")


@router.get("/ui/invite/{token}")
async def show_invite(pages: _SignInPagesDep, token: str) -> Response:
    """Show the form that sets a password with an invite link."""
    invited = await pages.people.find_invited_user(token)
    if invited is None:
        return pages.render_invalid_invite()
    return await pages.render_invite(invited)


@router.post("/ui/invite/{token}")
async def accept_invite(
    request: Request,
    pages: _SignInPagesDep,
    form: forms.FormDep,
    account_admin: deps.AccountAdminDep,
    token: str,
) -> Response:
    """Set the password, use up the link, and sign in its owner."""
    await check_csrf(request, cookies.find_browser(request))
    revoke_tokens = bool(form.text("revoke_tokens"))
    invited = await pages.people.find_invited_user(token)
    if invited is None:
        return pages.render_invalid_invite()
    # Compared before the link is used up.
    if form.text("password") != form.text("again"):
        errors = {"again": "The passwords don’t match."}
        return await pages.render_invite(invited, errors, revoke_tokens=revoke_tokens)
    try:
        user, cookie = await account_admin.accept_invite(
            invited,
            token,
            form.text("password"),
            address=pages.address,
            user_agent=pages.user_agent,
            revoke_tokens=revoke_tokens,
        )
    except account_errors.Invalid as error:
        errors = forms.field_errors(error, _FIELD_LABELS)
        return await pages.render_invite(invited, errors, revoke_tokens=revoke_tokens)
    except account_errors.SignInRefused:
        return pages.render_invalid_invite()
    made_by = user.notice.by if user.notice is not None else ""
    details = {"link_made_by": made_by, "tokens_revoked": revoke_tokens}
    pages.record("invite.accept", user, target=user.name, details=details)
    await pages.start_session(user, cookie)
    return responses.redirect_to(_HOME_PATH, "Your password is set and you are signed in.")


@router.get("/ui/account")
async def show_account(me: deps.BrowserUser, pages: _SignInPagesDep) -> Response:
    """Show the account page."""
    return await pages.render_account(me)


@router.post("/ui/account/password")
async def change_password(
    request: Request, me: deps.BrowserUser, form: forms.FormDep, pages: _SignInPagesDep
) -> Response:
    """Change the password and sign out all other browsers."""
    old, new = form.text("old_password"), form.text("new_password")
    if new != form.text("again"):
        return await pages.render_account(me, {"again": "The passwords don’t match."})
    try:
        cookie = await pages.people.change_password(
            me.user, old, new, me.address, user_agent=pages.user_agent
        )
    except account_errors.Invalid as error:
        return await pages.render_account(me, forms.field_errors(error, _FIELD_LABELS))
    except (account_errors.SignInRefused, account_errors.TooManySignIns) as error:
        return await pages.render_account(
            me, {"old_password": forms.format_sentence(error.cause, error.hint)}
        )
    cookies.set_session_cookie(request, cookie)
    pages.record("password.change", me.user, target=me.user.name)
    return responses.redirect_to(
        "/ui/account", "Your password was changed, and every other browser was signed out."
    )


@router.post("/ui/account/sign-out-everywhere")
async def sign_out_everywhere(request: Request, me: deps.BrowserUser, pages: _SignInPagesDep) -> Response:
    """End all sessions of the person, including this one."""
    await pages.people.sign_out_everywhere(me.user)
    cookies.clear_session_cookie(request)
    pages.record("sign_out", me.user, target="everywhere")
    return responses.redirect_to("/ui/sign-in", "You are signed out everywhere.")


@router.post("/ui/account/sessions/{session_id}/sign-out")
async def sign_out_session(me: deps.BrowserUser, pages: _SignInPagesDep, session_id: str) -> Response:
    """End one session of the person."""
    if not await pages.people.end_session(me.user, session_id):
        return responses.redirect_to("/ui/account", "This browser was already signed out.", kind="note")
    pages.record("sign_out", me.user, target=session_id)
    return responses.redirect_to("/ui/account", "The browser is signed out.")


@router.post("/ui/account/notice")
async def dismiss_notice(me: deps.BrowserUser, form: forms.FormDep, people: deps.PeopleDep) -> Response:
    """Dismiss the notice about a password reset link."""
    await people.dismiss_notice(me.user)
    return responses.redirect_to(form.next_path(_HOME_PATH))


def _set_retry_after(page: Response, error: ToolyardError) -> Response:
    if isinstance(error, account_errors.TooManySignIns):
        page.headers["Retry-After"] = str(math.ceil(error.retry_after))
    return page


def _get_oidc(pages: _SignInPages) -> OidcSignIn:
    if pages.settings.people_mode is not PeopleMode.OIDC:
        raise HTTPException(404)
    state = pages.request.app.state
    if getattr(state, "oidc", None) is None:
        # Deferred: Authlib is slow to import, and only this mode needs it.
        from toolyard.accounts.oidc.sign_in import OidcSignIn

        http = get_service(pages.request, OutboundHttp)
        state.oidc = OidcSignIn(pages.settings, pages.accounts, http)
    return state.oidc
