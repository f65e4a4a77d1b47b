"""``/sessions``: the browsers that the request's user is signed in with."""

from __future__ import annotations

from datetime import datetime

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field

from toolyard.accounts.browser_sessions import session_id
from toolyard.registry.errors import NotFound
from toolyard.types.account import Session
from toolyard.web.access.cookies import known_browser
from toolyard.web.api.dependencies import JSON, Id, Person, Served, moment, moment_or_none, problems, produces

__all__ = ["router"]

router = APIRouter(prefix="/sessions", tags=["people"], dependencies=[Depends(produces(JSON))])


class SessionShown(BaseModel):
    """A browser that is signed in."""

    id: str
    browser: str = Field(description="A name such as `Firefox on Linux`; empty: unknown.")
    network: str = Field(description="The block of addresses that it was last used from.")
    created_at: datetime
    last_seen: datetime | None
    expires_at: datetime
    current: bool = Field(description="Whether this request came with it.")


class SessionList(BaseModel):
    """The browsers that you are signed in with, the most recently used first."""

    items: list[SessionShown]


def _shown(session: Session, current: str) -> SessionShown:
    return SessionShown(
        id=session.id,
        browser=session.browser,
        network=session.network,
        created_at=moment(session.created_at),
        last_seen=moment_or_none(session.last_seen),
        expires_at=moment(session.expires_at),
        current=session.id == current,
    )


@router.get("", responses=problems(), summary="Your browsers")
async def list_sessions(site: Served, visitor: Person, request: Request) -> SessionList:
    """The browsers that you are signed in with. Empty in the modes `none` and `proxy`, which have no
    sessions."""
    if not visitor.signed_in:
        return SessionList(items=[])
    browser = known_browser(request)
    current = "" if browser is None else session_id(browser.text)
    return SessionList(items=[_shown(each, current) for each in await site.people.sessions(visitor.user)])


@router.delete("/{id}", status_code=204, responses=problems(404), summary="Sign out a browser")
async def end_session(site: Served, visitor: Person, id: Id) -> None:
    """Sign out one browser."""
    if not await site.people.end_session(visitor.user, id):
        raise NotFound("there is no such session", hint="it may have ended")
    await site.changed(visitor, "sign_out", id)


@router.delete("", status_code=204, responses=problems(), summary="Sign out everywhere")
async def end_sessions(site: Served, visitor: Person) -> None:
    """Sign out every browser, also the one that sends this. API tokens stay."""
    await site.people.sign_out_everywhere(visitor.user)
    await site.changed(visitor, "sign_out", "everywhere")
