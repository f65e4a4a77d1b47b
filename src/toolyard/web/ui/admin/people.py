"""``/ui/admin/people``: accounts and invite links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request, Response

from toolyard.accounts.errors import NotAllowed
from toolyard.config.settings.table import PeopleMode
from toolyard.types.account import Role
from toolyard.web import service_dependencies as deps
from toolyard.web.account_admin import Invitation
from toolyard.web.routes import Routes
from toolyard.web.ui.components import forms, responses
from toolyard.web.ui.components.lists import paginate

__all__ = ["router"]

router = Routes()

_FIELD_LABELS = {"name": "Name", "role": "Role"}
_PEOPLE_PATH = "/ui/admin/people"


@dataclass(frozen=True, slots=True)
class _PeoplePage:
    """The accounts, and the page that lists them."""

    request: Request
    me: deps.AdminUser
    settings: deps.SettingsDep
    account_admin: deps.AccountAdminDep

    async def render(
        self,
        query: str = "",
        page: str = "1",
        *,
        invitation: Invitation | None = None,
        name: str = "",
        role: Role = Role.USER,
        errors: Mapping[str, str] | None = None,
    ) -> Response:
        """Render the page. ``invitation`` is shown once, right after it was created; ``name``, ``role`` and
        ``errors`` are those of the form."""
        users = await self.account_admin.list_users()
        shown, pages = paginate(users, lambda user: user.name, _PEOPLE_PATH, query, page)
        return responses.render_page(
            self.request,
            "people.html",
            users=shown,
            pages=pages,
            query=query,
            mode=self.settings.people_mode.value,
            # In other modes, accounts and roles are managed elsewhere.
            invites=self.settings.people_mode is PeopleMode.PASSWORD,
            me=self.me.user.id,
            name=name,
            role=role.value,
            errors=errors,
            labels=_FIELD_LABELS,
            invitation=invitation,
        )

    async def change(
        self, user_id: str, message: str, *, role: Role | None = None, disabled: bool | None = None
    ) -> Response:
        """Change an account, and redirect to the list."""
        try:
            user = await self.account_admin.change_user(self.me, user_id, role=role, disabled=disabled)
        except NotAllowed as error:
            return responses.redirect_to(_PEOPLE_PATH, error.cause, kind="bad", hint=error.hint)
        return responses.redirect_to(_PEOPLE_PATH, f"“{user.name}” {message}")


_PeopleDep = Annotated[_PeoplePage, Depends()]


@router.get(_PEOPLE_PATH)
async def list_people(people: _PeopleDep, q: str = "", page: str = "1") -> Response:
    """Show all accounts, sorted by name."""
    return await people.render(q, page)


@router.post(_PEOPLE_PATH)
async def invite_person(people: _PeopleDep, form: forms.FormDep, urls: deps.UrlsDep) -> Response:
    """Create an account with an invite link, or a new link for an existing account.

    The link is shown only in this response, because only its hash is stored.
    """
    admin, me = people.account_admin, people.me
    base_url = urls.base_url(people.request)
    if form.text("again"):
        return await people.render(invitation=await admin.invite_user(me, form.text("again"), base_url))
    name, role = form.text("name"), _read_role(form)
    try:
        invitation = await admin.add_user(me, name, role, base_url)
    except forms.FORM_ERRORS as error:
        return await people.render(name=name, role=role, errors=forms.field_errors(error, _FIELD_LABELS))
    return await people.render(invitation=invitation)


@router.post(_PEOPLE_PATH + "/{user_id}/role")
async def change_role(people: _PeopleDep, user_id: str, form: forms.FormDep) -> Response:
    """Change the role of an account."""
    role = _read_role(form)
    return await people.change(
        user_id, f"is now {'an admin' if role is Role.ADMIN else 'a user'}.", role=role
    )


@router.post(_PEOPLE_PATH + "/{user_id}/disable")
async def disable_person(people: _PeopleDep, user_id: str) -> Response:
    """Disable an account and sign it out everywhere."""
    return await people.change(user_id, "is disabled and signed out.", disabled=True)


@router.post(_PEOPLE_PATH + "/{user_id}/enable")
async def enable_person(people: _PeopleDep, user_id: str) -> Response:
    """Enable an account."""
    return await people.change(user_id, "is enabled.", disabled=False)


@router.get(_PEOPLE_PATH + "/{user_id}/delete")
async def show_delete_confirmation(
    request: Request, me: deps.AdminUser, user_id: str, account_admin: deps.AccountAdminDep
) -> Response:
    """Show the confirmation page."""
    user = await account_admin.find_user(user_id)
    return responses.render_confirmation(
        request,
        title=f"Delete the account of “{user.name}”?",
        text="This also deletes their instances, sign-ins and API tokens.",
        action=f"{_PEOPLE_PATH}/{user.id}/delete",
        back=_PEOPLE_PATH,
    )


@router.post(_PEOPLE_PATH + "/{user_id}/delete")
async def delete_person(me: deps.AdminUser, user_id: str, account_admin: deps.AccountAdminDep) -> Response:
    """Delete an account with its instances, sign-ins and tokens."""
    try:
        user = await account_admin.delete_user(me, user_id)
    except NotAllowed as error:
        return responses.redirect_to(_PEOPLE_PATH, error.cause, kind="bad", hint=error.hint)
    return responses.redirect_to(_PEOPLE_PATH, f"“{user.name}” was deleted.")


def _read_role(form: forms.SubmittedForm) -> Role:
    return Role.ADMIN if form.text("role") == "admin" else Role.USER
