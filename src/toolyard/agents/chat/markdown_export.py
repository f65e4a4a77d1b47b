"""Export a chat as Markdown."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

import orjson

from toolyard.agents.chat.chats import ChatService
from toolyard.types.chat import TRANSIENT_KINDS, Chat, ChatEvent, Kind

__all__ = ["FullTextReader", "export_file_name", "export_markdown"]

_EVENTS_PER_PAGE = 200

FullTextReader: TypeAlias = Callable[[ChatEvent], Awaitable[str]]
"""Returns the full text of a RESULT event."""


def export_file_name(chat: Chat) -> str:
    """Return a file name made from the title's ASCII letters and digits."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", chat.title).strip("-").lower()[:60].rstrip("-")
    return f"{words or 'chat'}.md"


async def export_markdown(
    chats: ChatService, chat: Chat, read_full_text: FullTextReader | None = None
) -> AsyncGenerator[str]:
    """Yield the whole chat in parts.

    ``read_full_text`` is for interfaces that store more of a long result than the chat does.
    """
    created_at = datetime.fromtimestamp(chat.created_at, UTC)
    yield f"# {_collapse_whitespace(chat.title) or 'Chat'}\n\n{created_at:%Y-%m-%d %H:%M} UTC\n"
    streamed_text: dict[tuple[int, str], list[str]] = {}
    async for event in _read_all_events(chats, chat):
        if event.kind in TRANSIENT_KINDS:
            if event.kind is Kind.TEXT:
                streamed_text.setdefault((event.turn, event.part), []).append(
                    str(event.body.get("delta", ""))
                )
            continue
        streamed_text.pop((event.turn, event.part), None)
        yield await _render_event(chats, chat, event, read_full_text)
    # Streamed text of a turn that is still running.
    for pieces in streamed_text.values():
        yield _format_block("".join(pieces))


async def _read_all_events(chats: ChatService, chat: Chat) -> AsyncIterator[ChatEvent]:
    """Yield all events, loading one page at a time."""
    after = 0
    while page := await chats.list_events(chat.owner, chat.id, after=after, limit=_EVENTS_PER_PAGE):
        for event in page:
            yield event
        after = page[-1].seq


async def _render_event(
    chats: ChatService, chat: Chat, event: ChatEvent, read_full_text: FullTextReader | None
) -> str:
    if event.kind is not Kind.RESULT:
        return _RENDERERS.get(event.kind, _render_nothing)(event.body)
    if read_full_text is not None:
        return _render_result(event.body, await read_full_text(event))
    full_result = await chats.get_full_result(chat.owner, chat.id, event.seq) if event.has_kept else None
    return _render_result(
        event.body, str(event.body.get("text", "")) if full_result is None else full_result.text
    )


# Rendering of each kind of event.

_EventBody = Mapping[str, Any]


def _render_user_message(body: _EventBody) -> str:
    return f"\n## You\n{_format_block(body['text'])}"


def _render_manual_call(body: _EventBody) -> str:
    return f"\n## You ran {_format_inline_code(body['name'])}\n"


def _render_model_message(body: _EventBody) -> str:
    reasoning = _format_block("> " + body["reasoning"].replace("\n", "\n> ")) if body.get("reasoning") else ""
    content = reasoning + (_format_block(body["text"]) if body.get("text") else "")
    return f"\n## {_collapse_whitespace(str(body.get('model') or 'Model'))}\n{content}" if content else ""


def _render_call(body: _EventBody) -> str:
    arguments = body["arguments"]
    argument_text = (
        arguments
        if isinstance(arguments, str)
        else orjson.dumps(arguments, option=orjson.OPT_INDENT_2).decode()
    )
    server = f" ({_collapse_whitespace(str(body['server']))})" if body.get("server") else ""
    return f"\n### {_format_inline_code(body['name'])}{server}\n{_format_code_fence(argument_text, 'json')}"


def _render_result(body: _EventBody, text: str) -> str:
    heading = "Result" if body.get("ok") else "Error"
    media = "".join(
        f"- {each['kind']}, {_format_inline_code(each['mime'])}, {each['size']:,} bytes\n"
        for each in body.get("media") or ()
    )
    cause = f"\n{_collapse_whitespace(body['cause'])}\n" if body.get("cause") else ""
    return (
        f"\n{heading}, after {body.get('seconds', 0):.1f} s:\n{cause}{_format_code_fence(text)}"
        f"{media and chr(10) + media}"
    )


def _render_approval_answer(body: _EventBody) -> str:
    return "\nYou allowed it.\n" if body.get("yes") else "\nYou did not allow it.\n"


def _render_question(body: _EventBody) -> str:
    return (
        f"\n{_collapse_whitespace(str(body.get('server', '')))} "
        f"asked:\n{_format_code_fence(str(body.get('message', '')))}"
    )


def _render_question_answer(body: _EventBody) -> str:
    return f"\nYou replied: {_collapse_whitespace(str(body.get('action', '')))}.\n"


def _render_note(body: _EventBody) -> str:
    return f"\n*{_collapse_whitespace(str(body.get('text', '')))}*\n"


def _render_end(body: _EventBody) -> str:
    if body.get("why") == "done":
        return ""
    error = f": {_collapse_whitespace(str(body['error']))}" if body.get("error") else ""
    return f"\n*The turn ended: {_collapse_whitespace(str(body.get('why', '')))}{error}*\n"


def _render_nothing(body: _EventBody) -> str:
    return ""


_RENDERERS = {
    Kind.USER: _render_user_message,
    Kind.RUN: _render_manual_call,
    Kind.MODEL_MESSAGE: _render_model_message,
    Kind.CALL: _render_call,
    Kind.APPROVAL_ANSWER: _render_approval_answer,
    Kind.QUESTION: _render_question,
    Kind.QUESTION_ANSWER: _render_question_answer,
    Kind.NOTE: _render_note,
    Kind.END: _render_end,
}


def _format_block(text: str) -> str:
    return f"\n{text.strip(chr(10))}\n"


def _collapse_whitespace(text: str) -> str:
    return " ".join(text.split())


def _format_inline_code(text: object) -> str:
    return f"`{_collapse_whitespace(str(text)).replace('`', chr(39))}`"


def _format_code_fence(text: str, language: str = "") -> str:
    """Return untrusted text in a fence longer than any inside it, so that the text cannot close the fence."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"\n{fence}{language}\n{text}\n{fence}\n"
