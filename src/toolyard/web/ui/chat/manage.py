"""Renaming and deleting chats, and reading long results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from toolyard.registry.errors import NotFound
from toolyard.types.chat import Chat
from toolyard.web.access.dependencies import RequestUser, require_user
from toolyard.web.services import Services
from toolyard.web.ui.components.confirm import ConfirmPage, render_confirm_page
from toolyard.web.ui.components.flash import redirect_with_message
from toolyard.web.ui.components.formatting import one_line
from toolyard.web.ui.components.forms import read_submitted_form
from toolyard.web.ui.components.render import render_page

__all__ = ["router"]

router = APIRouter()

CurrentUser = Annotated[RequestUser, Depends(require_user)]
_RESULT_PAGE_CHARACTERS = 200_000
"""Maximum number of characters of a result on one page."""
_MAX_TITLE_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class ResultPage:
    """Content of a page of a long result: its characters ``start`` to ``end``."""

    chat: Chat
    seq: int
    text: str
    start: int
    end: int
    length: int


@router.get("/ui/chat/{chat_id}/rename")
async def show_rename_form(request: Request, me: CurrentUser, chat_id: str) -> Response:
    """Show the form that renames a chat."""
    site: Services = request.app.state.site
    return render_page(request, "chat_rename.html", chat=await site.chats.get(me.user.id, chat_id))


@router.post("/ui/chat/{chat_id}/rename")
async def rename_chat(request: Request, me: CurrentUser, chat_id: str) -> Response:
    """Rename a chat. An empty title is ignored."""
    site: Services = request.app.state.site
    title = (await read_submitted_form(request)).text("title").strip()[:_MAX_TITLE_CHARACTERS]
    await site.chats.get(me.user.id, chat_id)
    if title:
        await site.chats.change(me.user.id, chat_id, title=title)
    return redirect_with_message(f"/ui/chat/{chat_id}", "Chat renamed." if title else None)


@router.get("/ui/chat/{chat_id}/delete")
async def show_delete_confirmation(request: Request, me: CurrentUser, chat_id: str) -> Response:
    """Show the confirmation page."""
    site: Services = request.app.state.site
    chat = await site.chats.get(me.user.id, chat_id)
    page = ConfirmPage(
        title=f"Delete “{one_line(chat.title or 'New chat', 80)}”?",
        text="This deletes all its messages and results, and stops a running turn.",
        action=f"/ui/chat/{chat.id}/delete",
        back=f"/ui/chat/{chat.id}",
    )
    return render_confirm_page(request, page)


@router.post("/ui/chat/{chat_id}/delete")
async def delete_chat(request: Request, me: CurrentUser, chat_id: str) -> Response:
    """Delete a chat."""
    site: Services = request.app.state.site
    chat = await site.chats.get(me.user.id, chat_id)
    await site.chats.delete(me.user.id, chat_id)
    await site.changed(me, "chat.delete", chat_id)
    return redirect_with_message("/ui/chat", f"“{one_line(chat.title or 'New chat', 80)}” is deleted.")


@router.get("/ui/chat/{chat_id}/results/{seq}")
async def show_result(request: Request, me: CurrentUser, chat_id: str, seq: int) -> Response:
    """Show a part of a long result, starting at the character ``from``."""
    site: Services = request.app.state.site
    chat = await site.chats.get(me.user.id, chat_id)
    result = await site.chats.result(me.user.id, chat_id, seq)
    if result is None:
        raise NotFound("result not found", hint="it may have been deleted with its chat")
    offset = request.query_params.get("from", "")
    is_number = offset.isascii() and offset.isdigit() and len(offset) < 12
    start = min(int(offset), len(result.text)) if is_number else 0
    text = result.text[start : start + _RESULT_PAGE_CHARACTERS]
    page = ResultPage(chat, seq, text, start, start + len(text), len(result.text))
    return render_page(request, "chat_result.html", page=page)
