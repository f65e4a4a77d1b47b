"""What no model can take as it is: files, and pictures and sounds that are too large."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from hashlib import sha256

from toolyard.results.content_blocks import ParsedBlock, decode_base64
from toolyard.results.full_text import ParsedResult
from toolyard.results.limits import ResultLimits
from toolyard.results.result_store import ResultStore, StoredResult, make_handle
from toolyard.types.result import ContentBlock, Media
from toolyard.types.server import Trust

__all__ = ["store_media", "store_media_block"]

_DIGEST_HEX_DIGITS = 16
"""Digits of a SHA-256 that tell a reader whether two are the same."""


async def store_media(
    parsed: ParsedResult, limits: ResultLimits, trust: Trust, server: str, result_store: ResultStore
) -> ParsedResult:
    """The view in which such media are kept, and the text says what they are and under which handle. They
    stay among the blocks, for pages and programs. Raises what the store raises."""
    if limits.characters >= ResultLimits.UNLIMITED_CHARACTERS or not any(
        _needs_separate_storage(block, limits) for block in parsed.blocks
    ):
        return parsed
    parts: list[ParsedBlock] = []
    for part in parsed.parts:
        media = part.block
        if isinstance(media, Media) and _needs_separate_storage(media, limits):
            found = await store_media_block(media, trust, server, result_store)
            part = ParsedBlock(found, str(found), part.warning)
        parts.append(part)
    return parsed.with_parts(parts)


async def store_media_block(media: Media, trust: Trust, server: str, result_store: ResultStore) -> Media:
    """Keep its bytes; the same with its handle. Raises what the store raises."""
    kept, found = await asyncio.to_thread(_build_stored_media, media, trust, server)
    await result_store.save(make_handle(kept), kept)
    return found


def _needs_separate_storage(block: ContentBlock, limits: ResultLimits) -> bool:
    return isinstance(block, Media) and (block.kind == "file" or block.size > limits.media)


def _build_stored_media(media: Media, trust: Trust, server: str) -> tuple[StoredResult, Media]:
    data = decode_base64(media.data)
    kept = StoredResult(data, trust, server, media.mime)
    return kept, replace(
        media, handle=make_handle(kept), digest=sha256(data).hexdigest()[:_DIGEST_HEX_DIGITS]
    )
