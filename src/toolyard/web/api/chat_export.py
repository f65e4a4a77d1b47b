"""A whole chat as one Markdown file."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Depends
from fastapi.responses import StreamingResponse

from toolyard.agents.chat.markdown_export import file_name, markdown
from toolyard.web.api.chat_dependencies import Looking
from toolyard.web.api.chat_results import INERT, whole_text
from toolyard.web.api.dependencies import Id, Served, problems, produces

__all__ = ["router"]

router = APIRouter(prefix="/chats", tags=["chats"])

MARKDOWN = "text/markdown; charset=utf-8"


@router.get(
    "/{id}/export",
    response_class=StreamingResponse,
    responses={
        **problems(404),
        200: {"description": "Markdown.", "content": {"text/markdown": {"schema": {"type": "string"}}}},
    },
    summary="A chat as a file",
    dependencies=[Depends(produces("text/markdown"))],
)
async def export_chat(site: Served, visitor: Looking, id: Id) -> StreamingResponse:
    """All of a chat as Markdown: what was said, every call with its arguments, every result to its end."""
    chat = await site.chats.get(visitor.user.id, id)
    headers = {
        "Content-Disposition": f'attachment; filename="{file_name(chat)}"',
        "Content-Security-Policy": INERT,
    }
    parts = markdown(site.chats, chat, partial(whole_text, site, visitor))
    return StreamingResponse(parts, media_type=MARKDOWN, headers=headers)
