"""``/pending``: chats at work, and requests that wait for an answer."""

from __future__ import annotations

import time
from datetime import datetime

from fastapi import Depends
from pydantic import BaseModel, Field

from toolyard.types.approval import PendingItem, PendingKind
from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    ApiModel,
    ChatReader,
    problem_responses,
    require_media_types,
    to_datetime,
)
from toolyard.web.routes import Routes
from toolyard.web.service_dependencies import PendingItemsDep

__all__ = ["router"]

router = Routes(tags=["approvals"], dependencies=[Depends(require_media_types(JSON_CONTENT_TYPE))])


_PAGES = {
    PendingKind.RUNNING_CHAT: "/ui/chat/{}",
    PendingKind.WAITING_CHAT: "/ui/chat/{}",
    PendingKind.APPROVAL: "/ui/approvals",
    PendingKind.QUESTION: "/ui/approvals",
    PendingKind.PROPOSAL: "/ui/admin/proposals",
}


class PendingItemResponse(ApiModel):
    """A chat at work, or a request that waits for your answer."""

    kind: PendingKind = Field(description="Only a `running_chat` does not wait for you.")
    id: str
    title: str = Field(description="Title of the chat, name of the tool, or name of the server that asks.")
    page: str = Field(description="Path of the page on which to answer.")
    since: datetime


class PendingItemList(BaseModel):
    """Oldest first; at most 100."""

    items: list[PendingItemResponse]


@router.get("/pending", responses=problem_responses(), summary="List what waits for you")
async def list_pending_items(pending: PendingItemsDep, request_user: ChatReader) -> PendingItemList:
    """Return your chats with a running or suspended turn, the calls of programs that need approval, open
    questions of servers, and for admins the servers that people propose."""
    found = await pending.list(request_user.user.id, time.time(), with_proposals=request_user.is_admin)
    return PendingItemList(items=[_build_item_model(each) for each in found])


def _build_item_model(item: PendingItem) -> PendingItemResponse:
    return PendingItemResponse(
        kind=item.kind,
        id=item.id,
        title=item.title,
        page=_PAGES[item.kind].format(item.id),
        since=to_datetime(item.since),
    )
