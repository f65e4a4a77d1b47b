"""Exports: a chat or an agent as a Markdown file, and all data of a person as an archive."""

from __future__ import annotations

import asyncio
import zipfile
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping
from datetime import UTC, datetime
from typing import IO, Annotated, cast

import orjson
from fastapi import Depends
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import BaseModel

from toolyard.agents.chat.chats import ChatService
from toolyard.agents.chat.markdown_export import export_file_name, export_markdown
from toolyard.agents.chat.turn_snapshot import CallSnapshot
from toolyard.agents.definitions.agents_md import format_agent
from toolyard.clients.call_path import CallPath
from toolyard.types.account import RequestUser
from toolyard.types.chat import CallResult, Chat
from toolyard.web import service_dependencies as deps
from toolyard.web.api import base as api
from toolyard.web.api.approvals import GrantResponse, load_grants
from toolyard.web.api.audit import export_person_entries
from toolyard.web.api.catalog import list_proposals
from toolyard.web.api.chat_models import EventResponse
from toolyard.web.api.instances import InstanceList, list_instances
from toolyard.web.api.results import build_sandbox_headers, load_full_text
from toolyard.web.api.tokens import TokenList, list_tokens
from toolyard.web.api.usage import get_usage
from toolyard.web.api.users import MeResponse, get_me

__all__ = ["router"]

router = api.ApiRoutes()

MARKDOWN_CONTENT_TYPE = "text/markdown; charset=utf-8"
ZIP_CONTENT_TYPE = "application/zip"
_CHATS_PER_PAGE, _EVENTS_PER_PAGE = 100, 200
_USAGE_DAYS = 3_660
_MIN_CHUNK_BYTES = 64 * 1024


@router.get(
    "/chats/{id}/export",
    tags=["chats"],
    response_class=StreamingResponse,
    errors=[404],
    responses={
        200: {"description": "Markdown.", "content": {"text/markdown": {"schema": {"type": "string"}}}},
    },
    summary="Export a chat",
    media_types=["text/markdown"],
)
async def export_chat(
    call_path: deps.CallPathDep, chats: deps.ChatsDep, request_user: api.ChatReader, id: api.PathId
) -> StreamingResponse:
    """Return a chat as Markdown: all messages, all calls with their arguments, and all results in full."""
    chat = await chats.get(request_user.user.id, id)
    parts = _export_chat(call_path, chats, request_user, chat)
    headers = build_sandbox_headers(f'attachment; filename="{export_file_name(chat)}"')
    return StreamingResponse(parts, media_type=MARKDOWN_CONTENT_TYPE, headers=headers)


@router.get(
    "/agents/{id}/export",
    tags=["agents"],
    response_class=PlainTextResponse,
    errors=[404],
    responses={
        200: {"description": "Markdown.", "content": {"text/markdown": {"schema": {"type": "string"}}}},
    },
    summary="Export an agent",
    media_types=["text/markdown"],
)
async def export_agent(
    agent_directory: deps.AgentDirectoryDep, request_user: api.UserWithRead, id: api.PathId
) -> PlainTextResponse:
    """Return an agent as a file in the format of AGENTS.md."""
    agent = (await agent_directory.find_entry(request_user, id)).agent
    name = agent.id.encode("ascii", "ignore").decode().strip("-") or "agent"
    headers = build_sandbox_headers(f'attachment; filename="{name}.md"')
    return PlainTextResponse(format_agent(agent), media_type=MARKDOWN_CONTENT_TYPE, headers=headers)


