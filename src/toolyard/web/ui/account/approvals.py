"""``/ui/approvals``: calls that wait for a yes, wherever they were made, and what was allowed ahead."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import APIRouter, Depends
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from toolyard.agents.chat.chats import Remember
from toolyard.errors import ToolyardError
from toolyard.registry.errors import NotFound
from toolyard.types.approval import Approval, Grant
from toolyard.types.tool import JsonObject
from toolyard.web.access.dependencies import Visitor, visitor
from toolyard.web.problem_details import describe
from toolyard.web.services import Site
from toolyard.web.ui.chat.fragments import Frame
from toolyard.web.ui.components.flash import go
from toolyard.web.ui.components.formatting import one_line, pretty_json
from toolyard.web.ui.components.forms import posted
from toolyard.web.ui.components.render import part, render, wants_part
from toolyard.web.ui.components.safe_redirect import inner_path

__all__ = ["router"]

router = APIRouter()

Me = Annotated[Visitor, Depends(visitor)]
_HOUR, _WEEK = 3_600.0, 7 * 86_400.0
_ANSWERS: Mapping[str, Remember | None] = {
    "once": None,
    "these": Remember(_HOUR, "these", here=False),
    "any": Remember(_HOUR, "any", here=False),
    "here": Remember(_WEEK, "any", here=True),
}
"""How far each kind of yes reaches."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A call that waits."""

    approval: Approval
    arguments: Markup
    title: str | None
    """Of its chat; None where it was made by a program."""


@dataclass(frozen=True, slots=True)
class Granted:
    """A yes that still counts."""

    grant: Grant
    bounds: Sequence[str]
    """In words: for what, where, how often."""


@dataclass(frozen=True, slots=True)
class ApprovalsPage:
    """What waits, and what was allowed."""

    waiting: Sequence[Waiting]
    granted: Sequence[Granted]


@router.get("/ui/approvals")
async def show_approvals(request: Request, me: Me) -> Response:
    """Everything that somebody can say yes to, or take back."""
    site: Site = request.app.state.site
    stored, titles = site.database.approvals, _Titles(site, me)
    waiting: list[Waiting] = []
    for each in await stored.waiting(me.user.id):
        waiting.append(Waiting(each, Frame.to_approve(each.arguments), await titles.of(each.chat_id)))
        # Arguments may be long: others get their turn between any two.
        await asyncio.sleep(0)
    granted = [
        Granted(each, bounds(each, await titles.of(each.chat_id)))
        for each in await stored.grants(me.user.id, site.clock())
    ]
    return render(request, "approvals.html", page=ApprovalsPage(waiting, granted))


@router.post("/ui/approvals/{approval_id}")
async def answer(request: Request, me: Me, approval_id: str) -> Response:
    """Say yes or no to a call."""
    site: Site = request.app.state.site
    form = await posted(request)
    said = form.text("answer")
    if said != "no" and said not in _ANSWERS:
        raise NotFound("this is no answer", hint="open the page again")
    asked = await site.database.approvals.find(me.user.id, approval_id)
    site.visiting(me)
    try:
        await site.chats.answer(me.user.id, approval_id, yes=said != "no", remember=_ANSWERS.get(said))
    except ToolyardError as error:
        return _failed(request, form.text("next"), error)
    details = {} if asked is None else {"tool": asked.tool, "chat": asked.chat_id}
    remembered = _ANSWERS.get(said) is not None
    await site.changed(me, "approval.answer", approval_id, yes=said != "no", remembered=remembered, **details)
    if wants_part(request):
        return Response(status_code=204)
    told = "The call is not made." if said == "no" else "The call may be made."
    return go(inner_path(form.text("next"), "/ui/approvals"), told)


@router.post("/ui/approvals/grants/{grant_id}/revoke")
async def revoke(request: Request, me: Me, grant_id: str) -> Response:
    """Take back what was allowed ahead."""
    site: Site = request.app.state.site
    if not await site.database.approvals.revoke(me.user.id, grant_id):
        raise NotFound("there is no such grant", hint="it may have run out, or have been taken back")
    await site.changed(me, "grant.revoke", grant_id)
    return go("/ui/approvals", "It is taken back: such calls ask again.")


def _failed(request: Request, back: str, error: ToolyardError) -> Response:
    problem, _ = describe(error)
    if wants_part(request):
        html = part("parts.html", "alert", "bad", problem.detail, hint=problem.hint or "", closes=True)
        return HTMLResponse(html, problem.status)
    return go(inner_path(back, "/ui/approvals"), problem.detail, kind="bad", hint=problem.hint)


class _Titles:
    """What chats are called, each looked up once."""

    def __init__(self, site: Site, me: Visitor) -> None:
        self._site = site
        self._me = me
        self._known: dict[str, str] = {}

    async def of(self, chat_id: str | None) -> str | None:
        if chat_id is None:
            return None
        if chat_id not in self._known:
            chat = await self._site.database.chats.get(self._me.user.id, chat_id)
            self._known[chat_id] = "a chat that is gone" if chat is None else chat.title or "New chat"
        return self._known[chat_id]


def bounds(grant: Grant, title: str | None) -> list[str]:
    """What a yes counts for, in words."""
    words = [_arguments(grant.predicate)]
    words.append(
        f"in “{one_line(title, 60)}” only" if title is not None else "in every chat and for programs"
    )
    if grant.uses is not None:
        words.append("for one call" if grant.uses == 1 else f"for {grant.uses} calls")
    return words


def _arguments(predicate: JsonObject) -> str:
    if not predicate:
        return "with any arguments"
    exactly: object = predicate.get("")
    if isinstance(exactly, Mapping):
        return f"with exactly {one_line(pretty_json(cast('JsonObject', exactly).get('equal')), 200)}"
    said = (f"{key} = {pretty_json(value)}" for key, value in predicate.items())
    return f"where {one_line(', '.join(said), 200)}"
