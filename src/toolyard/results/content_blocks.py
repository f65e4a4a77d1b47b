"""A result's blocks, read one by one. What has the wrong shape is shown as it is, and never raises."""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from typing import Literal, NamedTuple, cast

from toolyard.results.readable_json import to_readable_json
from toolyard.types.result import ContentBlock, Media, ResourceLink, TextBlock, TextResource
from toolyard.types.tool import JsonObject

__all__ = ["ParsedBlock", "decode_base64", "normalize_base64", "parse_block"]


_STANDARD_ALPHABET = bytes.maketrans(b"-_", b"+/")
_SPACE = b" \t\n\r\f\v"
_PIECE = 1_000_000
"""Characters handled in one call, a multiple of four. Other threads run in between."""


def normalize_base64(data: str) -> tuple[str, int] | None:
    """The same bytes in standard base64, and how many there are; None where it is no base64 or empty."""
    size = _decoded_size(data)
    if size is None:
        if data.startswith("data:"):
            data = data[data.find(";base64,") + 8 :] if ";base64," in data else ""
        pieces = (data[start : start + _PIECE] for start in range(0, len(data), _PIECE))
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
        for start in range(0, len(data), _PIECE):
            piece = data[start : start + _PIECE]
            if piece.endswith("=") and start + _PIECE < len(data):
                return None
            size += len(binascii.a2b_base64(piece, strict_mode=True))
    except ValueError:
        return None
    return size


def decode_base64(data: str) -> bytes:
    """Decode what ``clean_base64`` returned, in pieces."""
    pieces = (data[start : start + _PIECE] for start in range(0, len(data), _PIECE))
    return b"".join(map(binascii.a2b_base64, pieces))


MAX_SHOWN_BASE64_CHARS = 256
"""Base64 longer than this tells a reader nothing, wherever it stands."""

_MIME_TYPE_PATTERN = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}(?:[ ]?;[ -~]{1,100})?", re.ASCII)


class ParsedBlock(NamedTuple):
    """A block, what it adds to the text (None: nothing), and what is wrong with it."""

    block: ContentBlock
    text: str | None
    warning: str | None = None


def parse_block(block: object) -> ParsedBlock:
    """Read one block of a result."""
    if not isinstance(block, dict):
        return _make_malformed_block(block, "is no object")
    found = cast(JsonObject, block)
    kind = found.get("type")
    reader = _PARSERS_BY_TYPE.get(kind) if isinstance(kind, str) else None
    return (
        _make_malformed_block(found, f"has the unknown type {kind!r:.60}")
        if reader is None
        else reader(found)
    )


def _parse_text(block: JsonObject) -> ParsedBlock:
    text = block.get("text")
    return (
        ParsedBlock(TextBlock(text), text)
        if isinstance(text, str)
        else _make_malformed_block(block, "is text without a text")
    )


def _parse_image(block: JsonObject) -> ParsedBlock:
    return _parse_media(block, "image")


def _parse_audio(block: JsonObject) -> ParsedBlock:
    return _parse_media(block, "audio")


def _parse_media(block: JsonObject, kind: Literal["image", "audio"]) -> ParsedBlock:
    mime, data = _read_mime_type(block), block.get("data")
    if mime is None:
        return _make_malformed_block(block, f"is {kind} without a proper mimeType")
    cleaned = normalize_base64(data) if isinstance(data, str) else None
    if cleaned is None:
        return _make_malformed_block(block, f"is {kind} whose data is no base64")
    return ParsedBlock(Media(kind, mime, *cleaned), None)


def _parse_resource(block: JsonObject) -> ParsedBlock:
    inner = block.get("resource")
    if not isinstance(inner, dict):
        return _make_malformed_block(block, "is a resource without its contents")
    contents = cast(JsonObject, inner)
    uri, mime, text = contents.get("uri"), _read_mime_type(contents), contents.get("text")
    if not isinstance(uri, str):
        return _make_malformed_block(block, "is a resource without a uri")
    if isinstance(text, str):
        return ParsedBlock(TextResource(uri, mime, text), _dump_block(block))
    blob = contents.get("blob")
    cleaned = normalize_base64(blob) if isinstance(blob, str) else None
    if cleaned is None:
        return _make_malformed_block(block, "is a resource with neither text nor base64")
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
    "image": _parse_image,
    "audio": _parse_audio,
    "resource": _parse_resource,
    "resource_link": _parse_resource_link,
}


def _make_malformed_block(block: object, problem: str) -> ParsedBlock:
    text = _dump_block(block)
    return ParsedBlock(TextBlock(text), text, problem)


def _read_mime_type(holder: JsonObject) -> str | None:
    """The media type, where it is one. Providers refuse a whole request over one that is not."""
    mime = holder.get("mimeType")
    return mime if isinstance(mime, str) and _MIME_TYPE_PATTERN.fullmatch(mime) else None


def _classify_mime_type(mime: str | None) -> Literal["image", "audio", "file"]:
    family = (mime or "").partition("/")[0]
    return "image" if family == "image" else "audio" if family == "audio" else "file"


def _dump_block(block: object) -> str:
    """The whole block as JSON, but for base64, which is told by its length."""
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
