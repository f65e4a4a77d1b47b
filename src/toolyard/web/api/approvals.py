"""``/approvals`` and ``/grants``: calls that need approval, and standing approvals."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any, Literal

from fastapi import Depends
from pydantic import BaseModel, ConfigDict, Field

from toolyard.agents.chat.approval_grants import GrantScope
from toolyard.registry.errors import NotFound
from toolyard.types.approval import Grant
from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    ApiModel,
    ChatApprover,
    ChatReader,
    ChatWriter,
    PathId,
    RequestModel,
    problem_responses,
    require_media_types,
    to_datetime,
)
from toolyard.web.approval_review import ApprovalReview, GrantState
from toolyard.web.routes import Routes
from toolyard.web.service_dependencies import (
    ApprovalReviewerDep,
    ApprovalsDep,
    AuditDep,
    ChatsDep,
    SettingsDep,
)

__all__ = ["router"]

router = Routes(tags=["approvals"], dependencies=[Depends(require_media_types(JSON_CONTENT_TYPE))])

_MAX_REMEMBER_SECONDS = 31_622_400


class RememberRequest(RequestModel, schema="RememberGiven"):
    """Further calls that an approval covers, and for how long."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"seconds": 3600, "arguments": "any", "here": True}]}
    )

    seconds: float | None = Field(
        default=None,
        gt=0,
        le=_MAX_REMEMBER_SECONDS,
        description="Duration of the approval, in seconds; by default the setting `approval_days`.",
    )
    arguments: Literal["these", "any"] = Field(
        description="Cover calls with the same arguments only, or with any."
    )
    here: bool = Field(default=True, description="Cover calls in this chat only.")


class AnswerRequest(RequestModel, schema="AnswerGiven"):
    """Decision about a call."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"yes": True, "remember": None}]})

    yes: bool = Field(description="Whether to approve the call.")
    remember: RememberRequest | None = Field(
        default=None, description="Approve similar calls, too; null for this call only."
    )


class ApprovalResponse(ApiModel, schema="ApprovalShown"):
    """A call that needs approval."""

    id: str
    chat_id: str | None
    call_id: str | None
    tool: str
    name: str
    server: str = Field(description="Name of the server or instance.")
    arguments: dict[str, Any]
    reason: str
    sentence: str = Field(description="What the tool can do, in words for people.")
    differs: list[str] | None = Field(
        description="Arguments that differ from the last call of this tool that you approved; "
        "null without one."
    )
    asked_at: datetime


class ApprovalList(BaseModel):
    """Calls that need your approval, oldest first."""

    items: list[ApprovalResponse]


class GrantResponse(ApiModel, schema="GrantShown"):
    """A standing approval."""

    id: str
    tool: str
    name: str
    predicate: dict[str, Any] = Field(description="Required value of each argument; empty for any arguments.")
    chat_id: str | None = Field(description="Chat that the approval is limited to; null for none.")
    uses: int | None = Field(description="Remaining number of calls; null for no limit.")
    created_at: datetime
    expires_at: datetime
    server: str = Field(description="Name of the server or instance.")
    in_force: bool = Field(description="False if the definition of the tool changed, or the tool is gone.")
    problem: str | None = Field(description="Why it is out of force.")


class GrantList(BaseModel):
    """Your standing approvals."""

    items: list[GrantResponse]


@router.get("/approvals", responses=problem_responses(), summary="List calls that need approval")
async def list_approvals(
    approvals: ApprovalsDep, reviewer: ApprovalReviewerDep, request_user: ChatReader
) -> ApprovalList:
    """Return the calls that need your approval, oldest first."""
    pending = await approvals.list_pending(request_user.user.id)
    reviews = await reviewer.review(request_user.principal, pending)
    return ApprovalList(items=[_build_approval_model(each) for each in reviews])


@router.post(
    "/approvals/{id}",
    status_code=204,
    responses=problem_responses(404, 409, 413, 415),
    summary="Approve or decline a call",
)
async def answer_approval(
    audit: AuditDep,
    approvals: ApprovalsDep,
    chats: ChatsDep,
    settings: SettingsDep,
    request_user: ChatApprover,
    id: PathId,
    given: AnswerRequest,
) -> None:
    """Approve or decline a call. Each can be answered once. The turn continues when all its calls are
    answered."""
    approval = await approvals.find(request_user.user.id, id)
    remember = None if given.remember is None else _create_remember(given.remember, settings.approval_days)
    await chats.answer_approval(request_user.user.id, id, yes=given.yes, remember=remember)
    details = {} if approval is None else {"tool": approval.tool, "chat": approval.chat_id}
    await audit.record_change(
        request_user, "approval.answer", id, yes=given.yes, remembered=remember is not None, **details
    )


@router.get("/grants", responses=problem_responses(), summary="List standing approvals")
async def list_grants(
    approvals: ApprovalsDep, reviewer: ApprovalReviewerDep, request_user: ChatReader
) -> GrantList:
    """Return your standing approvals that have not ended. After a change of its definition, a tool needs
    approval again."""
    grants = await approvals.list_grants(request_user.user.id, time.time())
    states = await reviewer.check_grants(request_user.principal, grants)
    return GrantList(items=[_build_grant_model(*each) for each in zip(grants, states, strict=True)])


@router.delete(
    "/grants/{id}", status_code=204, responses=problem_responses(404), summary="Revoke a standing approval"
)
async def revoke_grant(
    audit: AuditDep, approvals: ApprovalsDep, request_user: ChatWriter, id: PathId
) -> None:
    """Revoke a standing approval: such calls need approval again."""
    if not await approvals.revoke(request_user.user.id, id):
        raise NotFound("standing approval not found", hint="it may have expired or been revoked")
    await audit.record_change(request_user, "grant.revoke", id)


def _create_remember(given: RememberRequest, default_days: int) -> GrantScope:
    seconds = default_days * 86_400.0 if given.seconds is None else given.seconds
    return GrantScope(seconds=seconds, arguments=given.arguments, this_chat_only=given.here)


def _build_approval_model(review: ApprovalReview) -> ApprovalResponse:
    approval = review.approval
    differs = [each.name for each in review.arguments if each.change not in ("", "same")]
    return ApprovalResponse(
        id=approval.id,
        chat_id=approval.chat_id,
        call_id=approval.call_id,
        tool=approval.tool,
        name=approval.name,
        server=review.server,
        arguments=dict(approval.arguments),
        reason=approval.reason,
        sentence=review.sentence,
        differs=None if review.previous is None else differs,
        asked_at=to_datetime(approval.asked_at),
    )


def _build_grant_model(grant: Grant, state: GrantState) -> GrantResponse:
    return GrantResponse(
        id=grant.id,
        tool=grant.tool,
        name=grant.name,
        predicate=dict(grant.predicate),
        chat_id=grant.chat_id,
        uses=grant.uses,
        created_at=to_datetime(grant.created_at),
        expires_at=to_datetime(grant.expires_at),
        server=state.server,
        in_force=not state.problem,
        problem=state.problem or None,
    )
