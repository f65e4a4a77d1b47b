"""Parsing of a raw result into content blocks and its full text, before limits and fences are applied.

Malformed blocks are shown as JSON instead of raising.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Literal, NamedTuple, cast

from toolyard.results.readable_json import to_readable_json
from toolyard.types.tool import ContentBlock, JsonObject, Media, ResourceLink, TextBlock, TextResource

__all__ = [
    "NO_OUTPUT_TEXT",
    "ParsedBlock",
    "ParsedResult",
    "decode_base64",
    "normalize_base64",
    "parse_block",
    "parse_result",
]


_STANDARD_ALPHABET = bytes.maketrans(b"-_", b"+/")
_SPACE = b" \t\n\r\f\v"
_PIECE_CHARS = 1_000_000
"""Number of characters handled in one call, so that other threads can run in between. Must be a multiple of
four, the number of base64 characters that encode three bytes."""


def normalize_base64(data: str) -> tuple[str, int] | None:
    """Return the data in standard base64, and its decoded size in bytes; None if it is invalid or empty.

    Also accepts data URLs, the URL-safe alphabet, white space and missing padding, which servers send in
    practice.
    """
    # Most data is standard base64 already, and is returned without a copy.
    size = _decoded_size(data)
    if size is None:
        if data.startswith("data:"):
            data = data[data.find(";base64,") + 8 :] if ";base64," in data else ""
        pieces = (data[start : start + _PIECE_CHARS] for start in range(0, len(data), _PIECE_CHARS))
        try:
            cleaned = b"".join(
                piece.encode("ascii").translate(_STANDARD_ALPHABET, _SPACE) for piece in pieces
            )
        except UnicodeEncodeError:
            return None
        cleaned = cleaned.rstrip(b"=")
        data = (cleaned + b"=" * (-len(cleaned) % 4)).decode("ascii")
        size = _decoded_size(data)
    return (data, size) if size else None


def _decoded_size(data: str) -> int | None:
    size = 0
    try:
        for start in range(0, len(data), _PIECE_CHARS):
            piece = data[start : start + _PIECE_CHARS]
            # Padding is valid only at the end of the data, not at the end of each piece.
            if piece.endswith("=") and start + _PIECE_CHARS < len(data):
                return None
            size += len(binascii.a2b_base64(piece, strict_mode=True))
    except ValueError:
        return None
    return size


def decode_base64(data: str) -> bytes:
    """Decode the output of ``normalize_base64``, in pieces."""
    pieces = (data[start : start + _PIECE_CHARS] for start in range(0, len(data), _PIECE_CHARS))
    return b"".join(map(binascii.a2b_base64, pieces))


MAX_SHOWN_BASE64_CHARS = 256
"""Maximum length of base64 that is shown in a text; longer data is replaced by its length."""

_MIME_TYPE_PATTERN = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}(?:[ ]?;[ -~]{1,100})?", re.ASCII)


class ParsedBlock(NamedTuple):
    """A block, its contribution to the result's text (None for media), and a warning if it is malformed."""

    block: ContentBlock
    text: str | None
    warning: str | None = None


def parse_block(block: object) -> ParsedBlock:
    """Parse one block of a result. Never raises."""
    if not isinstance(block, dict):
        return _make_malformed_block(block, "is not an object")
    fields = cast(JsonObject, block)
    kind = fields.get("type")
    parser = _PARSERS_BY_TYPE.get(kind) if isinstance(kind, str) else None
    return (
        _make_malformed_block(fields, f"has the unknown type {kind!r:.60}")
        if parser is None
        else parser(fields)
    )


def _parse_text(block: JsonObject) -> ParsedBlock:
    text = block.get("text")
    return (
        ParsedBlock(TextBlock(text), text)
        if isinstance(text, str)
        else _make_malformed_block(block, "is a text block without text")
    )


def _parse_media(block: JsonObject, kind: Literal["image", "audio"]) -> ParsedBlock:
    mime, data = _read_mime_type(block), block.get("data")
    if mime is None:
        return _make_malformed_block(block, f"is {kind} without a valid mimeType")
    cleaned = normalize_base64(data) if isinstance(data, str) else None
    if cleaned is None:
        return _make_malformed_block(block, f"is {kind} without valid base64 data")
    return ParsedBlock(Media(kind, mime, *cleaned), None)


def _parse_resource(block: JsonObject) -> ParsedBlock:
    inner = block.get("resource")
    if not isinstance(inner, dict):
        return _make_malformed_block(block, "is a resource without contents")
    contents = cast(JsonObject, inner)
    uri, mime, text = contents.get("uri"), _read_mime_type(contents), contents.get("text")
    if not isinstance(uri, str):
        return _make_malformed_block(block, "is a resource without a uri")
    if isinstance(text, str):
        return ParsedBlock(TextResource(uri, mime, text), _dump_block(block))
    blob = contents.get("blob")
    cleaned = normalize_base64(blob) if isinstance(blob, str) else None
    if cleaned is None:
        return _make_malformed_block(block, "is a resource with neither text nor valid base64")
    media = Media(_classify_mime_type(mime), mime or "application/octet-stream", *cleaned, uri=uri)
    return ParsedBlock(media, str(media))


