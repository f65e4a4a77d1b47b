"""``/approvals``, ``/grants``, ``/questions``, ``/pending``: requests that wait for a person, and grants."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Depends, Response
from pydantic import ConfigDict, Field

from toolyard.agents.chat.approval_grants import GrantScope
from toolyard.errors import Problem
from toolyard.registry.errors import Invalid, NotFound
from toolyard.types.approval import MAX_ANSWER_CHARACTERS, Grant, PendingKind
from toolyard.web import service_dependencies as deps
from toolyard.web.api import base as api
from toolyard.web.api.chat_models import ReplyRequest
from toolyard.web.approval_review import ApprovalReview, GrantState
from toolyard.web.ui.components.formatting import pretty_json

__all__ = ["GrantResponse", "load_grants", "router"]


router = api.ApiRoutes(tags=["approvals"])

_MAX_REMEMBER_SECONDS = 31_622_400


class RememberRequest(api.RequestModel, schema="RememberGiven"):
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


class AnswerRequest(api.RequestModel, schema="AnswerGiven"):
    """Decision about a call."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"yes": True, "remember": None}]})

    yes: bool = Field(description="Whether to approve the call.")
    remember: RememberRequest | None = Field(
        default=None, description="Approve similar calls, too; null for this call only."
    )


class ApprovalResponse(api.ApiModel, schema="ApprovalShown"):
    """A call that needs approval."""

    id: str
    chat_id: str | None
    call_id: str | None
    tool: str
    name: str
    server: str = Field(description="Name of the server or instance.")
    arguments: dict[str, Any]
    reason: str
    sentence: str = Field(description="What the tool can do, in plain language.")
    differs: list[str] | None = Field(
        description="Arguments that differ from the last call of this tool that you approved; "
        "null without one."
    )
    asked_at: datetime


class ApprovalList(api.ItemList[ApprovalResponse]):
    """Calls that need your approval, oldest first."""


class GrantResponse(api.ApiModel, schema="GrantShown"):
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


class GrantList(api.ItemList[GrantResponse]):
    """Your standing approvals."""


@router.get("/approvals", summary="List calls that need approval")
async def list_approvals(
    approvals: deps.ApprovalsDep, explainer: deps.ApprovalExplainerDep, request_user: api.ChatReader
) -> ApprovalList:
    """Return the calls that need your approval, oldest first."""
    pending = await approvals.list_pending(request_user.user.id)
    reviews = await explainer.explain(request_user.principal, pending)
    return ApprovalList(items=[_build_approval_model(each) for each in reviews])


@router.post(
    "/approvals/{id}",
    status_code=204,
    errors=[404, 409, 413, 415],
    summary="Approve or decline a call",
)
async def answer_approval(
    audit: deps.AuditDep,
    chats: deps.ChatsDep,
    settings: deps.SettingsDep,
    request_user: api.ChatApprover,
    id: api.PathId,
    given: AnswerRequest,
) -> None:
    """Approve or decline a call. Each can be answered once. The turn continues when all its calls are
    answered."""
    remember = None if given.remember is None else _create_remember(given.remember, settings.approval_days)
    approval = await chats.answer_approval(request_user.user.id, id, yes=given.yes, remember=remember)
    await audit.record_change(
        request_user,
        "approval.answer",
        id,
        yes=given.yes,
        remembered=remember is not None,
        tool=approval.tool,
        chat=approval.chat_id,
    )


async def load_grants(
    approvals: deps.ApprovalsDep, explainer: deps.ApprovalExplainerDep, request_user: api.ChatReader
) -> Iterable[GrantResponse]:
    """Return the standing approvals of the request's user, each of which is decoded when it is reached."""
    grants = await approvals.list_grants(request_user.user.id, time.time())
    states = await explainer.check_grants(request_user.principal, grants)
    return map(_build_grant_model, grants, states)


def _build_grant_model(grant: Grant, state: GrantState) -> GrantResponse:
    problem = state.problem or None
    return GrantResponse.of(grant, server=state.server, in_force=problem is None, problem=problem)


@router.get("/grants", response_model=GrantList, summary="List standing approvals")
async def list_grants(grants: Annotated[Iterable[GrantResponse], Depends(load_grants)]) -> Response:
    """Return your standing approvals that have not ended. After a change of its definition, a tool needs
    approval again."""
    # Each has up to 256 KB of arguments.
    return await api.respond_with_items((each.model_dump(mode="json") for each in grants), items_per_step=1)


