"""``/attachments``: pictures and text files, uploaded before the message that they are sent with."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from toolyard.errors import AttachmentRefused
from toolyard.registry.errors import NotFound
from toolyard.types.chat import Attachment
from toolyard.web.api.chat_files.results import SANDBOX_POLICY
from toolyard.web.api.dependencies import ApiModel, ChatReader, ChatWriter, PathId, problem_responses
from toolyard.web.middleware.request_body import UPLOAD_PATH
from toolyard.web.routes import Routes
from toolyard.web.service_dependencies import ChatsDep

__all__ = ["AttachmentResponse", "build_attachment_model", "router"]

router = Routes(prefix="/attachments", tags=["chats"])

_BINARY_SCHEMA = {"schema": {"type": "string", "format": "binary"}}
_UPLOAD_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/octet-stream": _BINARY_SCHEMA}}
}


class AttachmentResponse(ApiModel):
    """A stored file."""

    id: str = Field(description="Id to send with a message.")
    name: str = Field(description="File name, without folders and invisible characters.")
    mime: str = Field(description="Type, determined by the content.")
    size: int = Field(description="Size in bytes.")
    url: str = Field(description="Path of the content.")


@router.post(
    "",
    status_code=201,
    responses=problem_responses(409, 413, 415),
    summary="Upload an attachment",
    openapi_extra=_UPLOAD_BODY,
)
async def upload_attachment(
    chats: ChatsDep,
    request_user: ChatWriter,
    request: Request,
    response: Response,
    name: Annotated[str, Query(max_length=1_000, description="File name.")] = "",
) -> AttachmentResponse:
    """Store a picture (PNG, JPEG, GIF, WebP) or a text file in UTF-8, to be sent with a message. If it is not
    sent, it is deleted after a day."""
    attachment = await chats.attachments.upload(request_user.user.id, name, request.stream())
    uploaded = build_attachment_model(attachment)
    response.headers["Location"] = uploaded.url
    return uploaded


@router.get(
    "/{id}",
    response_class=StreamingResponse,
    responses={
        **problem_responses(404),
        200: {"description": "The content.", "content": {"*/*": _BINARY_SCHEMA}},
    },
    summary="Download an attachment",
)
async def get_attachment(chats: ChatsDep, request_user: ChatReader, id: PathId) -> StreamingResponse:
    """Return the content of one of your attachments, as a download."""
    try:
        attachment = await chats.attachments.get(request_user.user.id, id)
    except AttachmentRefused:
        raise _build_not_found_error() from None
    headers = {
        "Content-Disposition": _build_disposition(attachment),
        "Content-Length": str(attachment.size),
        "Content-Security-Policy": SANDBOX_POLICY,
        "X-Content-Type-Options": "nosniff",
    }
    mime = attachment.mime if attachment.is_picture else f"{attachment.mime}; charset=utf-8"
    return StreamingResponse(chats.attachments.read(attachment), headers=headers, media_type=mime)


@router.delete(
    "/{id}", status_code=204, responses=problem_responses(404), summary="Delete an unsent attachment"
)
async def delete_attachment(chats: ChatsDep, request_user: ChatWriter, id: PathId) -> None:
    """Delete an attachment that was not sent. One that was sent is deleted with its chat."""
    if not await chats.attachments.delete_unsent(request_user.user.id, id):
        raise _build_not_found_error()


def build_attachment_model(attachment: Attachment) -> AttachmentResponse:
    """Return an attachment as the API shows it."""
    return AttachmentResponse(
        id=attachment.id,
        name=attachment.name,
        mime=attachment.mime,
        size=attachment.size,
        url=f"{UPLOAD_PATH}/{attachment.id}",
    )


def _build_not_found_error() -> NotFound:
    return NotFound("attachment not found", hint="it may have expired, or its chat may have been deleted")


def _build_disposition(attachment: Attachment) -> str:
    ascii_name = attachment.name.encode("ascii", "replace").decode().replace('"', "'").replace("\\", "_")
    return f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(attachment.name, safe='')}"
