"""``/ui/approvals``: questions from servers, calls that need approval, and standing approvals."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request, Response
from markupsafe import Markup

from toolyard.agents.chat.chats import GrantScope
from toolyard.agents.chat.storable_values import is_storable_json
from toolyard.agents.chat.turn_snapshot import QuestionSnapshot
from toolyard.errors import ToolyardError
from toolyard.registry.errors import NotFound
from toolyard.store.repositories.chats import SqlChatStore
from toolyard.types.account import RequestUser
from toolyard.types.approval import MAX_ANSWER_CHARACTERS, Approval, Grant, PageQuestion
from toolyard.types.tool import JsonObject
from toolyard.web import service_dependencies as deps
from toolyard.web.approval_review import ApprovalReview, GrantState
from toolyard.web.problem_details import describe_error
from toolyard.web.routes import Routes
from toolyard.web.ui.chat.fragments import FragmentContext, render_question
from toolyard.web.ui.components import forms, responses
from toolyard.web.ui.components.formatting import date, one_line, pretty_json
from toolyard.web.ui.tools.schema_form import BadArguments, ToolForm

__all__ = ["router"]

router = Routes()

_ANSWER_ACTIONS = ("accept", "decline", "cancel")
_DAY_SECONDS = 86_400.0
_REMEMBER_BY_ANSWER: Mapping[str, GrantScope | None] = {
    "once": None,
    "these": GrantScope(3_600.0, "these", this_chat_only=False),
    "here": GrantScope(7 * _DAY_SECONDS, "any", this_chat_only=True),
}
"""Standing approval that each answer creates; None for a single call."""
_MAX_LINE_SOURCE_CHARACTERS = 20_000
"""Characters of long arguments that are prepared for a line of 200: most of them may be blanks."""
_CHOOSABLE_DAYS = (1, 7, 30, 90, 365)


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """A call that needs approval."""

    review: ApprovalReview
    title: str | None
    """Title of its chat; None for calls of programs."""
    until: str
    """Day on which a standing approval would end by default."""
    ends: Sequence[tuple[int, str]]
    """Days and dates that can be chosen instead."""

    @property
    def differs(self) -> int:
        """Number of arguments that differ from the last approved call."""
        return sum(each.change not in ("", "same") for each in self.review.arguments)


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question from a server that several clients share."""

    asked: PageQuestion
    html: Markup


@dataclass(frozen=True, slots=True)
class ActiveGrant:
    """A standing approval."""

    grant: Grant
    state: GrantState
    bounds: Sequence[str]
    """Limits in words: arguments, chat, number of uses."""
    ends_soon: bool
    """True if it ends within a day. Pages then show the time left instead of the date."""


@dataclass(frozen=True, slots=True)
class _ApprovalPages:
    """Pages of one person's approvals."""

    request: Request
    me: deps.CurrentUser
    approvals: deps.ApprovalsDep
    chat_store: deps.ChatStoreDep
    questions: deps.QuestionsDep
    explainer: deps.ApprovalExplainerDep
    settings: deps.SettingsDep

    async def render(self, question_forms: Mapping[str, ToolForm]) -> Response:
        """Render the page. ``question_forms`` are those that are shown again, by the key of the question."""
        me, titles, now = self.me, _ChatTitles(self.chat_store, self.me), time.time()
        questions = [
            OpenQuestion(each, _render_open_question(each, me, question_forms))
            for each in await self.questions.list_open(me.user.id, now)
        ]
        waiting = await self.build_pending(await self.approvals.list_pending(me.user.id), titles)
        grants = await self.approvals.list_grants(me.user.id, now)
        states = await self.explainer.check_grants(me.principal, grants)
        granted: list[ActiveGrant] = []
        for each, state in zip(grants, states, strict=True):
            bounds = describe_grant(each, await titles.get_title(each.chat_id))
            granted.append(ActiveGrant(each, state, bounds, each.expires_at - now < _DAY_SECONDS))
            await asyncio.sleep(0)  # Arguments of 256 KB take milliseconds.
        return await responses.render_large_page(
            self.request, "approvals.html", questions=questions, waiting=waiting, granted=granted
        )

    async def build_pending(
        self, approvals: Sequence[Approval], titles: _ChatTitles
    ) -> list[PendingApproval]:
        """Return calls that need approval, with what the person has to know about them."""
        default, now = self.settings.approval_days, time.time()
        ends = [(days, date(now + days * _DAY_SECONDS)) for days in sorted({*_CHOOSABLE_DAYS, default})]
        until = date(now + default * _DAY_SECONDS)
        return [
            PendingApproval(each, await titles.get_title(each.approval.chat_id), until, ends)
            for each in await self.explainer.explain(self.me.principal, approvals)
        ]


