"""``/sessions``: the user's signed-in browsers."""

from __future__ import annotations

from datetime import datetime

from fastapi import Depends, Request
from pydantic import BaseModel, Field

from toolyard.accounts.browser_sessions import derive_session_id
from toolyard.registry.errors import NotFound
from toolyard.types.account import BrowserSession
from toolyard.web.access.cookies import find_browser
from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    ApiModel,
    BrowserUser,
    PathId,
    problem_responses,
    require_media_types,
    to_datetime,
    to_optional_datetime,
)
from toolyard.web.routes import Routes
from toolyard.web.service_dependencies import AuditDep, PeopleDep

__all__ = ["router"]

router = Routes(
    prefix="/sessions", tags=["people"], dependencies=[Depends(require_media_types(JSON_CONTENT_TYPE))]
)


class SessionResponse(ApiModel, schema="SessionShown"):
    """A signed-in browser."""

    id: str
    browser: str = Field(description="Name such as `Firefox on Linux`; empty if unknown.")
    network: str = Field(description="Address block that it was last used from.")
    created_at: datetime
    last_seen: datetime | None
    expires_at: datetime
    current: bool = Field(description="Whether this request belongs to the session.")


class SessionList(BaseModel):
    """Your signed-in browsers, most recently used first."""

    items: list[SessionResponse]


def _build_session_model(session: BrowserSession, current: str) -> SessionResponse:
    return SessionResponse(
        id=session.id,
        browser=session.browser,
        network=session.network,
        created_at=to_datetime(session.created_at),
        last_seen=to_optional_datetime(session.last_seen),
        expires_at=to_datetime(session.expires_at),
        current=session.id == current,
    )


@router.get("", responses=problem_responses(), summary="List your sessions")
async def list_sessions(people: PeopleDep, request_user: BrowserUser, request: Request) -> SessionList:
    """Return your signed-in browsers. Empty in the modes `none` and `proxy`, which have no sessions."""
    if not request_user.signed_in:
        return SessionList(items=[])
    browser = find_browser(request)
    current = "" if browser is None else derive_session_id(browser.text)
    return SessionList(
        items=[_build_session_model(each, current) for each in await people.list_sessions(request_user.user)]
    )


@router.delete("/{id}", status_code=204, responses=problem_responses(404), summary="Sign out a browser")
async def end_session(audit: AuditDep, people: PeopleDep, request_user: BrowserUser, id: PathId) -> None:
    """Sign out one browser."""
    if not await people.end_session(request_user.user, id):
        raise NotFound("session not found", hint="it may have ended already")
    await audit.record_change(request_user, "sign_out", id)


@router.delete("", status_code=204, responses=problem_responses(), summary="Sign out everywhere")
async def end_sessions(audit: AuditDep, people: PeopleDep, request_user: BrowserUser) -> None:
    """Sign out all browsers, including the current one. API tokens stay valid."""
    await people.sign_out_everywhere(request_user.user)
    await audit.record_change(request_user, "sign_out", "everywhere")