@router.delete("/grants/{id}", status_code=204, errors=[404], summary="Revoke a standing approval")
async def revoke_grant(
    audit: deps.AuditDep, approvals: deps.ApprovalsDep, request_user: api.ChatWriter, id: api.PathId
) -> None:
    """Revoke a standing approval: such calls need approval again."""
    if not await approvals.revoke(request_user.user.id, id):
        raise NotFound("standing approval not found", hint="it may have expired or been revoked")
    await audit.record_change(request_user, "grant.revoke", id)


def _create_remember(given: RememberRequest, default_days: int) -> GrantScope:
    seconds = default_days * 86_400.0 if given.seconds is None else given.seconds
    return GrantScope(seconds=seconds, arguments=given.arguments, this_chat_only=given.here)


def _build_approval_model(review: ApprovalReview) -> ApprovalResponse:
    differs = [each.name for each in review.arguments if each.change not in ("", "same")]
    return ApprovalResponse.of(
        review.approval,
        server=review.server,
        sentence=review.sentence,
        differs=None if review.previous is None else differs,
    )


# Questions from servers.


class QuestionResponse(api.ApiModel):
    """A question from a server."""

    id: str
    server: str
    calls: list[str] = Field(description="Calls that it may belong to, each with the name of its client.")
    kind: str = Field(description="`form` or `url`.", examples=["form"])
    message: str
    fields: dict[str, Any] | None = Field(description="JSON Schema of the form; null for a URL.")
    url: str | None = Field(description="Page to open; null for a form.")
    asked_at: datetime
    expires_at: datetime


class QuestionList(api.ItemList[QuestionResponse]):
    """Open questions, oldest first."""


@router.get("/questions", summary="List questions from servers")
async def list_questions(questions: deps.QuestionsDep, request_user: api.ChatReader) -> QuestionList:
    """Return the open questions from servers that several of your clients share, or whose client cannot
    answer. Questions in a chat are among its events."""
    found = await questions.list_open(request_user.user.id, time.time())
    return QuestionList(
        items=[
            QuestionResponse.of(
                each.question,
                id=each.id,
                calls=each.calls,
                fields=each.question.schema,
                asked_at=each.asked_at,
                expires_at=each.expires_at,
            )
            for each in found
        ]
    )


@router.post(
    "/questions/{id}",
    status_code=204,
    errors=[404, 413, 415],
    summary="Answer a question from a server",
)
async def answer_page_question(
    audit: deps.AuditDep,
    questions: deps.QuestionsDep,
    request_user: api.ChatApprover,
    id: api.PathId,
    given: ReplyRequest,
) -> None:
    """Answer a question. It can be answered once, and only before it expires. The content is sent to the
    server, but not stored."""
    owner = request_user.user.id
    asked = next((each for each in await questions.list_open(owner, time.time()) if each.id == id), None)
    answer: dict[str, object] = {"action": given.action}
    if given.action == "accept" and given.content is not None:
        if len(pretty_json(given.content)) > MAX_ANSWER_CHARACTERS:
            raise Invalid([Problem("is too long", path="content", hint="shorten the answer")])
        answer["content"] = given.content
    if asked is None or not await questions.answer(owner, id, answer):
        raise NotFound(
            "this question is no longer open", hint="it was already answered, or its call has ended"
        )
    await audit.record_change(
        request_user, "question.answer", id, reply=given.action, server=asked.question.server
    )


# Everything that is pending.

_PAGES = {
    PendingKind.RUNNING_CHAT: "/ui/chat/{}",
    PendingKind.WAITING_CHAT: "/ui/chat/{}",
    PendingKind.APPROVAL: "/ui/approvals",
    PendingKind.QUESTION: "/ui/approvals",
    PendingKind.PROPOSAL: "/ui/admin/proposals",
}


class PendingItemResponse(api.ApiModel):
    """A chat at work, or a request that waits for your answer."""

    kind: PendingKind = Field(description="All kinds except `running_chat` need your attention.")
    id: str
    title: str = Field(description="Title of the chat, name of the tool, or name of the server that asks.")
    page: str = Field(description="Path of the page on which to answer.")
    since: datetime


class PendingItemList(api.ItemList[PendingItemResponse]):
    """Oldest first; at most 100."""


@router.get("/pending", summary="List items that need your attention")
async def list_pending_items(pending: deps.PendingItemsDep, request_user: api.ChatReader) -> PendingItemList:
    """Return your chats with a running or suspended turn, the calls of programs that need approval, open
    questions from servers, and for admins the servers that people propose."""
    found = await pending.list(request_user.user.id, time.time(), with_proposals=request_user.is_admin)
    return PendingItemList(
        items=[PendingItemResponse.of(each, page=_PAGES[each.kind].format(each.id)) for each in found]
    )
