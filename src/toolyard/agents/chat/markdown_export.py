"""A whole chat as Markdown, for people who keep it."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

import orjson

from toolyard.agents.chat.chats import Chats
from toolyard.types.chat import PIECES, Chat, Event, Kind

__all__ = ["WholeText", "file_name", "markdown"]

_PAGE = 200

WholeText: TypeAlias = Callable[[Event], Awaitable[str]]
"""The text of a RESULT event, to its end."""


def file_name(chat: Chat) -> str:
    """What to call the file: words of the title that every system can write."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", chat.title).strip("-").lower()[:60].rstrip("-")
    return f"{words or 'chat'}.md"


async def markdown(chats: Chats, chat: Chat, whole: WholeText | None = None) -> AsyncGenerator[str]:
    """All of a chat, part by part. ``whole`` for doors that keep more of a long result than the chat does."""
    began = datetime.fromtimestamp(chat.created_at, UTC)
    yield f"# {_line(chat.title) or 'Chat'}\n\n{began:%Y-%m-%d %H:%M} UTC\n"
    coming: dict[tuple[int, str], list[str]] = {}
    async for event in _events(chats, chat):
        if event.kind in PIECES:
            if event.kind is Kind.TEXT:
                coming.setdefault((event.turn, event.part), []).append(str(event.body.get("delta", "")))
            continue
        coming.pop((event.turn, event.part), None)
        yield await _written(chats, chat, event, whole)
    # What a turn that runs has said so far.
    for pieces in coming.values():
        yield _block("".join(pieces))


async def _events(chats: Chats, chat: Chat) -> AsyncIterator[Event]:
    """All of them, some at a time."""
    after = 0
    while page := await chats.events(chat.owner, chat.id, after=after, limit=_PAGE):
        for event in page:
            yield event
        after = page[-1].seq


async def _written(chats: Chats, chat: Chat, event: Event, whole: WholeText | None) -> str:
    if event.kind is not Kind.RESULT:
        return _WRITTEN.get(event.kind, _nothing)(event.body)
    if whole is not None:
        return _result(event.body, await whole(event))
    kept = await chats.result(chat.owner, chat.id, event.seq) if event.has_kept else None
    return _result(event.body, str(event.body.get("text", "")) if kept is None else kept.text)


# How each kind of event is written.

_Body = Mapping[str, Any]


def _user(body: _Body) -> str:
    return f"\n## You\n{_block(body['text'])}"


def _run(body: _Body) -> str:
    return f"\n## You ran {_code(body['name'])}\n"


def _said(body: _Body) -> str:
    thought = _block("> " + body["reasoning"].replace("\n", "\n> ")) if body.get("reasoning") else ""
    said = thought + (_block(body["text"]) if body.get("text") else "")
    return f"\n## {_line(str(body.get('model') or 'Model'))}\n{said}" if said else ""


def _call(body: _Body) -> str:
    arguments = body["arguments"]
    shown = (
        arguments
        if isinstance(arguments, str)
        else orjson.dumps(arguments, option=orjson.OPT_INDENT_2).decode()
    )
    where = f" ({_line(str(body['server']))})" if body.get("server") else ""
    return f"\n### {_code(body['name'])}{where}\n{_fenced(shown, 'json')}"


def _result(body: _Body, text: str) -> str:
    how = "Result" if body.get("ok") else "Error"
    media = "".join(
        f"- {each['kind']}, {_code(each['mime'])}, {each['size']:,} bytes\n"
        for each in body.get("media") or ()
    )
    cause = f"\n{_line(body['cause'])}\n" if body.get("cause") else ""
    return (
        f"\n{how}, after {body.get('seconds', 0):.1f} s:\n{cause}{_fenced(text)}{media and chr(10) + media}"
    )


def _answer(body: _Body) -> str:
    return "\nYou allowed it.\n" if body.get("yes") else "\nYou did not allow it.\n"


def _question(body: _Body) -> str:
    return f"\n{_line(str(body.get('server', '')))} asked:\n{_fenced(str(body.get('message', '')))}"


def _answered(body: _Body) -> str:
    return f"\nYou replied: {_line(str(body.get('action', '')))}.\n"


def _note(body: _Body) -> str:
    return f"\n*{_line(str(body.get('text', '')))}*\n"


def _end(body: _Body) -> str:
    if body.get("why") == "done":
        return ""
    error = f": {_line(str(body['error']))}" if body.get("error") else ""
    return f"\n*The turn ended: {_line(str(body.get('why', '')))}{error}*\n"


def _nothing(body: _Body) -> str:
    return ""


_WRITTEN = {
    Kind.USER: _user,
    Kind.RUN: _run,
    Kind.SAID: _said,
    Kind.CALL: _call,
    Kind.ANSWER: _answer,
    Kind.QUESTION: _question,
    Kind.ANSWERED: _answered,
    Kind.NOTE: _note,
    Kind.END: _end,
}


def _block(text: str) -> str:
    return f"\n{text.strip(chr(10))}\n"


def _line(text: str) -> str:
    return " ".join(text.split())


def _code(text: object) -> str:
    return f"`{_line(str(text)).replace('`', chr(39))}`"


def _fenced(text: str, language: str = "") -> str:
    """Text of others, in a fence that is longer than any inside it: it cannot end where it wants."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"\n{fence}{language}\n{text}\n{fence}\n"
