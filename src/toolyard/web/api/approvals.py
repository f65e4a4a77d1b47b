"""``/approvals`` and ``/grants``: calls that wait for a yes, and what was allowed ahead."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from toolyard.agents.chat.approval_grants import GrantScope
from toolyard.registry.errors import NotFound
from toolyard.types.approval import Approval, Grant
from toolyard.web.api.chat_dependencies import ChatApprover, ChatReader, ChatWriter
from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    AppServices,
    Given,
    PathId,
    problem_responses,
    require_media_types,
    to_datetime,
)

__all__ = ["router"]

router = APIRouter(tags=["approvals"], dependencies=[Depends(require_media_types(JSON_CONTENT_TYPE))])

_MAX_REMEMBER_SECONDS = 31_622_400


class RememberGiven(Given):
    """For which calls like it a yes counts as well, and for how long."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"seconds": 3600, "arguments": "any", "here": True}]}
    )

    seconds: float = Field(gt=0, le=_MAX_REMEMBER_SECONDS)
    arguments: Literal["these", "any"] = Field(description="With these arguments only, or with any.")
    here: bool = Field(default=True, description="In this chat only.")


class AnswerGiven(Given):
    """Whether a call may be made."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"yes": True, "remember": None}]})

    yes: bool
    remember: RememberGiven | None = Field(default=None, description="null: just this once.")


class ApprovalShown(BaseModel):
    """A call that waits for a yes or a no."""

    id: str
    chat_id: str | None
    call_id: str | None
    tool: str
    name: str
    arguments: dict[str, Any]
    reason: str
    asked_at: datetime


class ApprovalList(BaseModel):
    """What waits for an answer of yours, the oldest first."""

    items: list[ApprovalShown]


class GrantShown(BaseModel):
    """A yes that still counts."""

    id: str
    tool: str
    name: str
    predicate: dict[str, Any] = Field(description="By argument, what it must be; empty: any arguments.")
    chat_id: str | None = Field(description="In this chat only; null: everywhere.")
    uses: int | None = Field(description="Calls that it is still good for; null: any number.")
    created_at: datetime
    expires_at: datetime


class GrantList(BaseModel):
    """What you allowed ahead."""

    items: list[GrantShown]


@router.get("/approvals", responses=problem_responses(), summary="Calls that wait for your yes")
async def list_approvals(site: AppServices, visitor: ChatReader) -> ApprovalList:
    """All of them, the oldest first."""
    waiting = await site.database.approvals.waiting(visitor.user.id)
    return ApprovalList(items=[_build_approval_model(each) for each in waiting])


@router.post(
    "/approvals/{id}",
    status_code=204,
    responses=problem_responses(404, 409, 413, 415),
    summary="Say yes or no to a call",
)
async def answer_approval(site: AppServices, visitor: ChatApprover, id: PathId, given: AnswerGiven) -> None:
    """The turn goes on once all calls that it waits for are answered. Each can be answered once."""
    asked = await site.database.approvals.find(visitor.user.id, id)
    remember = None if given.remember is None else _create_remember(given.remember)
    await site.chats.answer_approval(visitor.user.id, id, yes=given.yes, remember=remember)
    details = {} if asked is None else {"tool": asked.tool, "chat": asked.chat_id}
    await site.changed(
        visitor, "approval.answer", id, yes=given.yes, remembered=remember is not None, **details
    )


@router.get("/grants", responses=problem_responses(), summary="What you allowed ahead")
async def list_grants(site: AppServices, visitor: ChatReader) -> GrantList:
    """Those that still count. A tool whose definition changes is asked about again."""
    found = await site.database.approvals.list_grants(visitor.user.id, site.clock())
    return GrantList(items=[_build_grant_model(each) for each in found])


@router.delete(
    "/grants/{id}", status_code=204, responses=problem_responses(404), summary="Take back what you allowed"
)
async def revoke_grant(site: AppServices, visitor: ChatWriter, id: PathId) -> None:
    """From now on such calls are asked about again."""
    if not await site.database.approvals.revoke(visitor.user.id, id):
        raise NotFound("there is no such grant", hint="it may have run out, or have been taken back")
    await site.changed(visitor, "grant.revoke", id)


def _create_remember(given: RememberGiven) -> GrantScope:
    return GrantScope(seconds=given.seconds, arguments=given.arguments, here=given.here)


def _build_approval_model(approval: Approval) -> ApprovalShown:
    return ApprovalShown(
        id=approval.id,
        chat_id=approval.chat_id,
        call_id=approval.call_id,
        tool=approval.tool,
        name=approval.name,
        arguments=dict(approval.arguments),
        reason=approval.reason,
        asked_at=to_datetime(approval.asked_at),
    )


def _build_grant_model(grant: Grant) -> GrantShown:
    return GrantShown(
        id=grant.id,
        tool=grant.tool,
        name=grant.name,
        predicate=dict(grant.predicate),
        chat_id=grant.chat_id,
        uses=grant.uses,
        created_at=to_datetime(grant.created_at),
        expires_at=to_datetime(grant.expires_at),
    )
