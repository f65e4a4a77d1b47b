"""Shortening of results that are too long for a model: head, tail and a link to the full result.

Results within the limits are forwarded unchanged. Texts share one limit and files another; files that fit are
kept. Pictures, audio and structured content have limits of their own.

Stored results are resources, ``toolyard://results/{handle}``, in full or in parts. They are not listed: each
is named by its result, is useful in that conversation only, and would change every list. A URI that is not a
result of the caller is left to the servers, one of which may be another Toolyard. An invented handle
therefore gets the answer of any unknown URI.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from toolyard.gateway.caller_view import CallerView
from toolyard.gateway.incoming_request import ClientRequest
from toolyard.results.content_blocks import ParsedBlock, parse_block
from toolyard.results.json_size import estimate_characters, get_media_data
from toolyard.results.model_result import store_media_block
from toolyard.results.partial_read import read_range
from toolyard.results.readable_json import to_readable_json
from toolyard.results.result_store import StoredResult, make_handle
from toolyard.results.truncation import truncate_middle
from toolyard.types.json_values import object_or_empty
from toolyard.types.server import Server
from toolyard.types.tool import Media, Result, TextBlock, TextResource

__all__ = [
    "ResultLimiter",
    "describe_read",
    "is_text_equivalent",
    "make_media_link",
    "make_meta_tool_links",
    "make_result_link",
    "read_stored_result",
    "truncate_structured",
]


TEXT_MEDIA_TYPE = "text/plain"
_RESULT_URI = re.compile(
    r"toolyard://results/(?P<handle>r[0-9a-f]{20})"
    r"(?:\?offset=(?P<offset>[0-9]{1,12}))?(?:[?&]length=(?P<length>[0-9]{1,12}))?"
)
_MAX_READ_LENGTH = 8_000_000
"""Maximum characters or bytes of one answer. Longer content is read in parts."""
_NEXT_META_KEY, _TOTAL_META_KEY = "toolyard/next", "toolyard/total"


def describe_read(handle: str, *, has_result_read: bool) -> str:
    """Return how to read a stored result; ``has_result_read``: the client has the meta tool for it."""
    uri = _result_uri(handle)
    other = f', and so does result_read with handle "{handle}"' if has_result_read else ""
    return f"resources/read of {uri} reads all, of {uri}?offset=0&length=64000 a part{other}"


def make_result_link(
    handle: str, tool: str, mime: str = TEXT_MEDIA_TYPE, size: int | None = None
) -> dict[str, Any]:
    """Return the content block with the link; ``size`` in bytes."""
    found = {
        "type": "resource_link",
        "uri": _result_uri(handle),
        "name": f"result of {tool}",
        "mimeType": mime,
    }
    return found if size is None else {**found, "size": size}


def make_media_link(media: Media, tool: str) -> dict[str, Any]:
    """Return the link to stored media."""
    return make_result_link(media.handle or "", tool, media.mime, media.size)


def make_meta_tool_links(result: Result, request: ClientRequest) -> list[dict[str, Any]]:
    """Return the links to stored parts of a call through the meta tools."""
    if not request.supports_resource_links:
        return []
    name = str(object_or_empty(request.params.get("arguments")).get("name"))
    handle = object_or_empty(result.structured).get("handle")
    links = [make_result_link(handle, name)] if isinstance(handle, str) else []
    return [*links, *(make_media_link(each, name) for each in result.media if each.handle is not None)]


async def read_stored_result(uri: object, view: CallerView) -> dict[str, Any] | None:
    """Return the answer to ``resources/read``, or None if the URI is not a result of this caller."""
    found = _RESULT_URI.fullmatch(uri) if isinstance(uri, str) else None
    if found is None:
        return None
    kept = await view.gateway.call_path.result_store(view.principal).read(found["handle"])
    if kept is None or not view.gateway.call_path.is_in_token_scope(kept.server, view.caller):
        return None
    length = min(int(found["length"] or _MAX_READ_LENGTH), _MAX_READ_LENGTH)
    return {
        "contents": [
            {"uri": found[0], **_build_contents(found["handle"], kept, int(found["offset"] or 0), length)}
        ]
    }


def _build_contents(handle: str, kept: StoredResult, offset: int, length: int) -> dict[str, Any]:
    """Return the contents: text as text, marked if its server is untrusted, and bytes as a blob."""
    if isinstance(kept.body, str):
        part = read_range(kept, offset, length)
        found: dict[str, Any] = {"mimeType": TEXT_MEDIA_TYPE, "text": part.text}
        total, after = part.total, part.next_offset
    else:
        data = kept.body[offset : offset + length]
        found = {"mimeType": kept.mime, "blob": base64.b64encode(data).decode()}
        total = len(kept.body)
        after = offset + len(data) if offset + len(data) < total else None
    if after is not None:
        found["_meta"] = {
            _NEXT_META_KEY: f"{_result_uri(handle)}?offset={after}&length={length}",
            _TOTAL_META_KEY: total,
        }
    return found


def _result_uri(handle: str) -> str:
    return f"toolyard://results/{handle}"


_LONG_TEXT_CHARACTERS = 2_000
"""Minimum length of a string that is worth shortening."""
_MIN_TEXT_CHARACTERS = 1_000
_MAX_COMPARED_JSON_CHARACTERS = 250_000
"""Maximum length of a text that is compared as JSON: decoding a longer one could take seconds."""
_MAX_DEPTH = 64


def is_text_equivalent(text: str, value: object) -> bool:
    """Return whether a text has the same content as a structured value: its only string, or its JSON."""
    if isinstance(value, dict) and list(cast("dict[str, Any]", value).values()) == [text]:
        return True
    if len(text) > _MAX_COMPARED_JSON_CHARACTERS:
        return False
    try:
        return json.loads(text) == value
    except (ValueError, RecursionError):
        return False


def truncate_structured(value: object, max_characters: int, read_hint: str) -> object | None:
    """Return the same structure with long strings shortened, or None if the rest alone is too long.

    ``read_hint`` says how to read the full value.
    """
    longs = sum(1 for each in _collect_texts(value) if len(each) > _LONG_TEXT_CHARACTERS)
    share = max(_MIN_TEXT_CHARACTERS, max_characters // max(1, longs))
    made = _truncate_texts(value, share, read_hint, 0)
    return made if estimate_characters(made, 2 * max_characters) <= 2 * max_characters else None


def _collect_texts(value: object) -> list[str]:
    found: list[str] = []
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            found.append(each)
        elif isinstance(each, dict):
            waiting.extend(cast("dict[str, object]", each).values())
        elif isinstance(each, list):
            waiting.extend(cast("list[object]", each))
    return found


def _truncate_texts(value: object, share: int, where: str, depth: int) -> object:
    if isinstance(value, str):
        return truncate_middle(value, share, where) if len(value) > _LONG_TEXT_CHARACTERS else value
    if depth < _MAX_DEPTH and isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {key: _truncate_texts(each, share, where, depth + 1) for key, each in fields.items()}
    if depth < _MAX_DEPTH and isinstance(value, list):
        return [_truncate_texts(each, share, where, depth + 1) for each in cast("list[object]", value)]
    return value


class ResultLimiter:
    """Limits one result. Removed parts are stored for the caller."""

    def __init__(
        self, view: CallerView, request: ClientRequest, server: Server, *, has_result_read: bool
    ) -> None:
        """``has_result_read``: the client has the meta tool ``result_read``."""
        self._result_store = view.gateway.call_path.result_store(view.principal)
        self._limits = view.gateway.call_path.limits
        self._supports_links = request.supports_resource_links
        self._tool_name = str(request.params.get("name"))
        self._server = server
        self._has_result_read = has_result_read
        self._remaining_file_characters = self._limits.characters
        """Remaining characters for files."""

    async def limit(self, result: Mapping[str, Any], *, has_output_schema: bool) -> dict[str, Any]:
        """Return the result within the limits. Raises what the store raises.

        With ``has_output_schema`` the client expects structured content. It is sent in full if it cannot be
        shortened without violating the schema.
        """
        blocks = cast("list[Any]", result["content"])
        # In threads, because the result exceeds a limit and may have tens of megabytes.
        core, text = await asyncio.to_thread(_parse_content, blocks)
        handle = await self._store_text(text) if len(text) > self._limits.characters else None
        made = {**result, "content": await self._limit_content(blocks, core, text, handle)}
        structured = result.get("structuredContent")
        if (
            structured is None
            or estimate_characters(structured, self._limits.characters) <= self._limits.characters
        ):
            return made
        # The stored text can stand for the structured content only if both are the same value.
        if handle is not None and not await asyncio.to_thread(is_text_equivalent, text, structured):
            handle = None
        return await self._limit_structured_content(made, structured, handle, has_output_schema)

    async def _limit_content(
        self, blocks: Sequence[Any], core: Sequence[ParsedBlock], text: str, handle: str | None
    ) -> list[Any]:
        """Return the blocks in order; a shortened text replaces the first of its pieces."""
        content: list[Any] = []
        told = False
        for block, part in zip(blocks, core, strict=True):
            if isinstance(part.block, Media):
                content += await self._limit_media(block, part.block)
            elif handle is None or not isinstance(part.block, TextBlock | TextResource):
                content.append(block)
            elif not told:
                told = True
                content += self._truncate_text(text, handle)
        return content

    def _truncate_text(self, text: str, handle: str) -> list[dict[str, Any]]:
        words = truncate_middle(text, self._limits.characters, self._read_hint(handle))
        return [_make_text_block(words), *self._make_links(handle, text)]

    async def _limit_media(self, block: Any, media: Media) -> list[Any]:
        if get_media_data(block) is not None:
            fits = media.size <= self._limits.media_bytes
        elif fits := len(media.data) <= self._remaining_file_characters:
            self._remaining_file_characters -= len(media.data)
        if fits:
            return [block]
        kept = await store_media_block(media, self._server.trust, self._server.id, self._result_store)
        said = _make_text_block(kept.describe(self._read_hint(kept.handle or "")))
        return [said, make_media_link(kept, self._tool_name)] if self._supports_links else [said]

    async def _limit_structured_content(
        self, made: dict[str, Any], structured: object, handle: str | None, promised: bool
    ) -> dict[str, Any]:
        """Limit the structured content. ``handle`` belongs to a stored text with the same content."""
        whole = await asyncio.to_thread(to_readable_json, structured)
        if handle is None:
            # Only the handle is made here. The text is stored below, if the content could be shortened.
            told = self._read_hint(await asyncio.to_thread(make_handle, self._make_stored_result(whole)))
        else:
            told = self._read_hint(handle)
        shorter = (
            await asyncio.to_thread(truncate_structured, structured, self._limits.characters, told)
            if promised
            else None
        )
        if promised and shorter is None:
            return made
        content = made["content"]
        if handle is None:
            kept = await self._store_text(whole)
            what = "shortened" if promised else "left out"
            said = _make_text_block(
                f"[the structured content has {len(whole):,} characters and is {what}; {told}]"
            )
            content = [*content, said, *self._make_links(kept, whole)]
        rest = {key: value for key, value in made.items() if key != "structuredContent"}
        found = {"structuredContent": shorter} if promised else {}
        return {**rest, "content": content, **found}

    async def _store_text(self, text: str) -> str:
        kept = self._make_stored_result(text)
        handle = await asyncio.to_thread(make_handle, kept)
        await self._result_store.save(handle, kept)
        return handle

    def _make_stored_result(self, text: str) -> StoredResult:
        return StoredResult(text, self._server.trust, self._server.id)

    def _read_hint(self, handle: str) -> str:
        return describe_read(handle, has_result_read=self._has_result_read)

    def _make_links(self, handle: str, text: str) -> list[dict[str, Any]]:
        if not self._supports_links:
            return []
        return [make_result_link(handle, self._tool_name, size=len(text.encode("utf-8", "replace")))]


def _parse_content(blocks: Sequence[Any]) -> tuple[list[ParsedBlock], str]:
    """Return the parsed blocks, and the text of all of them."""
    parts = [parse_block(block) for block in blocks]
    texts = (part.text or "" for part in parts if isinstance(part.block, TextBlock | TextResource))
    return parts, "\n".join(texts)


def _make_text_block(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}
