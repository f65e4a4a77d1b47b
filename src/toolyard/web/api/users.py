"""``/users`` and ``/me``: user accounts and the current user."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from toolyard.types.account import Role, User
from toolyard.types.version import __version__
from toolyard.web.account_admin import Invitation
from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    AdminUser,
    ApiModel,
    PathId,
    RequestModel,
    UserWithRead,
    problem_responses,
    require_media_types,
    to_datetime,
    to_optional_datetime,
)
from toolyard.web.api.tokens import ScopeResponse, build_scope_model
from toolyard.web.routes import Routes
from toolyard.web.service_dependencies import AccountAdminDep, SettingsDep, UrlsDep

__all__ = ["router"]

router = Routes(tags=["people"], dependencies=[Depends(require_media_types(JSON_CONTENT_TYPE))])

RoleName = Literal["admin", "user"]
UserName = Annotated[str, Field(min_length=1, max_length=100, examples=["ada"])]


class CreateUserRequest(RequestModel, schema="UserGiven"):
    """A user to invite."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "ada", "role": "user"}]})

    name: UserName
    role: RoleName = "user"


class UpdateUserRequest(RequestModel, schema="UserChanges"):
    """Changes to a user; omitted fields stay unchanged."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"role": "admin"}]})

    name: UserName | None = None
    role: RoleName | None = None
    disabled: bool | None = None


class UserResponse(ApiModel, schema="UserShown"):
    """A user account."""

    id: str
    name: str
    role: RoleName
    disabled: bool
    has_password: bool
    created_at: datetime
    last_seen: datetime | None


class InviteResponse(ApiModel, schema="InviteShown"):
    """A link for a user to set their password."""

    url: str = Field(description="Invitation link. It works once; share it with the user only.")
    expires_at: datetime


class InvitedUserResponse(UserResponse, schema="UserInvited"):
    """A new user with their invitation."""

    invite: InviteResponse


class UserList(BaseModel):
    """All users, sorted by name."""

    items: list[UserResponse]


class MeResponse(ApiModel, schema="Me"):
    """The current user."""

    id: str
    name: str
    role: RoleName
    is_admin: bool = Field(description="Whether this request has admin rights, considering role and token.")
    people_mode: Literal["none", "proxy", "password", "oidc"]
    token: ScopeResponse | None = Field(description="Limits of the token; null without a token.")
    version: str = Field(description="Version of Toolyard.")


def _build_user_model(user: User) -> UserResponse:
    return UserResponse(
        id=user.id,
        name=user.name,
        role=user.role.value,
        disabled=user.disabled,
        has_password=user.has_password,
        created_at=to_datetime(user.created_at),
        last_seen=to_optional_datetime(user.last_seen),
    )


@router.get("/me", responses=problem_responses(), summary="Get the current user")
async def get_me(settings: SettingsDep, request_user: UserWithRead) -> MeResponse:
    """Return the current user and the limits of their token."""
    user = request_user.user
    return MeResponse(
        id=user.id,
        name=user.name,
        role=user.role.value,
        is_admin=request_user.is_admin,
        people_mode=settings.people_mode.value,
        token=None if request_user.scope is None else build_scope_model(request_user.scope),
        version=__version__,
    )


@router.get("/users", responses=problem_responses(), summary="List users")
async def list_users(account_admin: AccountAdminDep, request_user: AdminUser) -> UserList:
    """Return all users, sorted by name."""
    return UserList(items=[_build_user_model(each) for each in await account_admin.list_users()])


@router.post("/users", status_code=201, responses=problem_responses(409, 413, 415), summary="Invite a user")
async def add_user(
    urls: UrlsDep,
    account_admin: AccountAdminDep,
    request_user: AdminUser,
    given: CreateUserRequest,
    request: Request,
    response: Response,
) -> InvitedUserResponse:
    """Create an account and an invitation link to set its password. Only in mode `password`; in other modes
    accounts are created on first sign-in."""
    invitation = await account_admin.add_user(
        request_user, given.name, Role(given.role), urls.base_url(request)
    )
    response.headers["Location"] = f"/api/v1/users/{invitation.user.id}"
    return InvitedUserResponse(
        **_build_user_model(invitation.user).model_dump(), invite=_build_invite_model(invitation)
    )


@router.get("/users/{id}", responses=problem_responses(404), summary="Get a user")
async def get_user(account_admin: AccountAdminDep, request_user: AdminUser, id: PathId) -> UserResponse:
    """Return a user account."""
    return _build_user_model(await account_admin.find_user(id))


@router.post("/users/{id}/invite", responses=problem_responses(404), summary="Create a new invitation link")
async def invite_user(
    urls: UrlsDep, account_admin: AccountAdminDep, request_user: AdminUser, id: PathId, request: Request
) -> InviteResponse:
    """Create a link for a user to set a new password. Earlier links become invalid."""
    return _build_invite_model(await account_admin.invite_user(request_user, id, urls.base_url(request)))


@router.patch("/users/{id}", responses=problem_responses(404, 409, 413, 415), summary="Change a user")
async def edit_user(
    account_admin: AccountAdminDep, request_user: AdminUser, id: PathId, given: UpdateUserRequest
) -> UserResponse:
    """Rename a user, change their role, or disable them. Disabling signs the user out, also of servers, and
    invalidates their tokens."""
    role = None if given.role is None else Role(given.role)
    user = await account_admin.change_user(
        request_user, id, name=given.name, role=role, disabled=given.disabled
    )
    return _build_user_model(user)


@router.delete("/users/{id}", status_code=204, responses=problem_responses(404), summary="Delete a user")
async def delete_user(account_admin: AccountAdminDep, request_user: AdminUser, id: PathId) -> None:
    """Delete a user with their sessions, tokens, instances and sign-ins."""
    await account_admin.delete_user(request_user, id)


def _build_invite_model(invitation: Invitation) -> InviteResponse:
    return InviteResponse(url=invitation.url, expires_at=to_datetime(invitation.expires_at))
