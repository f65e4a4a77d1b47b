"""Conversion of a server's raw result, or of the error of a failed call, into the result for a model.

Media that are not passed to a model are stored: files, and images and sounds over the size limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from hashlib import sha256
from typing import Any, ParamSpec, TypeVar, cast

from toolyard.errors import HttpStatus, RpcError, ServerError, ToolyardError, Unreachable
from toolyard.results.content_blocks import (
    NO_OUTPUT_TEXT,
    ParsedBlock,
    ParsedResult,
    decode_base64,
    parse_result,
)
from toolyard.results.json_size import is_large
from toolyard.results.readable_json import to_readable_json
from toolyard.results.redaction import redact_secrets
from toolyard.results.result_store import ResultStore, StoredResult, make_handle
from toolyard.results.schema_check import find_schema_mismatch
from toolyard.results.truncation import format_read_hint, truncate_middle
from toolyard.results.untrusted_text import fence_length, fence_untrusted_text
from toolyard.types.server import Trust
from toolyard.types.tool import ContentBlock, JsonObject, Media, Result, ResultLimits, TextBlock, TextResource

__all__ = [
    "UNREACHABLE_TEXT",
    "error_to_result",
    "format_error_details",
    "shape_and_store",
    "shape_result",
    "store_media",
    "store_media_block",
]


P = ParamSpec("P")
T = TypeVar("T")
_TRUSTED = Trust.TRUSTED
_NOT_ERROR_VALUES = (None, False)
_THREADED_REDACTION_CHARS = 100_000
"""Length from which the text of a failed call is redacted in a thread."""


def shape_result(
    raw: object,
    limits: ResultLimits,
    trust: Trust,
    *,
    server: str = "",
    output_schema: Mapping[str, Any] | None = None,
) -> Result:
    """Return the result of a call, raw and as text for a model. Never raises.

    Strings that look like secrets are redacted from the text of a failed call. Structured content that does
    not match ``output_schema`` results in a warning. Text over the limit is omitted from the model's text.
    """
    return _shape_plain_text(raw, limits, trust, output_schema) or _build_result(
        raw, _redact_or_validate(parse_result(raw), raw, output_schema), limits, trust, server, None
    )


async def shape_and_store(
    raw: object,
    limits: ResultLimits,
    trust: Trust,
    result_store: ResultStore,
    *,
    server: str = "",
    output_schema: Mapping[str, Any] | None = None,
    media: bool = False,
) -> Result:
    """Like ``shape_result``, but store a text over the limit, and set the handle of the result.

    With ``media``, files and large media are stored as well, see ``store_media``. Raise errors of the store.
    """
    plain = _shape_plain_text(raw, limits, trust, output_schema)
    if plain is not None:
        return plain
    # Large results are handled in a thread. The functions called there work in short steps, since a single
    # long call into C code would hold the GIL and block the event loop all the same.
    run = asyncio.to_thread if is_large(raw) else _run_directly
    view, handle = await run(parse_result, raw), None
    if media:
        view = await store_media(view, limits, trust, server, result_store)
    if view.is_error and len(view.text) > _THREADED_REDACTION_CHARS:
        run = asyncio.to_thread
    view = await run(_redact_or_validate, view, raw, output_schema)
    if len(view.text) > _max_text_chars(limits, trust, server):
        stored = StoredResult(view.text, trust, server)
        handle = await run(make_handle, stored)
        await result_store.save(handle, stored)
    return await run(_build_result, raw, view, limits, trust, server, handle)


async def _run_directly(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    return function(*arguments, **options)


def _shape_plain_text(
    raw: object, limits: ResultLimits, trust: Trust, output_schema: Mapping[str, Any] | None
) -> Result | None:
    """Return the result if it is one block of trusted text within the limit, None otherwise.

    A fast path, because most results are of this form.
    """
    if trust is not _TRUSTED or output_schema is not None:
        return None
    text = _extract_single_text(raw)
    if text is None or not 0 < len(text) <= limits.characters:
        return None
    return Result(raw, text, blocks=(TextBlock(text),))


def _build_result(
    raw: object, parsed: ParsedResult, limits: ResultLimits, trust: Trust, server: str, handle: str | None
) -> Result:
    max_chars = _max_text_chars(limits, trust, server)
    text = truncate_middle(parsed.text, max_chars, format_read_hint(handle))
    if not text:
        text = NO_OUTPUT_TEXT
    elif trust is not _TRUSTED:
        text = fence_untrusted_text(text, server)
    truncated = len(parsed.text) > max_chars
    return Result(raw, text, parsed.is_error, parsed.blocks, parsed.warnings, truncated, handle)


def _max_text_chars(limits: ResultLimits, trust: Trust, server: str) -> int:
    return limits.characters if trust is _TRUSTED else limits.characters - fence_length(server)


def _redact_or_validate(
    parsed: ParsedResult, raw: object, output_schema: Mapping[str, Any] | None
) -> ParsedResult:
    if parsed.is_error:
        return _redact_parsed_result(parsed)
    warning = _check_output_schema(raw, output_schema) if output_schema is not None else None
    return parsed if warning is None else parsed._replace(warnings=(*parsed.warnings, warning))


def _redact_parsed_result(parsed: ParsedResult) -> ParsedResult:
    # Cached, since the whole text and the text of a single block are usually the same.
    redact = cache(redact_secrets)
    blocks = (
        replace(block, text=redact(block.text)) if isinstance(block, TextBlock | TextResource) else block
        for block in parsed.blocks
    )
    return parsed._replace(text=redact(parsed.text), blocks=tuple(blocks))


def _check_output_schema(raw: object, output_schema: Mapping[str, Any]) -> str | None:
    structured = cast(JsonObject, raw).get("structuredContent") if isinstance(raw, dict) else None
    if structured is None:
        return "the tool has an output schema, but the result has no structuredContent"
    mismatch = find_schema_mismatch(structured, output_schema)
    return None if mismatch is None else f"structuredContent does not match the output schema: {mismatch}"


def _extract_single_text(raw: object) -> str | None:
    if type(raw) is not dict:
        return None
    fields = cast(JsonObject, raw)
    content: object = fields.get("content")
    if type(content) is not list or len(blocks := cast(list[object], content)) != 1:
        return None
    block = blocks[0]
    if type(block) is not dict or fields.get("isError") not in _NOT_ERROR_VALUES:
        return None
    text_block = cast(JsonObject, block)
    text: object = text_block.get("text")
    return text if type(text) is str and text_block.get("type") == "text" else None


# Errors. A failed call does not end the model's turn.

UNREACHABLE_TEXT = "MCP server unreachable"


def error_to_result(
    error: ToolyardError, limits: ResultLimits, trust: Trust, *, secrets: Iterable[str] = ()
) -> Result:
    """Return the result for an error: its full text without secrets, within the limit.

    Errors of an untrusted server are fenced, since they may contain its text. If the server was unreachable,
    ``text`` is a fixed sentence and ``cause`` has the reason.
    """
    details = format_error_details(error)
    full_text = redact_secrets(f"{details}\nhint: {error.hint}" if error.hint else details, secrets)
    max_chars = limits.characters
    if trust is Trust.UNTRUSTED and isinstance(error, ServerError):
        max_chars -= fence_length(error.server)
        text = fence_untrusted_text(truncate_middle(full_text, max_chars, None), error.server)
    else:
        text = truncate_middle(full_text, max_chars, None)
    truncated = len(full_text) > max_chars
    if isinstance(error, Unreachable):
        return Result(None, UNREACHABLE_TEXT, is_error=True, truncated=truncated, cause=text)
    return Result(None, text, is_error=True, truncated=truncated)


def format_error_details(error: ToolyardError) -> str:
    """Return the cause of an error with all data that the server sent about it, without the hint."""
    return "\n".join(_iter_error_lines(error))


def _iter_error_lines(error: ToolyardError) -> Iterator[str]:
    yield error.cause
    if isinstance(error, RpcError) and error.data is not None:
        yield to_readable_json(error.data)
    if isinstance(error, HttpStatus):
        body = error.body.decode("utf-8", "replace").strip()
        # Some causes already quote the body.
        if body and body not in error.cause:
            yield body


# Media.

_DIGEST_HEX_DIGITS = 16
"""Number of SHA-256 digits shown, enough for a reader to compare two files."""


async def store_media(
    parsed: ParsedResult, limits: ResultLimits, trust: Trust, server: str, result_store: ResultStore
) -> ParsedResult:
    """Store files and large media, and describe them with their handles in the text.

    They stay among the blocks, for web pages and programs. Raise errors of the store.
    """
    if limits.characters >= ResultLimits.UNLIMITED_CHARACTERS or not any(
        _needs_separate_storage(block, limits) for block in parsed.blocks
    ):
        return parsed
    parts: list[ParsedBlock] = []
    for part in parsed.parts:
        media = part.block
        if isinstance(media, Media) and _needs_separate_storage(media, limits):
            stored = await store_media_block(media, trust, server, result_store)
            part = ParsedBlock(stored, str(stored), part.warning)
        parts.append(part)
    return parsed.with_parts(parts)


async def store_media_block(media: Media, trust: Trust, server: str, result_store: ResultStore) -> Media:
    """Store the bytes of a block and return the block with its handle. Raise errors of the store."""
    stored, media_with_handle = await asyncio.to_thread(_build_stored_media, media, trust, server)
    await result_store.save(make_handle(stored), stored)
    return media_with_handle


def _needs_separate_storage(block: ContentBlock, limits: ResultLimits) -> bool:
    return isinstance(block, Media) and (block.kind == "file" or block.size > limits.media_bytes)


def _build_stored_media(media: Media, trust: Trust, server: str) -> tuple[StoredResult, Media]:
    data = decode_base64(media.data)
    stored = StoredResult(data, trust, server, media.mime)
    return stored, replace(
        media, handle=make_handle(stored), digest=sha256(data).hexdigest()[:_DIGEST_HEX_DIGITS]
    )
