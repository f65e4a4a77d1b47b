"""From what a server sent to what a model gets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any, ParamSpec, TypeVar, cast

from toolyard.results.full_text import NO_OUTPUT_TEXT, ParsedResult, parse_result
from toolyard.results.limits import ResultLimits
from toolyard.results.media import store_media
from toolyard.results.readable_json import is_large
from toolyard.results.redaction import redact_secrets
from toolyard.results.result_store import ResultStore, StoredResult, make_handle
from toolyard.results.schema_check import find_schema_mismatch
from toolyard.results.truncation import format_read_hint, truncate_middle
from toolyard.results.untrusted_text import fence_length, fence_untrusted_text
from toolyard.types.result import Result, TextBlock, TextResource
from toolyard.types.server import Trust
from toolyard.types.tool import JsonObject

__all__ = ["shape_and_store", "shape_result"]

P = ParamSpec("P")
T = TypeVar("T")
_TRUSTED = Trust.TRUSTED
_NOT_ERROR_VALUES = (None, False)
_THREADED_REDACTION_CHARS = 100_000
"""Characters of a failed call's words from which on nobody else waits until they are without secrets."""


def shape_result(
    raw: object,
    limits: ResultLimits,
    trust: Trust,
    *,
    server: str = "",
    secrets: Iterable[str] = (),
    output_schema: Mapping[str, Any] | None = None,
) -> Result:
    """The result of a call, in both views. Never raises, whatever the server sent.

    ``secrets`` are taken out of what a failed call says. ``promised`` is the tool's output schema: structured
    content that does not fit it is a warning. What is over the limit is lost to the model view.
    """
    return _shape_plain_text(raw, limits, trust, output_schema) or _build_result(
        raw, _redact_or_validate(parse_result(raw), raw, secrets, output_schema), limits, trust, server, None
    )


async def shape_and_store(
    raw: object,
    limits: ResultLimits,
    trust: Trust,
    result_store: ResultStore,
    *,
    server: str = "",
    secrets: Iterable[str] = (),
    output_schema: Mapping[str, Any] | None = None,
    media: bool = False,
) -> Result:
    """As ``shape``, but a text over the limit is kept whole, and the result has its handle. With ``media``,
    for a model, so is what it cannot take in: see ``keep_media``.

    Raises what the store raises.
    """
    quick = _shape_plain_text(raw, limits, trust, output_schema)
    if quick is not None:
        return quick
    # Other tasks run while a thread handles a large result: all that it calls is written in short steps.
    run = asyncio.to_thread if is_large(raw) else _at_once
    view, handle = await run(parse_result, raw), None
    if media:
        view = await store_media(view, limits, trust, server, result_store)
    if view.is_error and len(view.text) > _THREADED_REDACTION_CHARS:
        run = asyncio.to_thread
    view = await run(_redact_or_validate, view, raw, secrets, output_schema)
    if len(view.text) > _max_text_chars(limits, trust, server):
        kept = StoredResult(view.text, trust, server)
        handle = await run(make_handle, kept)
        await result_store.save(handle, kept)
    return await run(_build_result, raw, view, limits, trust, server, handle)


async def _at_once(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    return function(*arguments, **options)


def _shape_plain_text(
    raw: object, limits: ResultLimits, trust: Trust, output_schema: Mapping[str, Any] | None
) -> Result | None:
    """The commonest of all results, one block of text that fits as it is; None for every other."""
    if trust is not _TRUSTED or output_schema is not None:
        return None
    text = _extract_single_text(raw)
    if text is None or not 0 < len(text) <= limits.characters:
        return None
    return Result(raw, text, blocks=(TextBlock(text),))


def _build_result(
    raw: object, parsed: ParsedResult, limits: ResultLimits, trust: Trust, server: str, handle: str | None
) -> Result:
    room = _max_text_chars(limits, trust, server)
    text = truncate_middle(parsed.text, room, format_read_hint(handle))
    if not text:
        text = NO_OUTPUT_TEXT
    elif trust is not _TRUSTED:
        text = fence_untrusted_text(text, server)
    truncated = len(parsed.text) > room
    return Result(raw, text, parsed.is_error, parsed.blocks, parsed.warnings, truncated, handle)


def _max_text_chars(limits: ResultLimits, trust: Trust, server: str) -> int:
    return limits.characters if trust is _TRUSTED else limits.characters - fence_length(server)


def _redact_or_validate(
    parsed: ParsedResult, raw: object, secrets: Iterable[str], output_schema: Mapping[str, Any] | None
) -> ParsedResult:
    if parsed.is_error:
        return _redact_parsed_result(parsed, tuple(secrets))
    complaint = _check_output_schema(raw, output_schema) if output_schema is not None else None
    return parsed if complaint is None else parsed._replace(warnings=(*parsed.warnings, complaint))


def _redact_parsed_result(parsed: ParsedResult, secrets: tuple[str, ...]) -> ParsedResult:
    clean = cache(partial(redact_secrets, secrets=secrets))
    blocks = (
        replace(block, text=clean(block.text)) if isinstance(block, TextBlock | TextResource) else block
        for block in parsed.blocks
    )
    return parsed._replace(text=clean(parsed.text), blocks=tuple(blocks))


def _check_output_schema(raw: object, output_schema: Mapping[str, Any]) -> str | None:
    structured = cast(JsonObject, raw).get("structuredContent") if isinstance(raw, dict) else None
    if structured is None:
        return "the tool has an output schema, but the result has no structuredContent"
    found = find_schema_mismatch(structured, output_schema)
    return None if found is None else f"structuredContent does not fit the output schema: {found}"


def _extract_single_text(raw: object) -> str | None:
    if type(raw) is not dict:
        return None
    found = cast(JsonObject, raw)
    content: object = found.get("content")
    if type(content) is not list or len(blocks := cast(list[object], content)) != 1:
        return None
    block = blocks[0]
    if type(block) is not dict or found.get("isError") not in _NOT_ERROR_VALUES:
        return None
    only = cast(JsonObject, block)
    text: object = only.get("text")
    return text if type(text) is str and only.get("type") == "text" else None
