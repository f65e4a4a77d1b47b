"""``/users`` and ``/me``: people, and who is asking."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from toolyard import __version__
from toolyard.types.account import Role, User
from toolyard.web import account_admin
from toolyard.web.account_admin import Invitation
from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    AdminUser,
    AppServices,
    Given,
    PathId,
    UserWithRead,
    problem_responses,
    require_media_types,
    to_datetime,
    to_optional_datetime,
)
from toolyard.web.api.tokens import ScopeShown, build_scope_model

__all__ = ["router"]

router = APIRouter(tags=["people"], dependencies=[Depends(require_media_types(JSON_CONTENT_TYPE))])

RoleName = Literal["admin", "user"]
UserName = Annotated[str, Field(min_length=1, max_length=100, examples=["ada"])]


class UserGiven(Given):
    """Somebody to invite."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "ada", "role": "user"}]})

    name: UserName
    role: RoleName = "user"


class UserChanges(Given):
    """What to change about somebody; what is left out stays."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"role": "admin"}]})

    name: UserName | None = None
    role: RoleName | None = None
    disabled: bool | None = None


class UserShown(BaseModel):
    """A person with an account."""

    id: str
    name: str
    role: RoleName
    disabled: bool
    has_password: bool
    created_at: datetime
    last_seen: datetime | None


class InviteShown(BaseModel):
    """A link with which somebody sets their password."""

    url: str = Field(description="It works once. Give it to nobody else.")
    expires_at: datetime


class UserInvited(UserShown):
    """Somebody who was just invited."""

    invite: InviteShown


class UserList(BaseModel):
    """All people with an account, by name."""

    items: list[UserShown]


class Me(BaseModel):
    """Who is asking."""

    id: str
    name: str
    role: RoleName
    is_admin: bool = Field(description="Whether you may do what only admins may, with what you came with.")
    people_mode: Literal["none", "proxy", "password", "oidc"]
    token: ScopeShown | None = Field(description="What the token is limited to; null: you came without one.")
    version: str = Field(description="Toolyard's.")


def _build_user_model(user: User) -> UserShown:
    return UserShown(
        id=user.id,
        name=user.name,
        role=user.role.value,
        disabled=user.disabled,
        has_password=user.has_password,
        created_at=to_datetime(user.created_at),
        last_seen=to_optional_datetime(user.last_seen),
    )


@router.get("/me", responses=problem_responses(), summary="Who you are")
async def get_me(site: AppServices, visitor: UserWithRead) -> Me:
    """Who is asking, and what with."""
    user = visitor.user
    return Me(
        id=user.id,
        name=user.name,
        role=user.role.value,
        is_admin=visitor.is_admin,
        people_mode=site.settings.people_mode.value,
        token=None if visitor.scope is None else build_scope_model(visitor.scope),
        version=__version__,
    )


@router.get("/users", responses=problem_responses(), summary="All people")
async def list_users(site: AppServices, visitor: AdminUser) -> UserList:
    """Everybody with an account, by name."""
    return UserList(items=[_build_user_model(each) for each in await account_admin.list_users(site)])


@router.post("/users", status_code=201, responses=problem_responses(409, 413, 415), summary="Invite somebody")
async def add_user(
    site: AppServices, visitor: AdminUser, given: UserGiven, request: Request, response: Response
) -> UserInvited:
    """Make an account, and a link with which its owner sets a password. In other modes than `password`
    accounts are made when people first come."""
    made = await account_admin.add_user(site, visitor, given.name, Role(given.role), site.base_url(request))
    response.headers["Location"] = f"/api/v1/users/{made.user.id}"
    return UserInvited(**_build_user_model(made.user).model_dump(), invite=_build_invite_model(made))


@router.get("/users/{id}", responses=problem_responses(404), summary="One person")
async def get_user(site: AppServices, visitor: AdminUser, id: PathId) -> UserShown:
    """One account."""
    return _build_user_model(await account_admin.find_user(site, id))


@router.post("/users/{id}/invite", responses=problem_responses(404), summary="A new link for somebody")
async def invite_user(site: AppServices, visitor: AdminUser, id: PathId, request: Request) -> InviteShown:
    """A link with which somebody sets a new password. Earlier ones are void."""
    return _build_invite_model(await account_admin.invite_user(site, visitor, id, site.base_url(request)))


@router.patch(
    "/users/{id}", responses=problem_responses(404, 409, 413, 415), summary="Change somebody's account"
)
async def edit_user(site: AppServices, visitor: AdminUser, id: PathId, given: UserChanges) -> UserShown:
    """Rename, change the role, disable. Whoever is disabled is signed out, of servers too, and their tokens
    open nothing."""
    role = None if given.role is None else Role(given.role)
    user = await account_admin.change_user(
        site, visitor, id, name=given.name, role=role, disabled=given.disabled
    )
    return _build_user_model(user)


@router.delete(
    "/users/{id}", status_code=204, responses=problem_responses(404), summary="Delete somebody's account"
)
async def delete_user(site: AppServices, visitor: AdminUser, id: PathId) -> None:
    """With sessions, tokens, instances and their sign-ins."""
    await account_admin.delete_user(site, visitor, id)


def _build_invite_model(made: Invitation) -> InviteShown:
    return InviteShown(url=made.url, expires_at=to_datetime(made.expires_at))
