"""Export of a chat as a Markdown file."""

from __future__ import annotations

from fastapi import Depends
from fastapi.responses import StreamingResponse

from toolyard.agents.chat.markdown_export import export_file_name, export_markdown
from toolyard.agents.chat.turn_snapshot import CallSnapshot
from toolyard.types.chat import CallResult
from toolyard.web.api.chat_results import SANDBOX_POLICY, load_full_text
from toolyard.web.api.dependencies import (
    ChatReader,
    PathId,
    problem_responses,
    require_media_types,
)
from toolyard.web.routes import Routes
from toolyard.web.service_dependencies import CallPathDep, ChatsDep

__all__ = ["router"]

router = Routes(prefix="/chats", tags=["chats"])

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

    async def read_full_text(call: CallSnapshot, result: CallResult) -> str:
        if not (result.handle or call.has_kept):
            return result.text
        return await load_full_text(call_path, chats, request_user, id, call.result_seq, result)

    parts = export_markdown(chats, chat, read_full_text)
    return StreamingResponse(parts, media_type=MARKDOWN_CONTENT_TYPE, headers=headers)
