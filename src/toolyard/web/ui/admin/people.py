"""``/ui/admin/people``: accounts and invite links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fastapi import Request, Response

from toolyard.accounts.errors import NotAllowed
from toolyard.config.settings.table import PeopleMode, Settings
from toolyard.types.account import RequestUser, Role, User
from toolyard.web import service_dependencies as deps
from toolyard.web.account_admin import AccountAdmin, Invitation
from toolyard.web.routes import Routes
from toolyard.web.ui.components.flash import redirect_with_message
from toolyard.web.ui.components.forms import (
    FORM_ERRORS,
    ConfirmPage,
    field_errors,
    read_submitted_form,
    render_confirm_page,
)
from toolyard.web.ui.components.paging import Pagination, paginate
from toolyard.web.ui.components.render import render_page

__all__ = ["router"]

router = Routes()

_FIELD_LABELS = {"name": "Name", "role": "Role"}
_PEOPLE_PATH = "/ui/admin/people"


@dataclass(frozen=True, slots=True)
class PeoplePage:
    """Content of the people page. ``invitation`` is set only right after it was created, and shown once."""

    users: Sequence[User]
    pages: Pagination
    query: str
    mode: str
    me: str
    name: str = ""
    role: str = "user"
    errors: Mapping[str, str] = field(default_factory=dict[str, str])
    invitation: Invitation | None = None

    labels = _FIELD_LABELS

    @property
    def invites(self) -> bool:
        """True if accounts and roles are managed here; in other modes this happens elsewhere."""
        return self.mode == "password"


@router.get(_PEOPLE_PATH)
async def list_people(
    request: Request,
    me: deps.AdminUser,
    settings: deps.SettingsDep,
    account_admin: deps.AccountAdminDep,
    q: str = "",
    page: str = "1",
) -> Response:
    """Show all accounts, sorted by name."""
    return await _render_people_page(request, settings, account_admin, me, query=q, page=page)


@router.post(_PEOPLE_PATH)
async def invite_person(
    request: Request,
    me: deps.AdminUser,
    urls: deps.UrlsDep,
    settings: deps.SettingsDep,
    account_admin: deps.AccountAdminDep,
) -> Response:
    """Create an account with an invite link, or a new link for an existing account.

    The link is shown only in this response, because only its hash is stored.
    """
    form = await read_submitted_form(request)
    if form.text("again"):
        again = await account_admin.invite_user(me, form.text("again"), urls.base_url(request))
        return await _render_people_page(request, settings, account_admin, me, invitation=again)
    name = form.text("name")
    role = Role.ADMIN if form.text("role") == "admin" else Role.USER
    try:
        invitation = await account_admin.add_user(me, name, role, urls.base_url(request))
    except FORM_ERRORS as error:
        errors = field_errors(error, _FIELD_LABELS)
        return await _render_people_page(
            request, settings, account_admin, me, status=422, name=name, role=role.value, errors=errors
        )
    return await _render_people_page(request, settings, account_admin, me, invitation=invitation)


@router.post(_PEOPLE_PATH + "/{user_id}/role")
async def change_role(
    request: Request, me: deps.AdminUser, user_id: str, account_admin: deps.AccountAdminDep
) -> Response:
    """Change the role of an account."""
    role = Role.ADMIN if (await read_submitted_form(request)).text("role") == "admin" else Role.USER
    return await _apply_user_change(
        request,
        account_admin,
        me,
        user_id,
        f"is now {'an admin' if role is Role.ADMIN else 'a user'}.",
        role=role,
    )


@router.post(_PEOPLE_PATH + "/{user_id}/disable")
async def disable_person(
    request: Request, me: deps.AdminUser, user_id: str, account_admin: deps.AccountAdminDep
) -> Response:
    """Disable an account and sign it out everywhere."""
    return await _apply_user_change(
        request, account_admin, me, user_id, "is disabled and signed out.", disabled=True
    )


@router.post(_PEOPLE_PATH + "/{user_id}/enable")
async def enable_person(
    request: Request, me: deps.AdminUser, user_id: str, account_admin: deps.AccountAdminDep
) -> Response:
    """Enable an account."""
    return await _apply_user_change(request, account_admin, me, user_id, "is enabled.", disabled=False)


@router.get(_PEOPLE_PATH + "/{user_id}/delete")
async def show_delete_confirmation(
    request: Request, me: deps.AdminUser, user_id: str, account_admin: deps.AccountAdminDep
) -> Response:
    """Show the confirmation page."""
    user = await account_admin.find_user(user_id)
    page = ConfirmPage(
        title=f"Delete the account of “{user.name}”?",
        text="This also deletes their instances, sign-ins and API tokens.",
        action=f"{_PEOPLE_PATH}/{user.id}/delete",
        back=_PEOPLE_PATH,
    )
    return render_confirm_page(request, page)


@router.post(_PEOPLE_PATH + "/{user_id}/delete")
async def delete_person(
    request: Request, me: deps.AdminUser, user_id: str, account_admin: deps.AccountAdminDep
) -> Response:
    """Delete an account with its instances, sign-ins and tokens."""
    try:
        user = await account_admin.delete_user(me, user_id)
    except NotAllowed as error:
        return redirect_with_message(_PEOPLE_PATH, error.cause, kind="bad", hint=error.hint)
    return redirect_with_message(_PEOPLE_PATH, f"“{user.name}” is deleted.")


async def _apply_user_change(
    request: Request,
    account_admin: AccountAdmin,
    me: RequestUser,
    user_id: str,
    message: str,
    *,
    role: Role | None = None,
    disabled: bool | None = None,
) -> Response:
    try:
        user = await account_admin.change_user(me, user_id, role=role, disabled=disabled)
    except NotAllowed as error:
        return redirect_with_message(_PEOPLE_PATH, error.cause, kind="bad", hint=error.hint)
    return redirect_with_message(_PEOPLE_PATH, f"“{user.name}” {message}")


async def _render_people_page(
    request: Request,
    settings: Settings,
    account_admin: AccountAdmin,
    me: RequestUser,
    *,
    query: str = "",
    page: str = "1",
    status: int = 200,
    name: str = "",
    role: str = "user",
    errors: Mapping[str, str] | None = None,
    invitation: Invitation | None = None,
) -> Response:
    words = query.casefold().split()
    users = [
        each
        for each in await account_admin.list_users()
        if all(word in each.name.casefold() for word in words)
    ]
    shown, pages = paginate(users, page, _PEOPLE_PATH, {"q": query})
    mode: PeopleMode = settings.people_mode
    made = PeoplePage(shown, pages, query, mode.value, me.user.id, name, role, errors or {}, invitation)
    return render_page(request, "people.html", status=status, page=made)
