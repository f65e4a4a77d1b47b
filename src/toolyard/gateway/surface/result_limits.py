"""A result that is too much for a model: head, tail and a link to the whole, in place of megabytes.

What fits passes as it came. Texts together are bounded like any result, and so are the files, of which those
stay that fit; each picture and sound is bounded like any, and structured content by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from toolyard.gateway.caller_view import Offering
from toolyard.gateway.client_request import Request, as_object
from toolyard.gateway.surface.result_links import link, media_link, takes_links, where
from toolyard.gateway.surface.structured_truncation import says, shortened, weight
from toolyard.results.content_blocks import Part, read_block
from toolyard.results.limits import Limits
from toolyard.results.media import keep_one
from toolyard.results.readable_json import readable
from toolyard.results.result_store import Kept, handle_of
from toolyard.results.truncation import shorten
from toolyard.types.result import Media, Resource, Text
from toolyard.types.server import Server

__all__ = ["Fitting", "fits"]

_SEEN = ("image", "audio")


def fits(result: Mapping[str, Any], limits: Limits) -> bool:
    """Whether a result surely fits. Quick for the commonest, a short text."""
    content, structured = result.get("content"), result.get("structuredContent")
    if type(content) is not list:
        return True
    room = limits.characters
    for block in cast("list[Any]", content):
        found = as_object(block)
        if type(text := found.get("text")) is str and found.get("type") == "text":
            room -= len(text)
        elif (data := _seen(block)) is None:
            room -= weight(block, room)
        elif len(data) * 3 > limits.media * 4:
            return False
        if room < 0:
            return False
    return structured is None or weight(structured, limits.characters) <= limits.characters


def _seen(block: Any) -> str | None:
    """The base64 of a picture or a sound."""
    found = as_object(block)
    data = found.get("data")
    return data if found.get("type") in _SEEN and isinstance(data, str) else None


class Fitting:
    """Makes one result fit. What it leaves out is kept for the caller."""

    def __init__(self, offering: Offering, request: Request, server: Server, *, tool: bool) -> None:
        """``tool``: the client has ``result_read``."""
        self._handles = offering.parts.calls.handles(offering.principal)
        self._limits = offering.parts.calls.limits
        self._links = takes_links(request)
        self._name = str(request.params.get("name"))
        self._server = server
        self._tool = tool
        self._room = self._limits.characters
        """For files."""

    async def fit(self, result: Mapping[str, Any], *, promised: bool) -> dict[str, Any]:
        """The result within the limits. ``promised``: the tool has an output schema, so that its client waits
        for structured content; what cannot be shortened without breaking that promise stays whole. Raises
        what the store raises."""
        blocks = cast("list[Any]", result["content"])
        parts = [read_block(block) for block in blocks]
        text = "\n".join(part.text or "" for part in parts if isinstance(part.block, Text | Resource))
        handle = await self._keep(text) if len(text) > self._limits.characters else None
        made = {**result, "content": await self._content(blocks, parts, text, handle)}
        structured = result.get("structuredContent")
        if structured is None or weight(structured, self._limits.characters) <= self._limits.characters:
            return made
        if handle is not None and not says(text, structured):
            handle = None
        return await self._structured(made, structured, handle, promised)

    async def _content(
        self, blocks: Sequence[Any], parts: Sequence[Part], text: str, handle: str | None
    ) -> list[Any]:
        """The blocks, in their order; a long text stands where the first of its pieces did."""
        content: list[Any] = []
        told = False
        for block, part in zip(blocks, parts, strict=True):
            if isinstance(part.block, Media):
                content += await self._media(block, part.block)
            elif handle is None or not isinstance(part.block, Text | Resource):
                content.append(block)
            elif not told:
                told = True
                content += self._short(text, handle)
        return content

    def _short(self, text: str, handle: str) -> list[dict[str, Any]]:
        words = shorten(text, self._limits.characters, self._where(handle))
        return [_text(words), *self._link(handle, text)]

    async def _media(self, block: Any, media: Media) -> list[Any]:
        if _seen(block) is not None:
            fits = media.size <= self._limits.media
        elif fits := len(media.data) <= self._room:
            self._room -= len(media.data)
        if fits:
            return [block]
        kept = await keep_one(media, self._server.trust, self._server.id, self._handles)
        said = _text(kept.told(self._where(kept.handle or "")))
        return [said, media_link(kept, self._name)] if self._links else [said]

    async def _structured(
        self, made: dict[str, Any], structured: object, handle: str | None, promised: bool
    ) -> dict[str, Any]:
        """``handle`` is that of a text which says the same."""
        whole = readable(structured)
        told = self._where(handle or handle_of(self._kept(whole)))
        shorter = shortened(structured, self._limits.characters, told) if promised else None
        if promised and shorter is None:
            return made
        content = made["content"]
        if handle is None:
            kept = await self._keep(whole)
            what = "shortened" if promised else "left out"
            said = _text(f"[the structured content has {len(whole):,} characters and is {what}; {told}]")
            content = [*content, said, *self._link(kept, whole)]
        rest = {key: value for key, value in made.items() if key != "structuredContent"}
        found = {"structuredContent": shorter} if promised else {}
        return {**rest, "content": content, **found}

    async def _keep(self, text: str) -> str:
        kept = self._kept(text)
        handle = handle_of(kept)
        await self._handles.keep(handle, kept)
        return handle

    def _kept(self, text: str) -> Kept:
        return Kept(text, self._server.trust, self._server.id)

    def _where(self, handle: str) -> str:
        return where(handle, tool=self._tool)

    def _link(self, handle: str, text: str) -> list[dict[str, Any]]:
        if not self._links:
            return []
        return [link(handle, self._name, size=len(text.encode("utf-8", "replace")))]


def _text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}
