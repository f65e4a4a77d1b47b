"""From what a server sent to what a model gets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any, ParamSpec, TypeVar, cast

from toolyard.results.full_text import NO_OUTPUT, View, read
from toolyard.results.limits import Limits
from toolyard.results.media import keep_media
from toolyard.results.readable_json import is_large
from toolyard.results.redaction import redact
from toolyard.results.result_store import Handles, Kept, handle_of
from toolyard.results.schema_check import misfit
from toolyard.results.truncation import by_handle, shorten
from toolyard.results.untrusted_text import fence, fence_length
from toolyard.types.result import Resource, Result, Text
from toolyard.types.server import Trust
from toolyard.types.tool import JsonObject

__all__ = ["shape", "shape_and_keep"]

P = ParamSpec("P")
T = TypeVar("T")
_TRUSTED = Trust.TRUSTED
_NO_ERROR = (None, False)
_LONG = 100_000
"""Characters of a failed call's words from which on nobody else waits until they are without secrets."""


def shape(
    raw: object,
    limits: Limits,
    trust: Trust,
    *,
    server: str = "",
    secrets: Iterable[str] = (),
    promised: Mapping[str, Any] | None = None,
) -> Result:
    """The result of a call, in both views. Never raises, whatever the server sent.

    ``secrets`` are taken out of what a failed call says. ``promised`` is the tool's output schema: structured
    content that does not fit it is a warning. What is over the limit is lost to the model view.
    """
    return _quick(raw, limits, trust, promised) or _shape(
        raw, _checked(read(raw), raw, secrets, promised), limits, trust, server, None
    )


async def shape_and_keep(
    raw: object,
    limits: Limits,
    trust: Trust,
    handles: Handles,
    *,
    server: str = "",
    secrets: Iterable[str] = (),
    promised: Mapping[str, Any] | None = None,
    media: bool = False,
) -> Result:
    """As ``shape``, but a text over the limit is kept whole, and the result has its handle. With ``media``,
    for a model, so is what it cannot take in: see ``keep_media``.

    Raises what the store raises.
    """
    quick = _quick(raw, limits, trust, promised)
    if quick is not None:
        return quick
    # Other tasks run while a thread handles a large result: all that it calls is written in short steps.
    run = asyncio.to_thread if is_large(raw) else _at_once
    view, handle = await run(read, raw), None
    if media:
        view = await keep_media(view, limits, trust, server, handles)
    if view.is_error and len(view.text) > _LONG:
        run = asyncio.to_thread
    view = await run(_checked, view, raw, secrets, promised)
    if len(view.text) > _room(limits, trust, server):
        kept = Kept(view.text, trust, server)
        handle = await run(handle_of, kept)
        await handles.keep(handle, kept)
    return await run(_shape, raw, view, limits, trust, server, handle)


async def _at_once(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    return function(*arguments, **options)


def _quick(raw: object, limits: Limits, trust: Trust, promised: Mapping[str, Any] | None) -> Result | None:
    """The commonest of all results, one block of text that fits as it is; None for every other."""
    if trust is not _TRUSTED or promised is not None:
        return None
    text = _one_text(raw)
    if text is None or not 0 < len(text) <= limits.characters:
        return None
    return Result(raw, text, blocks=(Text(text),))


def _shape(raw: object, view: View, limits: Limits, trust: Trust, server: str, handle: str | None) -> Result:
    room = _room(limits, trust, server)
    text = shorten(view.text, room, by_handle(handle))
    if not text:
        text = NO_OUTPUT
    elif trust is not _TRUSTED:
        text = fence(text, server)
    truncated = len(view.text) > room
    return Result(raw, text, view.is_error, view.blocks, view.warnings, truncated, handle)


def _room(limits: Limits, trust: Trust, server: str) -> int:
    return limits.characters if trust is _TRUSTED else limits.characters - fence_length(server)


def _checked(view: View, raw: object, secrets: Iterable[str], promised: Mapping[str, Any] | None) -> View:
    if view.is_error:
        return _without_secrets(view, tuple(secrets))
    complaint = _complaint(raw, promised) if promised is not None else None
    return view if complaint is None else view._replace(warnings=(*view.warnings, complaint))


def _without_secrets(view: View, secrets: tuple[str, ...]) -> View:
    clean = cache(partial(redact, secrets=secrets))
    blocks = (
        replace(block, text=clean(block.text)) if isinstance(block, Text | Resource) else block
        for block in view.blocks
    )
    return view._replace(text=clean(view.text), blocks=tuple(blocks))


def _complaint(raw: object, promised: Mapping[str, Any]) -> str | None:
    structured = cast(JsonObject, raw).get("structuredContent") if isinstance(raw, dict) else None
    if structured is None:
        return "the tool has an output schema, but the result has no structuredContent"
    found = misfit(structured, promised)
    return None if found is None else f"structuredContent does not fit the output schema: {found}"


def _one_text(raw: object) -> str | None:
    if type(raw) is not dict:
        return None
    found = cast(JsonObject, raw)
    content: object = found.get("content")
    if type(content) is not list or len(blocks := cast(list[object], content)) != 1:
        return None
    block = blocks[0]
    if type(block) is not dict or found.get("isError") not in _NO_ERROR:
        return None
    only = cast(JsonObject, block)
    text: object = only.get("text")
    return text if type(text) is str and only.get("type") == "text" else None