def _parse_resource_link(block: JsonObject) -> ParsedBlock:
    uri, name = block.get("uri"), block.get("name")
    if not isinstance(uri, str):
        return _make_malformed_block(block, "is a resource link without a uri")
    link = ResourceLink(uri, name if isinstance(name, str) else uri, _read_mime_type(block))
    return ParsedBlock(link, _dump_block(block))


_PARSERS_BY_TYPE: dict[str, Callable[[JsonObject], ParsedBlock]] = {
    "text": _parse_text,
    "image": partial(_parse_media, kind="image"),
    "audio": partial(_parse_media, kind="audio"),
    "resource": _parse_resource,
    "resource_link": _parse_resource_link,
}


def _make_malformed_block(block: object, problem: str) -> ParsedBlock:
    text = _dump_block(block)
    return ParsedBlock(TextBlock(text), text, problem)


def _read_mime_type(fields: JsonObject) -> str | None:
    """Return the media type if it is valid. Providers refuse a whole request because of an invalid one."""
    mime = fields.get("mimeType")
    return mime if isinstance(mime, str) and _MIME_TYPE_PATTERN.fullmatch(mime) else None


def _classify_mime_type(mime: str | None) -> Literal["image", "audio", "file"]:
    family = (mime or "").partition("/")[0]
    return "image" if family == "image" else "audio" if family == "audio" else "file"


def _dump_block(block: object) -> str:
    """Return the block as JSON, with base64 replaced by its length."""
    return to_readable_json(_replace_base64(cast(JsonObject, block)) if isinstance(block, dict) else block)


def _replace_base64(block: JsonObject) -> JsonObject:
    return {key: _replace_base64_value(key, value) for key, value in block.items()}


def _replace_base64_value(key: str, value: object) -> object:
    if key == "resource" and isinstance(value, dict):
        return _replace_base64(cast(JsonObject, value))
    if (
        key in ("data", "blob")
        and isinstance(value, str)
        and len(value) > MAX_SHOWN_BASE64_CHARS
        and normalize_base64(value)
    ):
        return f"({len(value):,} characters of base64)"
    return value


NO_OUTPUT_TEXT = "(no output)"
MAX_BLOCKS = 1_000
"""Maximum number of blocks parsed one by one, since each costs time again wherever the result is shown."""


class ParsedResult(NamedTuple):
    """A parsed result. ``text`` is empty if the result has no content."""

    text: str
    is_error: bool
    blocks: tuple[ContentBlock, ...]
    warnings: tuple[str, ...]
    parts: tuple[ParsedBlock, ...] = ()

    def with_parts(self, parts: Sequence[ParsedBlock]) -> ParsedResult:
        """Return a copy with other parts, and the blocks and text derived from them."""
        blocks = tuple(part.block for part in parts)
        return self._replace(text=_join_text(parts), blocks=blocks, parts=tuple(parts))


def parse_result(raw: object) -> ParsedResult:
    """Parse a raw result. Never raises: invalid parts are shown as JSON and described in ``warnings``."""
    if not isinstance(raw, dict):
        text = to_readable_json(raw)
        return ParsedResult(text, False, (TextBlock(text),), ("the result is not an object",))
    fields = cast(JsonObject, raw)
    flag = fields.get("isError")
    flag_warnings = (
        () if flag is None or isinstance(flag, bool) else ("isError is not a boolean and counts as false",)
    )
    parts, content_warnings = _parse_parts(fields)
    block_warnings = (
        f"block {number} {part.warning}" for number, part in enumerate(parts, 1) if part.warning
    )
    warnings = (*flag_warnings, *content_warnings, *block_warnings)
    return ParsedResult("", flag is True, (), warnings).with_parts(parts)


def _parse_parts(raw: JsonObject) -> tuple[list[ParsedBlock], tuple[str, ...]]:
    content = raw.get("content")
    if content:
        if isinstance(content, list):
            return _parse_blocks(cast(list[object], content))
        text = to_readable_json(content)
        return [ParsedBlock(TextBlock(text), text)], ("content is not a list",)
    # Servers repeat structured content as text in ``content``, so it only counts where that is missing.
    structured: object = raw.get("structuredContent")
    if structured is None:
        return [], ()
    text = to_readable_json(structured)
    return [ParsedBlock(TextBlock(text), text)], ()


def _parse_blocks(content: list[object]) -> tuple[list[ParsedBlock], tuple[str, ...]]:
    """Parse the first ``MAX_BLOCKS`` blocks, and combine the others into one text of JSON."""
    parts = [parse_block(block) for block in content[:MAX_BLOCKS]]
    rest = content[MAX_BLOCKS:]
    if not rest:
        return parts, ()
    text = to_readable_json(rest)
    warning = f"content has {len(content):,} blocks; those after the first {MAX_BLOCKS:,} are shown as JSON"
    return [*parts, ParsedBlock(TextBlock(text), text)], (warning,)


def _join_text(parts: Iterable[ParsedBlock]) -> str:
    text = "\n".join(part.text for part in parts if part.text is not None)
    if text:
        return text
    # Media are passed beside the text. Mention them, for models that cannot process them.
    return "\n".join(str(part.block) for part in parts if isinstance(part.block, Media))