_ApprovalsDep = Annotated[_ApprovalPages, Depends()]


@router.get("/ui/approvals")
async def show_approvals(pages: _ApprovalsDep) -> Response:
    """Show questions from servers, calls that need approval, and standing approvals."""
    return await pages.render({})


@router.get("/ui/approvals/{approval_id}")
async def show_approval(
    request: Request, me: deps.CurrentUser, approval_id: str, pages: _ApprovalsDep
) -> Response:
    """Show one call that needs approval."""
    approval = await pages.approvals.find(me.user.id, approval_id)
    if approval is None:
        raise NotFound("approval not found", hint="its chat may have been deleted")
    if approval.answered_at is not None:
        return await responses.render_large_page(request, "approval.html", page=None, answered=approval)
    (page,) = await pages.build_pending([approval], _ChatTitles(pages.chat_store, me))
    return await responses.render_large_page(request, "approval.html", page=page, answered=None)


def _choose_scope(answer: str, days: str, default_days: int) -> GrantScope | None:
    """Return the standing approval that an answer creates. Raises NotFound for an unknown answer."""
    if answer in ("always", "until"):
        chosen = forms.parse_number(days, 6) if answer == "until" else None
        chosen = default_days if chosen is None else chosen
        return GrantScope(chosen * _DAY_SECONDS, "any", this_chat_only=False)
    if answer != "no" and answer not in _REMEMBER_BY_ANSWER:
        raise NotFound("unknown answer", hint="reload the page")
    return _REMEMBER_BY_ANSWER.get(answer)


@router.post("/ui/approvals/{approval_id}")
async def answer_approval(
    request: Request,
    me: deps.CurrentUser,
    approval_id: str,
    form: forms.FormDep,
    audit: deps.AuditDep,
    chats: deps.ChatsDep,
    settings: deps.SettingsDep,
) -> Response:
    """Approve or decline a call."""
    answer = form.text("answer")
    remember = _choose_scope(answer, form.text(f"days-{approval_id}")[:6], settings.approval_days)
    audit.set_current_user(me)
    try:
        approval = await chats.answer_approval(me.user.id, approval_id, yes=answer != "no", remember=remember)
    except ToolyardError as error:
        return _render_failure(request, form, error)
    await audit.record_change(
        me,
        "approval.answer",
        approval_id,
        yes=answer != "no",
        remembered=remember is not None,
        tool=approval.tool,
        chat=approval.chat_id,
    )
    if responses.is_fragment_request(request):
        return Response(status_code=204)
    message = "Call declined." if answer == "no" else "Call approved."
    return responses.redirect_to(form.next_path("/ui/approvals"), message)


def _question_key(question_id: str) -> str:
    return f"q-{question_id}"


def _render_open_question(
    asked: PageQuestion, me: RequestUser, question_forms: Mapping[str, ToolForm]
) -> Markup:
    frame = FragmentContext("", me.csrf, question_forms, question_url=f"/ui/approvals/questions/{asked.id}")
    return render_question(QuestionSnapshot(_question_key(asked.id), asked.question), frame)


