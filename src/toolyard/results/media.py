"""Storage of media that are not passed to a model: files, and images and sounds over the size limit."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from hashlib import sha256

from toolyard.results.content_blocks import ParsedBlock, decode_base64
from toolyard.results.full_text import ParsedResult
from toolyard.results.result_store import ResultStore, StoredResult, make_handle
from toolyard.types.server import Trust
from toolyard.types.tool import ContentBlock, Media, ResultLimits

__all__ = ["store_media", "store_media_block"]

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
