"""Signing in and out, links for those who were invited, and one's own account."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote, urlsplit

from fastapi import APIRouter, Depends
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from toolyard.accounts.browser_sessions import session_id as session_id_of
from toolyard.accounts.errors import (
    Invalid,
    NeverBegun,
    NotAllowed,
    ProviderFailed,
    SignInRefused,
    TooManySignIns,
)
from toolyard.accounts.passwords import SHORTEST
from toolyard.config.settings.choices import PeopleMode
from toolyard.errors import ToolyardError
from toolyard.types.account import User
from toolyard.types.audit import AuditEntry
from toolyard.web.access.cookies import (
    drop_cookie,
    give_cookie,
    give_device_cookie,
    known_browser,
    known_device,
    some_browser,
)
from toolyard.web.access.dependencies import Visitor, check_form, person
from toolyard.web.access.request_context import passage_of
from toolyard.web.account_admin import accept_invite as accept
from toolyard.web.ui.components.error_pages import failure_page
from toolyard.web.ui.components.flash import go
from toolyard.web.ui.components.forms import field_errors, posted
from toolyard.web.ui.components.render import render
from toolyard.web.ui.components.safe_redirect import inner_path

if TYPE_CHECKING:
    from toolyard.accounts.oidc.sign_in import Oidc
    from toolyard.web.services import Site

__all__ = ["OIDC_CALLBACK", "router"]

router = APIRouter(include_in_schema=False)

OIDC_CALLBACK = "/ui/oidc/callback"
"""What the operator registers at the identity provider."""

_HOME = "/ui/"
_OLD_FORM = NotAllowed(
    "this page is from before: somebody signed in or out in this browser since",
    hint="sign in again; cookies must be allowed",
)
_LABELS = {"password": "Password", "new_password": "New password", "old_password": "Old password"}

Me = Annotated[Visitor, Depends(person)]


@router.get("/ui/sign-in")
async def show_sign_in(request: Request, next: str = "") -> Response:
    """The form for name and password, or the way to the identity provider."""
    to = inner_path(next, _HOME)
    if not _signs_in(request) or await _is_signed_in(request):
        return RedirectResponse(to, 303)
    return _sign_in_page(request, to)


@router.post("/ui/sign-in")
async def sign_in(request: Request) -> Response:
    """Name and password."""
    form, site = await posted(request), _site(request)
    name, to = form.text("name"), inner_path(form.text("next"), _HOME)
    try:
        await check_form(request, known_browser(request))
    except NotAllowed:
        # Somebody signed in or out in another window; the proof in this form is of before.
        return _sign_in_page(request, to, name=name, error=_OLD_FORM, status=403)
    try:
        user, cookie = await site.people.sign_in(
            name,
            form.text("password"),
            _address(request),
            device=known_device(request),
            user_agent=_user_agent(request),
        )
    except SignInRefused as error:
        known = await site.people.find(name)
        # Of names that nobody has nothing is written down: people type passwords there.
        _note(request, "sign_in", known, outcome="refused", target=known.name if known else "")
        return _sign_in_page(request, to, name=name, error=error, status=401)
    except TooManySignIns as error:
        page = _sign_in_page(request, to, name=name, error=error, status=429)
        page.headers["Retry-After"] = str(math.ceil(error.retry_after))
        return page
    await _enter(request, user, cookie)
    return go(to)


@router.get("/ui/sign-in/oidc")
async def begin_at_provider(request: Request, next: str = "") -> Response:
    """Off to the identity provider.

    By a link, not by a form: a form could not lead elsewhere. Whoever makes somebody follow it signs them in
    as themselves at most.
    """
    oidc, site = _oidc(request), _site(request)
    redirect_uri = site.base_url(request) + OIDC_CALLBACK
    try:
        url = await oidc.begin(
            inner_path(next, _HOME),
            browser=some_browser(request).text,
            redirect_uri=redirect_uri,
            address=_address(request),
        )
    except (ProviderFailed, TooManySignIns) as error:
        return _failed(request, error)
    return RedirectResponse(url, 303)


@router.get(OIDC_CALLBACK)
async def return_from_provider(request: Request) -> Response:
    """Back from the identity provider."""
    oidc, browser = _oidc(request), known_browser(request)
    said = request.query_params.multi_items()
    # RFC 6749, 3.1: no parameter comes twice. One that does is not there.
    times = Counter(name for name, _ in said)
    answer = {name: value for name, value in said if times[name] == 1}
    try:
        user, to = await oidc.finish(answer, browser=browser.text if browser else "")
    except NeverBegun as error:
        # Anybody can write such an address, as often as they like; the audit log is not for that.
        return _failed(request, error)
    except ToolyardError as error:
        _note(request, "sign_in", None, outcome="refused")
        return _failed(request, error)
    people = _site(request).people
    await _enter(request, user, await people.begin_session(user, _address(request), _user_agent(request)))
    return RedirectResponse(inner_path(to, _HOME), 303)


@router.post("/ui/sign-out")
async def sign_out(request: Request) -> Response:
    """End this browser's session."""
    browser = known_browser(request)
    await check_form(request, browser)
    people = _site(request).people
    if browser is not None and _signs_in(request):
        found = await people.from_cookie(browser.text)
        await people.sign_out(browser.text)
        drop_cookie(request)
        if found is not None:
            _note(request, "sign_out", found[1])
    return go("/ui/sign-in", "You are signed out.")


