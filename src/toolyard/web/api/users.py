"""``/users``, ``/me`` and ``/sessions``: user accounts, the current user, and their signed-in browsers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import Request, Response
from pydantic import ConfigDict, Field

from toolyard.accounts.browser_sessions import derive_session_id
from toolyard.registry.errors import NotFound
from toolyard.types.account import Role
from toolyard.types.version import __version__
from toolyard.web import service_dependencies as deps
from toolyard.web.access.cookies import find_browser
from toolyard.web.api import base as api
from toolyard.web.api.tokens import ScopeResponse, build_scope_model

__all__ = ["MeResponse", "router"]


router = api.ApiRoutes(tags=["people"])

RoleName = Literal["admin", "user"]
UserName = Annotated[str, Field(min_length=1, max_length=100, examples=["ada"])]


class CreateUserRequest(api.RequestModel, schema="UserGiven"):
    """A user to invite."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "ada", "role": "user"}]})

    name: UserName
    role: RoleName = "user"


class UpdateUserRequest(api.RequestModel, schema="UserChanges"):
    """Changes to a user; omitted fields stay unchanged."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"role": "admin"}]})

    name: UserName | None = None
    role: RoleName | None = None
    disabled: bool | None = None


class UserResponse(api.ApiModel, schema="UserShown"):
    """A user account."""

    id: str
    name: str
    role: RoleName
    disabled: bool
    has_password: bool
    created_at: datetime
    last_seen: datetime | None


class InviteResponse(api.ApiModel, schema="InviteShown"):
    """A link for a user to set their password."""

    url: str = Field(description="Invitation link. It works once; share it with the user only.")
    expires_at: datetime


class InvitedUserResponse(UserResponse, schema="UserInvited"):
    """A new user with their invitation."""

    invite: InviteResponse


class UserList(api.ItemList[UserResponse]):
    """All users, sorted by name."""


class MeResponse(api.ApiModel, schema="Me"):
    """The current user."""

    id: str
    name: str
    role: RoleName
    is_admin: bool = Field(description="Whether this request has admin rights, considering role and token.")
    people_mode: Literal["none", "proxy", "password", "oidc"]
    token: ScopeResponse | None = Field(description="Limits of the token; null without a token.")
    version: str = Field(description="Version of Toolyard.")


@router.get("/me", summary="Get the current user")
async def get_me(settings: deps.SettingsDep, request_user: api.UserWithRead) -> MeResponse:
    """Return the current user and the limits of their token."""
    user = request_user.user
    return MeResponse.of(
        user,
        is_admin=request_user.is_admin,
        people_mode=settings.people_mode,
        token=None if request_user.scope is None else build_scope_model(request_user.scope),
        version=__version__,
    )


@router.get("/users", summary="List users")
async def list_users(account_admin: deps.AccountAdminDep, request_user: deps.AdminUser) -> UserList:
    """Return all users, sorted by name."""
    return UserList(items=[UserResponse.of(each) for each in await account_admin.list_users()])


@router.post("/users", status_code=201, errors=[409, 413, 415], summary="Invite a user")
async def add_user(
    urls: deps.UrlsDep,
    account_admin: deps.AccountAdminDep,
    request_user: deps.AdminUser,
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
    return InvitedUserResponse.of(invitation.user, invite=invitation)


@router.get("/users/{id}", errors=[404], summary="Get a user")
async def get_user(
    account_admin: deps.AccountAdminDep, request_user: deps.AdminUser, id: api.PathId
) -> UserResponse:
    """Return a user account."""
    return UserResponse.of(await account_admin.find_user(id))


@router.post("/users/{id}/invite", errors=[404], summary="Create a new invitation link")
async def invite_user(
    urls: deps.UrlsDep,
    account_admin: deps.AccountAdminDep,
    request_user: deps.AdminUser,
    id: api.PathId,
    request: Request,
) -> InviteResponse:
    """Create a link for a user to set a new password. Earlier links become invalid."""
    return InviteResponse.of(await account_admin.invite_user(request_user, id, urls.base_url(request)))


@router.patch("/users/{id}", errors=[404, 409, 413, 415], summary="Change a user")
async def edit_user(
    account_admin: deps.AccountAdminDep,
    request_user: deps.AdminUser,
    id: api.PathId,
    given: UpdateUserRequest,
) -> UserResponse:
    """Rename a user, change their role, or disable them. Disabling signs the user out, also of servers, and
    invalidates their tokens."""
    role = None if given.role is None else Role(given.role)
    user = await account_admin.change_user(
        request_user, id, name=given.name, role=role, disabled=given.disabled
    )
    return UserResponse.of(user)


@router.delete("/users/{id}", status_code=204, errors=[404], summary="Delete a user")
async def delete_user(
    account_admin: deps.AccountAdminDep, request_user: deps.AdminUser, id: api.PathId
) -> None:
    """Delete a user with their sessions, tokens, instances and sign-ins."""
    await account_admin.delete_user(request_user, id)


# Sessions.


class SessionResponse(api.ApiModel, schema="SessionShown"):
    """A signed-in browser."""

    id: str
    browser: str = Field(description="Name such as `Firefox on Linux`; empty if unknown.")
    network: str = Field(description="Address block that it was last used from.")
    created_at: datetime
    last_seen: datetime | None
    expires_at: datetime
    current: bool = Field(description="Whether this request belongs to the session.")


class SessionList(api.ItemList[SessionResponse]):
    """Your signed-in browsers, most recently used first."""


@router.get("/sessions", summary="List your sessions")
async def list_sessions(
    people: deps.PeopleDep, request_user: deps.BrowserUser, request: Request
) -> SessionList:
    """Return your signed-in browsers. Empty in the modes `none` and `proxy`, which have no sessions."""
    if not request_user.signed_in:
        return SessionList(items=[])
    browser = find_browser(request)
    current = "" if browser is None else derive_session_id(browser.text)
    return SessionList(
        items=[
            SessionResponse.of(each, current=each.id == current)
            for each in await people.list_sessions(request_user.user)
        ]
    )


@router.delete("/sessions/{id}", status_code=204, errors=[404], summary="Sign out a browser")
async def end_session(
    audit: deps.AuditDep, people: deps.PeopleDep, request_user: deps.BrowserUser, id: api.PathId
) -> None:
    """Sign out one browser."""
    if not await people.end_session(request_user.user, id):
        raise NotFound("session not found", hint="it may have ended already")
    await audit.record_change(request_user, "sign_out", id)


@router.delete("/sessions", status_code=204, summary="Sign out everywhere")
async def end_sessions(audit: deps.AuditDep, people: deps.PeopleDep, request_user: deps.BrowserUser) -> None:
    """Sign out all browsers, including the current one. API tokens stay valid."""
    await people.sign_out_everywhere(request_user.user)
    await audit.record_change(request_user, "sign_out", "everywhere")
