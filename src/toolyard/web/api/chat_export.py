"""Export of a chat as a Markdown file."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Depends
from fastapi.responses import StreamingResponse

from toolyard.agents.chat.markdown_export import export_file_name, export_markdown
from toolyard.web.api.chat_results import SANDBOX_POLICY, load_full_text
from toolyard.web.api.dependencies import (
    ChatReader,
    PathId,
    problem_responses,
    require_media_types,
)
from toolyard.web.service_dependencies import CallPathDep, ChatsDep

__all__ = ["router"]

router = APIRouter(prefix="/chats", tags=["chats"])

MARKDOWN_CONTENT_TYPE = "text/markdown; charset=utf-8"


@router.get(
    "/{id}/export",
    response_class=StreamingResponse,
    responses={
        **problem_responses(404),
        200: {"description": "Markdown.", "content": {"text/markdown": {"schema": {"type": "string"}}}},
    },
    summary="Export a chat",
    dependencies=[Depends(require_media_types("text/markdown"))],
)
async def export_chat(
    call_path: CallPathDep, chats: ChatsDep, request_user: ChatReader, id: PathId
) -> StreamingResponse:
    """Return a chat as Markdown: all messages, all calls with their arguments, and all results in full."""
    chat = await chats.get(request_user.user.id, id)
    headers = {
        "Content-Disposition": f'attachment; filename="{export_file_name(chat)}"',
        "Content-Security-Policy": SANDBOX_POLICY,
    }
    parts = export_markdown(chats, chat, partial(load_full_text, call_path, chats, request_user))
    return StreamingResponse(parts, media_type=MARKDOWN_CONTENT_TYPE, headers=headers)
