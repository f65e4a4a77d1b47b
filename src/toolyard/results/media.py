"""What no model can take as it is: files, and pictures and sounds that are too large."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from hashlib import sha256

from toolyard.results.base64_data import decode_base64
from toolyard.results.content_blocks import Part
from toolyard.results.full_text import View
from toolyard.results.limits import Limits
from toolyard.results.result_store import Handles, Kept, handle_of
from toolyard.types.result import Block, Media
from toolyard.types.server import Trust

__all__ = ["keep_media", "keep_one"]

_DIGEST = 16
"""Digits of a SHA-256 that tell a reader whether two are the same."""


async def keep_media(view: View, limits: Limits, trust: Trust, server: str, handles: Handles) -> View:
    """The view in which such media are kept, and the text says what they are and under which handle. They
    stay among the blocks, for pages and programs. Raises what the store raises."""
    if limits.characters >= Limits.WHOLE or not any(_is_apart(block, limits) for block in view.blocks):
        return view
    parts: list[Part] = []
    for part in view.parts:
        media = part.block
        if isinstance(media, Media) and _is_apart(media, limits):
            found = await keep_one(media, trust, server, handles)
            part = Part(found, str(found), part.warning)
        parts.append(part)
    return view.of(parts)


async def keep_one(media: Media, trust: Trust, server: str, handles: Handles) -> Media:
    """Keep its bytes; the same with its handle. Raises what the store raises."""
    kept, found = await asyncio.to_thread(_kept, media, trust, server)
    await handles.keep(handle_of(kept), kept)
    return found


def _is_apart(block: Block, limits: Limits) -> bool:
    return isinstance(block, Media) and (block.kind == "file" or block.size > limits.media)


def _kept(media: Media, trust: Trust, server: str) -> tuple[Kept, Media]:
    data = decode_base64(media.data)
    kept = Kept(data, trust, server, media.mime)
    return kept, replace(media, handle=handle_of(kept), digest=sha256(data).hexdigest()[:_DIGEST])
