"""``/ui/admin/people``: who has an account here, and links for those who should."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from toolyard.accounts.errors import NotAllowed
from toolyard.config.settings.choices import PeopleMode
from toolyard.types.account import Role, User
from toolyard.web.access.dependencies import Visitor, admin
from toolyard.web.account_admin import (
    Invitation,
    add_user,
    change_user,
    delete_user,
    invite_user,
    list_users,
    user_of,
)
from toolyard.web.services import Site
from toolyard.web.ui.components.confirm import Confirm, confirm_page
from toolyard.web.ui.components.flash import go
from toolyard.web.ui.components.forms import FORM_ERRORS, field_errors, posted
from toolyard.web.ui.components.paging import Pages, page_of
from toolyard.web.ui.components.render import render

__all__ = ["router"]

router = APIRouter()

Me = Annotated[Visitor, Depends(admin)]

_LABELS = {"name": "Name", "role": "Role"}
_HOME = "/ui/admin/people"


@dataclass(frozen=True, slots=True)
class PeoplePage:
    """The accounts. ``invitation`` is shown this once."""

    users: Sequence[User]
    pages: Pages
    query: str
    mode: str
    me: str
    name: str = ""
    role: str = "user"
    errors: Mapping[str, str] = field(default_factory=dict[str, str])
    invitation: Invitation | None = None

    labels = _LABELS

    @property
    def invites(self) -> bool:
        """Whether people are invited, and given roles, here."""
        return self.mode == "password"


@router.get(_HOME)
async def list_people(request: Request, me: Me, q: str = "", page: str = "1") -> Response:
    """Everybody, by name."""
    return await _people(request, me, q=q, page=page)


@router.post(_HOME)
async def invite(request: Request, me: Me) -> Response:
    """An account for somebody new, or a new link for somebody who lost theirs, or their password. The link is
    in the answer, and nowhere else."""
    site: Site = request.app.state.site
    form = await posted(request)
    if form.text("again"):
        again = await invite_user(site, me, form.text("again"), site.base_url(request))
        return await _people(request, me, invitation=again)
    name = form.text("name")
    role = Role.ADMIN if form.text("role") == "admin" else Role.USER
    try:
        invitation = await add_user(site, me, name, role, site.base_url(request))
    except FORM_ERRORS as error:
        errors = field_errors(error, _LABELS)
        return await _people(request, me, status=422, name=name, role=role.value, errors=errors)
    return await _people(request, me, invitation=invitation)


@router.post(_HOME + "/{user_id}/role")
async def give_role(request: Request, me: Me, user_id: str) -> Response:
    """Make somebody an admin, or a user again."""
    role = Role.ADMIN if (await posted(request)).text("role") == "admin" else Role.USER
    return await _change(
        request, me, user_id, f"is {'an admin' if role is Role.ADMIN else 'a user'} now.", role=role
    )


@router.post(_HOME + "/{user_id}/disable")
async def disable(request: Request, me: Me, user_id: str) -> Response:
    """Sign them out, and let them in no more."""
    return await _change(request, me, user_id, "is disabled and signed out.", disabled=True)


@router.post(_HOME + "/{user_id}/enable")
async def enable(request: Request, me: Me, user_id: str) -> Response:
    """Let them in again."""
    return await _change(request, me, user_id, "is enabled.", disabled=False)


@router.get(_HOME + "/{user_id}/delete")
async def ask_to_delete(request: Request, me: Me, user_id: str) -> Response:
    """Ask again."""
    user = await user_of(request.app.state.site, user_id)
    page = Confirm(
        title=f"Delete the account of “{user.name}”?",
        text="Their instances, sign-ins and API tokens go with it.",
        action=f"{_HOME}/{user.id}/delete",
        back=_HOME,
    )
    return confirm_page(request, page)


@router.post(_HOME + "/{user_id}/delete")
async def delete(request: Request, me: Me, user_id: str) -> Response:
    """Delete the account, with all that is theirs."""
    try:
        user = await delete_user(request.app.state.site, me, user_id)
    except NotAllowed as error:
        return go(_HOME, error.cause, kind="bad", hint=error.hint)
    return go(_HOME, f"“{user.name}” is deleted.")


async def _change(
    request: Request,
    me: Visitor,
    user_id: str,
    said: str,
    *,
    role: Role | None = None,
    disabled: bool | None = None,
) -> Response:
    try:
        user = await change_user(request.app.state.site, me, user_id, role=role, disabled=disabled)
    except NotAllowed as error:
        return go(_HOME, error.cause, kind="bad", hint=error.hint)
    return go(_HOME, f"“{user.name}” {said}")


async def _people(
    request: Request,
    me: Visitor,
    *,
    q: str = "",
    page: str = "1",
    status: int = 200,
    name: str = "",
    role: str = "user",
    errors: Mapping[str, str] | None = None,
    invitation: Invitation | None = None,
) -> Response:
    site: Site = request.app.state.site
    words = q.casefold().split()
    users = [each for each in await list_users(site) if all(word in each.name.casefold() for word in words)]
    shown, pages = page_of(users, page, _HOME, {"q": q})
    mode: PeopleMode = site.settings.people_mode
    made = PeoplePage(shown, pages, q, mode.value, me.user.id, name, role, errors or {}, invitation)
    return render(request, "people.html", status=status, page=made)