@router.post("/ui/approvals/questions/{question_id}")
async def answer_page_question(
    me: deps.CurrentUser,
    question_id: str,
    form: forms.FormDep,
    audit: deps.AuditDep,
    pages: _ApprovalsDep,
) -> Response:
    """Answer a question from a server that several clients share."""
    open_questions = await pages.questions.list_open(me.user.id, time.time())
    asked = next((each for each in open_questions if each.id == question_id), None)
    action = form.text("reply") if form.text("reply") in _ANSWER_ACTIONS else "cancel"
    answer: dict[str, object] = {"action": action}
    if asked is not None and asked.question.kind == "form" and action == "accept":
        key = _question_key(asked.id)
        filled = ToolForm.from_question(asked.question.schema or {}, key).with_submission(form)
        try:
            if filled.only_changed:
                return await pages.render({key: filled})
            answer["content"] = _check_content(filled.arguments())
        except BadArguments as error:
            return await pages.render({key: filled.with_errors(error)})
    if asked is None or not await pages.questions.answer(me.user.id, question_id, answer):
        raise NotFound(
            "this question is no longer open", hint="it was already answered, or its call has ended"
        )
    await audit.record_change(me, "question.answer", question_id, reply=action, server=asked.question.server)
    return responses.redirect_to(
        "/ui/approvals", "Answer sent." if action == "accept" else "Question declined."
    )


def _check_content(content: dict[str, object]) -> dict[str, object]:
    if not is_storable_json(content) or len(pretty_json(content)) > MAX_ANSWER_CHARACTERS:
        raise BadArguments({"": "the answer is too long"})
    return content


@router.post("/ui/approvals/grants/{grant_id}/revoke")
async def revoke_grant(
    me: deps.CurrentUser, grant_id: str, audit: deps.AuditDep, approvals: deps.ApprovalsDep
) -> Response:
    """Revoke a standing approval."""
    if not await approvals.revoke(me.user.id, grant_id):
        raise NotFound("approval not found", hint="it may have expired or been revoked")
    await audit.record_change(me, "grant.revoke", grant_id)
    return responses.redirect_to("/ui/approvals", "Approval revoked. Such calls need approval again.")


def _render_failure(request: Request, form: forms.SubmittedForm, error: ToolyardError) -> Response:
    problem, _ = describe_error(error)
    if responses.is_fragment_request(request):
        return responses.render_alert(problem)
    path = form.next_path("/ui/approvals")
    return responses.redirect_to(path, problem.detail, kind="bad", hint=problem.hint)


class _ChatTitles:
    """Cache of chat titles for one request."""

    def __init__(self, chat_store: SqlChatStore, me: RequestUser) -> None:
        self._chat_store = chat_store
        self._me = me
        self._title_by_chat_id: dict[str, str] = {}

    async def get_title(self, chat_id: str | None) -> str | None:
        if chat_id is None:
            return None
        if chat_id not in self._title_by_chat_id:
            chat = await self._chat_store.get(self._me.user.id, chat_id)
            self._title_by_chat_id[chat_id] = "deleted chat" if chat is None else chat.title or "New chat"
        return self._title_by_chat_id[chat_id]


def describe_grant(grant: Grant, chat_title: str | None) -> list[str]:
    """Return the limits of a standing approval in words."""
    words = [_describe_arguments(grant.predicate)]
    words.append(
        f"in “{one_line(chat_title, 60)}” only"
        if chat_title is not None
        else "in every chat and for programs"
    )
    if grant.uses is not None:
        words.append("for one call" if grant.uses == 1 else f"for {grant.uses} calls")
    return words


def _describe_arguments(predicate: JsonObject) -> str:
    if not predicate:
        return "with any arguments"
    # The empty key stands for the arguments as a whole.
    exactly: object = predicate.get("")
    if isinstance(exactly, Mapping):
        arguments = pretty_json(cast("JsonObject", exactly).get("equal"), _MAX_LINE_SOURCE_CHARACTERS)
        return f"with exactly {one_line(arguments, 200)}"
    conditions = (
        f"{key} = {pretty_json(value, _MAX_LINE_SOURCE_CHARACTERS)}" for key, value in predicate.items()
    )
    return f"where {one_line(', '.join(conditions), 200)}"