@router.get("/ui/invite/{token}")
async def show_invite(request: Request, token: str) -> Response:
    """The form to set a password with a link."""
    invited = await _site(request).people.invited(token)
    if invited is None:
        return _no_invite(request)
    return await _invite_page(request, invited)


@router.post("/ui/invite/{token}")
async def accept_invite(request: Request, token: str) -> Response:
    """Set the password; the link is used up, and its owner signed in."""
    await check_form(request, known_browser(request))
    form, site = await posted(request), _site(request)
    revoke_tokens = bool(form.text("revoke_tokens"))
    invited = await site.people.invited(token)
    if invited is None:
        return _no_invite(request)
    if form.text("password") != form.text("again"):
        return await _invite_page(request, invited, {"again": "This is not the same as above."})
    try:
        user, cookie = await accept(
            site,
            invited,
            token,
            form.text("password"),
            address=_address(request),
            user_agent=_user_agent(request),
            revoke_tokens=revoke_tokens,
        )
    except Invalid as error:
        return await _invite_page(request, invited, field_errors(error, _LABELS))
    except SignInRefused:
        return _no_invite(request)
    made_by = user.notice.by if user.notice is not None else ""
    details = {"link_made_by": made_by, "tokens_revoked": revoke_tokens}
    _note(request, "invite.accept", user, target=user.name, details=details)
    await _enter(request, user, cookie)
    return go(_HOME, "Your password is set, and you are signed in.")


@router.get("/ui/account")
async def show_account(request: Request, me: Me) -> Response:
    """Who one is here, and how one proves it."""
    return await _account_page(request, me)


@router.post("/ui/account/password")
async def change_password(request: Request, me: Me) -> Response:
    """Another password; other browsers are signed out."""
    form, people = await posted(request), _site(request).people
    old, new = form.text("old_password"), form.text("new_password")
    if new != form.text("again"):
        return await _account_page(request, me, {"again": "This is not the same as above."})
    try:
        cookie = await people.change_password(me.user, old, new, me.address, user_agent=_user_agent(request))
    except Invalid as error:
        return await _account_page(request, me, field_errors(error, _LABELS))
    except (SignInRefused, TooManySignIns) as error:
        return await _account_page(request, me, {"old_password": _sentence(error)})
    give_cookie(request, cookie)
    _note(request, "password.change", me.user, target=me.user.name)
    return go("/ui/account", "Your password is changed. Every other browser is signed out.")


@router.post("/ui/account/sign-out-everywhere")
async def sign_out_everywhere(request: Request, me: Me) -> Response:
    """End every session of one's own, also this one."""
    await _site(request).people.sign_out_everywhere(me.user)
    drop_cookie(request)
    _note(request, "sign_out", me.user, target="everywhere")
    return go("/ui/sign-in", "You are signed out everywhere.")


@router.post("/ui/account/sessions/{session_id}/sign-out")
async def sign_out_session(request: Request, me: Me, session_id: str) -> Response:
    """Sign out one of one's own browsers."""
    if not await _site(request).people.end_session(me.user, session_id):
        return go("/ui/account", "This browser was signed out already.", kind="note")
    _note(request, "sign_out", me.user, target=session_id)
    return go("/ui/account", "The browser is signed out.")


