"""What a server asks for in the middle of a call, read from its request. Pure: nothing of it is believed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import orjson

from toolyard.agents.chat.sanitize import clean, fits_in_json
from toolyard.config.value_checks import host_in_ascii, url_fault
from toolyard.types.tool import JsonObject

__all__ = ["LONGEST_REQUEST", "Sampling", "elicitation"]

_MESSAGE = 10_000
_SCHEMA = 64_000
_URL = 4_000
LONGEST_REQUEST = 64_000
"""Characters of a request to a model that a person can still be shown before they allow it."""


def elicitation(params: JsonObject) -> dict[str, Any] | None:
    """The part of a QUESTION event that an elicitation makes; None for one that nobody could be shown."""
    told = clean(_text(params.get("message"))[:_MESSAGE])
    if params.get("mode", "form") == "url":
        url = _web_address(_text(params.get("url")))
        return None if url is None else {"kind": "url", "message": told, "url": url}
    schema = _object(params.get("requestedSchema"))
    if not schema or not fits_in_json(schema) or len(orjson.dumps(schema)) > _SCHEMA:
        return None
    return {"kind": "form", "message": told, "schema": schema}


@dataclass(frozen=True, slots=True)
class Sampling:
    """A request that a model answers: texts only, whatever was sent."""

    messages: tuple[tuple[bool, str], ...]
    """Each: whether it is the model's own, and its text."""
    system: str | None = None
    temperature: float | None = None

    @classmethod
    def of(cls, params: JsonObject) -> Sampling:
        """What can be used of a request."""
        warmth: object = params.get("temperature")
        usable = isinstance(warmth, int | float) and not isinstance(warmth, bool) and math.isfinite(warmth)
        return cls(
            tuple(_messages(params.get("messages"))),
            _text(params.get("systemPrompt")) or None,
            float(cast("float", warmth)) if usable else None,
        )

    @property
    def words(self) -> str:
        """The whole request as text, for the person who is asked to allow it: nothing of it is left out."""
        told = [f"{'model' if own else 'server'}: {text}" for own, text in self.messages]
        lines = [f"instructions: {self.system}", *told] if self.system else told
        return clean("\n\n".join(lines))


def _messages(given: object) -> Iterator[tuple[bool, str]]:
    for each in _list(given):
        message = _object(each)
        yield message.get("role") == "assistant", clean(_words(message.get("content")))


def _words(content: object) -> str:
    """The text of a message; what is no text is named."""
    if isinstance(content, list):
        return "\n".join(_words(each) for each in _list(cast("object", content)))
    held = _object(content)
    return _text(held.get("text")) or f"({_text(held.get('type'))[:40] or 'nothing'})"


def _web_address(url: str) -> str | None:
    """Return an address that everybody reads alike, with its host as browsers resolve it; None where there is
    none. Browsers take a backslash for a slash, a user name looks like a host, and letters of another
    alphabet look like Latin ones."""
    if len(url) > _URL or url_fault(url) is not None:
        return None
    parts = urlsplit(url)
    host = host_in_ascii(parts.hostname or "")
    if "@" in parts.netloc or host is None:
        return None
    if parts.netloc.isascii():
        return url
    return parts._replace(netloc=host if parts.port is None else f"{host}:{parts.port}").geturl()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _object(value: object) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
