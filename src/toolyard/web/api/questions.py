"""``/questions``: questions of servers that no client could be asked."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from fastapi import Depends
from pydantic import BaseModel, Field

from toolyard.errors import Problem
from toolyard.registry.errors import Invalid, NotFound
from toolyard.types.approval import MAX_ANSWER_CHARACTERS, PageQuestion
from toolyard.web.api.chat_models import ReplyRequest
from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    ApiModel,
    ChatApprover,
    ChatReader,
    PathId,
    problem_responses,
    require_media_types,
    to_datetime,
)
from toolyard.web.routes import Routes
from toolyard.web.service_dependencies import AuditDep, QuestionsDep
from toolyard.web.ui.components.formatting import pretty_json

__all__ = ["router"]

router = Routes(tags=["approvals"], dependencies=[Depends(require_media_types(JSON_CONTENT_TYPE))])


class QuestionResponse(ApiModel):
    """A question of a server."""

    id: str
    server: str
    calls: list[str] = Field(description="Calls that it may belong to, each with the name of its client.")
    kind: str = Field(description="`form` or `url`.", examples=["form"])
    message: str
    fields: dict[str, Any] | None = Field(description="JSON Schema of the form; null for a URL.")
    url: str | None = Field(description="Page to open; null for a form.")
    asked_at: datetime
    expires_at: datetime


class QuestionList(BaseModel):
    """Open questions, oldest first."""

    items: list[QuestionResponse]


@router.get("/questions", responses=problem_responses(), summary="List questions of servers")
async def list_questions(questions: QuestionsDep, request_user: ChatReader) -> QuestionList:
    """Return the open questions of servers that several of your clients share, or whose client cannot answer.
    Questions in a chat are among its events."""
    found = await questions.list_open(request_user.user.id, time.time())
    return QuestionList(items=[_build_question_model(each) for each in found])


@router.post(
    "/questions/{id}",
    status_code=204,
    responses=problem_responses(404, 413, 415),
    summary="Answer a question of a server",
)
async def answer_page_question(
    audit: AuditDep, questions: QuestionsDep, request_user: ChatApprover, id: PathId, given: ReplyRequest
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
        raise NotFound("this question is no longer open", hint="its call has ended, or it was answered")
    await audit.record_change(
        request_user, "question.answer", id, reply=given.action, server=asked.question.server
    )


def _build_question_model(asked: PageQuestion) -> QuestionResponse:
    question = asked.question
    return QuestionResponse(
        id=asked.id,
        server=question.server,
        calls=list(asked.calls),
        kind=question.kind,
        message=question.message,
        fields=None if question.schema is None else dict(question.schema),
        url=question.url,
        asked_at=to_datetime(asked.asked_at),
        expires_at=to_datetime(asked.expires_at),
    )