@router.get(
    "/me/export",
    tags=["users"],
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "ZIP archive.",
            "content": {ZIP_CONTENT_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        },
    },
    summary="Export all your data",
    media_types=[ZIP_CONTENT_TYPE],
)
async def export_my_data(
    account: Annotated[MeResponse, Depends(get_me)],
    tokens: Annotated[TokenList, Depends(list_tokens)],
    instances: Annotated[InstanceList, Depends(list_instances)],
    grants: Annotated[Iterable[GrantResponse], Depends(load_grants)],
    usage: deps.UsageDep,
    audit_log: deps.AuditLogDep,
    call_path: deps.CallPathDep,
    chats: deps.ChatsDep,
    agent_directory: deps.AgentDirectoryDep,
    proposals: deps.ProposalsDep,
    request_user: api.ChatReader,
) -> StreamingResponse:
    """Return an archive with your account, API tokens without their secrets, instances without their
    credentials, standing approvals, usage, proposals, audit entries, your own agents, and chats as Markdown
    and as events, with their attachments."""
    agents = await agent_directory.list_entries(request_user)
    records: Mapping[str, BaseModel] = {
        "account": account,
        "tokens": tokens,
        "instances": instances,
        "usage": await get_usage(usage, request_user, days=_USAGE_DAYS),
        "proposals": await list_proposals(proposals, request_user),
    }

    async def list_files() -> AsyncGenerator[tuple[str, AsyncIterable[str | bytes]]]:
        for name, record in records.items():
            yield f"{name}.json", _yield_once(record.model_dump_json(indent=2))
        yield "standing-approvals.json", _encode_items(grants)
        yield "audit.jsonl", export_person_entries(audit_log, request_user.user.id)
        for each in agents:
            if each.origin == "own":
                yield f"agents/{each.agent.id}.md", _yield_once(format_agent(each.agent))
        async for chat in _list_all_chats(chats, request_user):
            name = f"chats/{chat.id}-{export_file_name(chat).removesuffix('.md')}"
            yield f"{name}.md", _export_chat(call_path, chats, request_user, chat)
            yield f"{name}.jsonl", _export_events(chats, chat)
            for each in await chats.attachments.list_sent(request_user.user.id, chat.id):
                yield f"{name}/{each.id}-{each.name}", chats.attachments.read(each)

    name = f"toolyard-data-{datetime.now(UTC):%Y-%m-%d}.zip"
    headers = build_sandbox_headers(f'attachment; filename="{name}"')
    return StreamingResponse(_stream_zip(list_files()), media_type=ZIP_CONTENT_TYPE, headers=headers)


def _export_chat(
    call_path: CallPath, chats: ChatService, request_user: RequestUser, chat: Chat
) -> AsyncGenerator[str]:
    async def read_full_text(call: CallSnapshot, result: CallResult) -> str:
        if not (result.handle or call.has_payload):
            return result.text
        return await load_full_text(call_path, chats, request_user, chat.id, call.result_seq, result)

    return export_markdown(chats, chat, read_full_text)


async def _list_all_chats(chats: ChatService, request_user: RequestUser) -> AsyncGenerator[Chat]:
    before: tuple[float, str] | None = None
    while page := await chats.list(request_user.user.id, before=before, limit=_CHATS_PER_PAGE):
        for chat in page:
            yield chat
        before = (page[-1].updated_at, page[-1].id)


async def _export_events(chats: ChatService, chat: Chat) -> AsyncGenerator[bytes]:
    after = 0
    while page := await chats.list_events(chat.owner, chat.id, after=after, limit=_EVENTS_PER_PAGE):
        for event in page:
            yield orjson.dumps(EventResponse.of(event).model_dump(), option=orjson.OPT_APPEND_NEWLINE)
        after = page[-1].seq


async def _encode_items(items: Iterable[BaseModel]) -> AsyncGenerator[str]:
    """Yield a list as JSON, item by item: 500 approvals can have 128 MB."""
    yield '{\n  "items": ['
    for number, each in enumerate(items):
        yield ("," if number else "") + "\n" + each.model_dump_json(indent=2)
    yield "]\n}"


async def _yield_once(text: str) -> AsyncGenerator[str]:
    yield text


async def _stream_zip(files: AsyncIterable[tuple[str, AsyncIterable[str | bytes]]]) -> AsyncGenerator[bytes]:
    """Yield an archive of these files while they are written, so that neither memory nor disk limits it."""
    buffer = _ZipBuffer()
    with zipfile.ZipFile(cast("IO[bytes]", buffer), "w", zipfile.ZIP_DEFLATED) as archive:
        async for name, parts in files:
            with archive.open(name, "w", force_zip64=True) as file:
                async for part in parts:
                    # Compressing a long result takes time.
                    await asyncio.to_thread(file.write, part.encode() if isinstance(part, str) else part)
                    if buffer.size >= _MIN_CHUNK_BYTES:
                        yield buffer.take()
            yield buffer.take()
    yield buffer.take()


class _ZipBuffer:
    """Collects what the archive writes. It cannot seek, so sizes follow each file."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self.size = 0

    def write(self, chunk: bytes) -> int:
        self._chunks.append(chunk)
        self.size += len(chunk)
        return len(chunk)

    def flush(self) -> None:
        pass

    def take(self) -> bytes:
        """Return and forget what was written."""
        chunks, self._chunks, self.size = self._chunks, [], 0
        return b"".join(chunks)
