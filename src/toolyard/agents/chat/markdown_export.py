"""Export a chat as Markdown."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TypeAlias

import orjson

from toolyard.agents.chat.chats import ChatService
from toolyard.agents.chat.turn_snapshot import (
    AnswerSnapshot,
    CallSnapshot,
    ChatSnapshot,
    NoteSnapshot,
    QuestionSnapshot,
    TurnItem,
    TurnSnapshot,
)
from toolyard.types.chat import Attachment, CallResult, Chat, ManualCall, TurnOutcome, UserMessage

__all__ = ["FullTextReader", "export_file_name", "export_markdown", "format_code_fence"]

_EVENTS_PER_PAGE = 200
_PART_CHARACTERS = 1_000_000
"""Maximum length of a part. To encode and send a long one would hold up other tasks."""

FullTextReader: TypeAlias = Callable[[CallSnapshot, CallResult], Awaitable[str]]
"""Returns the full text of a call's result."""


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
    reader = read_full_text or partial(_read_stored_text, chats, chat)
    async for turn in _read_turns(chats, chat):
        yield _render_start(turn)
        for item in turn.items:
            text = await _render_item(item, reader)
            for start in range(0, len(text), _PART_CHARACTERS):
                yield text[start : start + _PART_CHARACTERS]
        yield _render_end(turn)


async def _read_turns(chats: ChatService, chat: Chat) -> AsyncIterator[TurnSnapshot]:
    """Yield the turns of the chosen branch, loading one page of events at a time."""
    after, current = 0, ChatSnapshot()
    branch = set((await chats.get_turn_tree(chat.owner, chat.id)).branch(chat.turn))
    while page := await chats.list_events(chat.owner, chat.id, after=after, limit=_EVENTS_PER_PAGE):
        turns = current.apply(event for event in page if event.turn in branch).turns
        for turn in turns[:-1]:
            yield turn
        after, current = page[-1].seq, ChatSnapshot(turns[-1:])
    for turn in current.turns:
        yield turn


async def _read_stored_text(chats: ChatService, chat: Chat, call: CallSnapshot, result: CallResult) -> str:
    full = await chats.get_full_result(chat.owner, chat.id, call.result_seq) if call.has_payload else None
    return result.text if full is None else full.text


# Rendering.


def _render_start(turn: TurnSnapshot) -> str:
    match turn.start:
        case UserMessage(text=text):
            return f"\n## You\n{_format_block(text)}{_render_attachments(turn.attachments)}"
        case ManualCall(name=name):
            return f"\n## You ran {_format_inline_code(name)}\n"
        case None:
            return ""


def _render_attachments(attachments: Sequence[Attachment]) -> str:
    lines = "".join(
        f"- {_format_inline_code(each.name)}, {_format_inline_code(each.mime)}, {each.size:,} bytes\n"
        for each in attachments
    )
    return f"\nAttached:\n\n{lines}" if lines else ""


async def _render_item(item: TurnItem, read_full_text: FullTextReader) -> str:
    match item:
        case AnswerSnapshot():
            return _render_answer(item)
        case CallSnapshot():
            result = (
                ""
                if item.result is None
                else await asyncio.to_thread(
                    _render_result, item.result, await read_full_text(item, item.result)
                )
            )
            return await asyncio.to_thread(_render_call, item) + result
        case QuestionSnapshot():
            return _render_question(item)
        case NoteSnapshot(note=note):
            return f"\n*{_collapse_whitespace(note.text)}*\n"


def _render_answer(answer: AnswerSnapshot) -> str:
    # Streamed text of a turn that is still running.
    if answer.seq is None:
        return _format_block(answer.text) if answer.text else ""
    reasoning = _format_block("> " + answer.reasoning.replace("\n", "\n> ")) if answer.reasoning else ""
    content = reasoning + (_format_block(answer.text) if answer.text else "")
    return f"\n## {_collapse_whitespace(answer.model or 'Model')}\n{content}" if content else ""


def _render_call(call: CallSnapshot) -> str:
    request, arguments = call.request, call.request.arguments
    argument_text = (
        arguments
        if isinstance(arguments, str)
        else orjson.dumps(arguments, option=orjson.OPT_INDENT_2).decode()
    )
    server = f" ({_collapse_whitespace(request.server)})" if request.server else ""
    approval = {True: "\nYou allowed it.\n", False: "\nYou did not allow it.\n", None: ""}[call.approved]
    questions = "".join(map(_render_question, call.questions))
    return (
        f"\n### {_format_inline_code(request.name)}{server}\n{format_code_fence(argument_text, 'json')}"
        f"{approval}{questions}"
    )


def _render_result(result: CallResult, text: str) -> str:
    heading = "Result" if result.ok else "Error"
    media = "".join(
        f"- {each.kind}, {_format_inline_code(each.mime)}, {each.size:,} bytes\n" for each in result.media
    )
    cause = f"\n{_collapse_whitespace(result.cause)}\n" if result.cause else ""
    if result.stopped:
        return f"\nStopped:\n{format_code_fence(text)}"
    return (
        f"\n{heading}, after {result.seconds:.1f} s:\n{cause}{format_code_fence(text)}"
        f"{media and chr(10) + media}"
    )


def _render_question(snapshot: QuestionSnapshot) -> str:
    server, message = _collapse_whitespace(snapshot.question.server), snapshot.question.message
    reply = "" if snapshot.action is None else f"\nYou replied: {_collapse_whitespace(snapshot.action)}.\n"
    return f"\n{server} asked:\n{format_code_fence(message)}{reply}"


def _render_end(turn: TurnSnapshot) -> str:
    if turn.end is None or turn.end.why == TurnOutcome.DONE:
        return ""
    error = f": {_collapse_whitespace(turn.end.error)}" if turn.end.error else ""
    return f"\n*The turn ended: {_collapse_whitespace(turn.end.why)}{error}*\n"


def _format_block(text: str) -> str:
    return f"\n{text.strip(chr(10))}\n"


def _collapse_whitespace(text: str) -> str:
    return " ".join(text.split())


def _format_inline_code(text: object) -> str:
    return f"`{_collapse_whitespace(str(text)).replace('`', chr(39))}`"


def _find_longest_run(text: str) -> int:
    """Return the length of the longest run of backticks. In parts: there may be millions of runs."""
    longest = current = 0
    for start in range(0, len(text), _PART_CHARACTERS):
        part = text[start : start + _PART_CHARACTERS]
        rest = part.lstrip("`")
        current += len(part) - len(rest)
        longest = max(longest, current, *map(len, re.findall("`+", rest)))
        if rest:
            current = len(rest) - len(rest.rstrip("`"))
    return longest


def format_code_fence(text: str, language: str = "") -> str:
    """Return untrusted text in a fence longer than any inside it, so that the text cannot close the fence."""
    fence = "`" * max(3, _find_longest_run(text) + 1)
    return f"\n{fence}{language}\n{text}\n{fence}\n"
