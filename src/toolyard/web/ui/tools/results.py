"""Pages of results: of a call in a chat, and of a call on the page of a tool."""

from __future__ import annotations

import asyncio

from fastapi import Request, Response
from markupsafe import Markup

from toolyard.clients.call_path import CallPath
from toolyard.protocol.codec import iter_encoded_pieces
from toolyard.registry.errors import NotFound
from toolyard.results.result_store import StoredResult, make_handle
from toolyard.types.account import RequestUser
from toolyard.types.chat import CallResult
from toolyard.types.server import Server
from toolyard.types.tool import Result
from toolyard.web import service_dependencies as deps
from toolyard.web.api.results import build_sandbox_headers, load_full_text
from toolyard.web.rendering.renderer import ResultRenderer
from toolyard.web.rendering.result_view import ResultQuery, find_path_hint
from toolyard.web.routes import Routes
from toolyard.web.ui.components import forms, responses
from toolyard.web.ui.components.formatting import one_line

__all__ = ["INLINE_IMAGE_TYPES", "build_result_query", "chat_result_key", "render_call_result", "router"]

router = Routes()

INLINE_IMAGE_TYPES = frozenset(
    ("image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp", "image/svg+xml")
)
"""MIME types that pages display as images."""
_NOT_FOUND_HINT = "it may have been deleted, or have expired"


@router.get("/ui/chat/{chat_id}/results/{seq}")
async def show_chat_result(
    request: Request,
    me: deps.CurrentUser,
    chat_id: str,
    seq: int,
    call_path: deps.CallPathDep,
    chats: deps.ChatsDep,
    results: deps.ResultRendererDep,
) -> Response:
    """Show a part of the result of a call in a chat."""
    chat = await chats.get(me.user.id, chat_id)
    events = await chats.list_events(me.user.id, chat_id, after=seq - 1, limit=1) if 0 < seq < 2**62 else ()
    data = events[0].data if events and events[0].seq == seq else None
    full = await chats.get_full_result(me.user.id, chat_id, seq) if isinstance(data, CallResult) else None
    if full is None or not isinstance(data, CallResult):
        raise NotFound("result not found", hint=_NOT_FOUND_HINT)
    text = await load_full_text(call_path, chats, me, chat_id, seq, data)
    query = _read_query(request, chat_result_key(chat_id, seq), text, full.structured)
    title = one_line(chat.title or "Chat", 60)
    return await _respond(request, results, query, f"/ui/chat/{chat.id}", title)


@router.get("/ui/results/{handle}")
async def show_stored_result(
    request: Request,
    me: deps.CurrentUser,
    handle: str,
    call_path: deps.CallPathDep,
    results: deps.ResultRendererDep,
) -> Response:
    """Show a part of a stored result of a call on the page of a tool."""
    stored = await call_path.result_store(me.principal).read(handle)
    if stored is None or stored.text is None:
        raise NotFound("result not found", hint=_NOT_FOUND_HINT)
    query = _read_query(request, handle, stored.text, "")
    return await _respond(request, results, query, "/ui/mcp", "Instances")


async def render_call_result(
    call_path: CallPath,
    results: ResultRenderer,
    me: RequestUser,
    server: Server,
    result: Result,
    arguments: object,
) -> Markup:
    """Render the result of a call on the page of a tool, and store it, so that its parts have a URL."""
    store = call_path.result_store(me.principal)
    stored = await store.read(result.handle) if result.handle else None
    body = result.text if stored is None or stored.text is None else stored.text
    if result.structured is not None:
        # In a thread, because it may take 60 MB.
        body = await asyncio.to_thread(_encode_structured, result.structured) or body
    kept = StoredResult(body, server.trust, server.id)
    handle = await asyncio.to_thread(make_handle, kept)
    await store.save(handle, kept)
    query = ResultQuery(f"/ui/results/{handle}", handle, body, path_hint=find_path_hint(arguments))
    return await results.render(query)


def _encode_structured(structured: object) -> str:
    try:
        return "".join(iter_encoded_pieces(structured))
    except ValueError:
        return ""


def chat_result_key(chat_id: str, seq: int) -> str:
    """Return the id of the element that shows a result of a chat."""
    return f"v{chat_id[:12]}-{seq}"


def build_result_query(chat_id: str, seq: int, result: CallResult, arguments: object) -> ResultQuery:
    """Return the query for the preview of a result that its event contains."""
    return ResultQuery(
        f"/ui/chat/{chat_id}/results/{seq}",
        chat_result_key(chat_id, seq),
        result.text,
        path_hint=find_path_hint(arguments),
    )


def _read_query(request: Request, key: str, text: str, structured: str) -> ResultQuery:
    params = request.query_params
    return ResultQuery(
        request.url.path,
        key,
        text,
        structured,
        view=params.get("view", "")[:20],
        path=params.get("path", "")[:2_000],
        start=forms.parse_number(params.get("from"), 11) or 0,
        sort=forms.parse_number(params.get("sort"), 11),
        descending=params.get("order") == "desc",
        path_hint=params.get("file", "")[:200],
    )


async def _respond(
    request: Request, results: ResultRenderer, query: ResultQuery, back: str, back_text: str
) -> Response:
    if query.view == "csv":
        table = await results.write_csv(query)
        if not table:
            hint = "download it as text instead"
            raise NotFound("this result is not a table, or too large for one", hint=hint)
        # The mark tells spreadsheets the encoding.
        return _respond_with_file(b"\xef\xbb\xbf" + table, "text/csv", f"{query.key}.csv")
    if query.view == "file":
        return _respond_with_file(query.text.encode(errors="replace"), "text/plain", f"{query.key}.txt")
    html = await results.render(query)
    return responses.render_page(request, "result.html", html=html, back=back, back_text=back_text)


def _respond_with_file(content: bytes, kind: str, name: str) -> Response:
    headers = build_sandbox_headers(f'attachment; filename="result-{name}"')
    headers["Cache-Control"] = "no-store"
    return Response(content, headers=headers, media_type=f"{kind}; charset=utf-8")
