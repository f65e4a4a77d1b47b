"""A result's blocks, read one by one. What has the wrong shape is shown as it is, and never raises."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NamedTuple, cast

from toolyard.results.base64_data import clean_base64
from toolyard.results.readable_json import readable
from toolyard.types.result import Block, Media, Resource, ResourceLink, Text
from toolyard.types.tool import JsonObject

__all__ = ["Part", "read_block"]

TELLING = 256
"""Base64 longer than this tells a reader nothing, wherever it stands."""

_MIME = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}(?:[ ]?;[ -~]{1,100})?", re.ASCII)


class Part(NamedTuple):
    """A block, what it adds to the text (None: nothing), and what is wrong with it."""

    block: Block
    text: str | None
    warning: str | None = None


def read_block(block: object) -> Part:
    """Read one block of a result."""
    if not isinstance(block, dict):
        return _wrong(block, "is no object")
    found = cast(JsonObject, block)
    kind = found.get("type")
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    return _wrong(found, f"has the unknown type {kind!r:.60}") if reader is None else reader(found)


def _text(block: JsonObject) -> Part:
    text = block.get("text")
    return Part(Text(text), text) if isinstance(text, str) else _wrong(block, "is text without a text")


def _image(block: JsonObject) -> Part:
    return _media(block, "image")


def _audio(block: JsonObject) -> Part:
    return _media(block, "audio")


def _media(block: JsonObject, kind: Literal["image", "audio"]) -> Part:
    mime, data = _mime(block), block.get("data")
    if mime is None:
        return _wrong(block, f"is {kind} without a proper mimeType")
    cleaned = clean_base64(data) if isinstance(data, str) else None
    if cleaned is None:
        return _wrong(block, f"is {kind} whose data is no base64")
    return Part(Media(kind, mime, *cleaned), None)


def _resource(block: JsonObject) -> Part:
    inner = block.get("resource")
    if not isinstance(inner, dict):
        return _wrong(block, "is a resource without its contents")
    contents = cast(JsonObject, inner)
    uri, mime, text = contents.get("uri"), _mime(contents), contents.get("text")
    if not isinstance(uri, str):
        return _wrong(block, "is a resource without a uri")
    if isinstance(text, str):
        return Part(Resource(uri, mime, text), _shown(block))
    blob = contents.get("blob")
    cleaned = clean_base64(blob) if isinstance(blob, str) else None
    if cleaned is None:
        return _wrong(block, "is a resource with neither text nor base64")
    media = Media(_kind(mime), mime or "application/octet-stream", *cleaned, uri=uri)
    return Part(media, str(media))


def _resource_link(block: JsonObject) -> Part:
    uri, name = block.get("uri"), block.get("name")
    if not isinstance(uri, str):
        return _wrong(block, "is a resource link without a uri")
    link = ResourceLink(uri, name if isinstance(name, str) else uri, _mime(block))
    return Part(link, _shown(block))


_READERS: dict[str, Callable[[JsonObject], Part]] = {
    "text": _text,
    "image": _image,
    "audio": _audio,
    "resource": _resource,
    "resource_link": _resource_link,
}


def _wrong(block: object, what: str) -> Part:
    text = _shown(block)
    return Part(Text(text), text, what)


def _mime(holder: JsonObject) -> str | None:
    """The media type, where it is one. Providers refuse a whole request over one that is not."""
    mime = holder.get("mimeType")
    return mime if isinstance(mime, str) and _MIME.fullmatch(mime) else None


def _kind(mime: str | None) -> Literal["image", "audio", "file"]:
    family = (mime or "").partition("/")[0]
    return "image" if family == "image" else "audio" if family == "audio" else "file"


def _shown(block: object) -> str:
    """The whole block as JSON, but for base64, which is told by its length."""
    return readable(_without_base64(cast(JsonObject, block)) if isinstance(block, dict) else block)


def _without_base64(block: JsonObject) -> JsonObject:
    return {key: _told(key, value) for key, value in block.items()}


def _told(key: str, value: object) -> object:
    if key == "resource" and isinstance(value, dict):
        return _without_base64(cast(JsonObject, value))
    if key in ("data", "blob") and isinstance(value, str) and len(value) > TELLING and clean_base64(value):
        return f"({len(value):,} characters of base64)"
    return value