@router.post("/ui/account/notice")
async def dismiss_notice(request: Request, me: Me) -> Response:
    """Stop showing the notice."""
    await _site(request).people.dismiss_notice(me.user)
    return go(inner_path((await posted(request)).text("next"), _HOME))


# Pages.


def _sign_in_page(
    request: Request, to: str, *, name: str = "", error: ToolyardError | None = None, status: int = 200
) -> Response:
    issuer = _site(request).settings.oidc_issuer or ""
    with_password = _mode(request) is PeopleMode.PASSWORD
    return render(
        request,
        "people/sign_in.html",
        status=status,
        form_csrf=some_browser(request).csrf,
        next=to,
        name=name,
        error=error,
        provider="" if with_password else urlsplit(issuer).netloc,
        begin=f"/ui/sign-in/oidc?next={quote(to, safe='')}",
    )


async def _invite_page(request: Request, user: User, errors: dict[str, str] | None = None) -> Response:
    return render(
        request,
        "people/invite.html",
        status=422 if errors else 200,
        form_csrf=some_browser(request).csrf,
        name=user.name,
        is_reset=user.has_password,
        tokens=len(await _site(request).database.people.tokens(user.id)),
        errors=errors or {},
        shortest=SHORTEST,
    )


def _no_invite(request: Request) -> Response:
    return failure_page(
        request,
        404,
        "This link is unknown, was used before, or is older than a day.",
        "Ask an admin for a new one.",
        title="This link does not work",
    )


async def _account_page(request: Request, me: Visitor, errors: dict[str, str] | None = None) -> Response:
    browser = known_browser(request)
    return render(
        request,
        "people/account.html",
        status=422 if errors else 200,
        sessions=await _site(request).people.sessions(me.user) if me.signed_in else (),
        this_session=session_id_of(browser.text) if browser is not None else "",
        mode=_mode(request).value,
        errors=errors or {},
        shortest=SHORTEST,
    )


def _failed(request: Request, error: ToolyardError) -> Response:
    status = 502 if isinstance(error, ProviderFailed) else 429 if isinstance(error, TooManySignIns) else 403
    page = failure_page(request, status, error.cause, error.hint, title="The sign-in did not work")
    if isinstance(error, TooManySignIns):
        page.headers["Retry-After"] = str(math.ceil(error.retry_after))
    return page


# What the routes share.


async def _enter(request: Request, user: User, cookie: str) -> None:
    """This browser is somebody's from now on, under a cookie that it had never before."""
    before = known_browser(request)
    if before is not None:
        await _site(request).people.sign_out(before.text)
    give_cookie(request, cookie)
    give_device_cookie(request, user.id)
    _note(request, "sign_in", user, target=user.name)


async def _is_signed_in(request: Request) -> bool:
    browser = known_browser(request)
    return browser is not None and await _site(request).people.from_cookie(browser.text) is not None


def _oidc(request: Request) -> Oidc:
    if _mode(request) is not PeopleMode.OIDC:
        raise HTTPException(404)
    known = getattr(request.app.state, "oidc", None)
    if known is None:
        from toolyard.accounts.oidc.sign_in import (
            Oidc,  # Authlib is slow to load, and only this mode needs it
        )

        site = _site(request)
        known = request.app.state.oidc = Oidc(site.settings, site.database.people, site.net)
    return known


def _note(
    request: Request,
    action: str,
    user: User | None,
    *,
    outcome: str = "ok",
    target: str = "",
    details: Mapping[str, object] | None = None,
) -> None:
    _site(request).audit.note(
        AuditEntry(
            at=time.time(),
            action=action,
            actor=user.id if user is not None and outcome == "ok" else "",
            actor_name=user.name if user is not None and outcome == "ok" else "",
            target=target,
            outcome=outcome,
            address=_address(request),
            details=details or {},
        )
    )


def _sentence(error: ToolyardError) -> str:
    return " ".join(f"{part[:1].upper()}{part[1:]}." for part in (error.cause, error.hint) if part)


def _signs_in(request: Request) -> bool:
    return _mode(request) in (PeopleMode.PASSWORD, PeopleMode.OIDC)


def _mode(request: Request) -> PeopleMode:
    return _site(request).settings.people_mode


def _address(request: Request) -> str:
    return passage_of(request.scope).address


def _user_agent(request: Request) -> str:
    return request.headers.get("user-agent", "")


def _site(request: Request) -> Site:
    return request.app.state.site
