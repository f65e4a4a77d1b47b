"""What a server asks for in the middle of a call, read from its request. Pure: nothing of it is believed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import orjson

from toolyard.agents.chat.sanitize import is_storable_json, sanitize_text
from toolyard.config.value_checks import normalize_host, url_fault
from toolyard.types.tool import JsonObject

__all__ = ["MAX_SAMPLING_REQUEST_CHARACTERS", "SamplingRequest", "parse_elicitation"]

_MAX_MESSAGE_CHARACTERS = 10_000
_MAX_SCHEMA_BYTES = 64_000
_MAX_URL_CHARACTERS = 4_000
MAX_SAMPLING_REQUEST_CHARACTERS = 64_000
"""Characters of a request to a model that a person can still be shown before they allow it."""


def parse_elicitation(params: JsonObject) -> dict[str, Any] | None:
    """The part of a QUESTION event that an elicitation makes; None for one that nobody could be shown."""
    told = sanitize_text(_text_or_empty(params.get("message"))[:_MAX_MESSAGE_CHARACTERS])
    if params.get("mode", "form") == "url":
        url = _normalize_web_url(_text_or_empty(params.get("url")))
        return None if url is None else {"kind": "url", "message": told, "url": url}
    schema = _object_or_empty(params.get("requestedSchema"))
    if not schema or not is_storable_json(schema) or len(orjson.dumps(schema)) > _MAX_SCHEMA_BYTES:
        return None
    return {"kind": "form", "message": told, "schema": schema}


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """A request that a model answers: texts only, whatever was sent."""

    messages: tuple[tuple[bool, str], ...]
    """Each: whether it is the model's own, and its text."""
    system_prompt: str | None = None
    temperature: float | None = None

    @classmethod
    def from_params(cls, params: JsonObject) -> SamplingRequest:
        """What can be used of a request."""
        warmth: object = params.get("temperature")
        usable = isinstance(warmth, int | float) and not isinstance(warmth, bool) and math.isfinite(warmth)
        return cls(
            tuple(_parse_messages(params.get("messages"))),
            _text_or_empty(params.get("systemPrompt")) or None,
            float(cast("float", warmth)) if usable else None,
        )

    @property
    def words(self) -> str:
        """The whole request as text, for the person who is asked to allow it: nothing of it is left out."""
        told = [f"{'model' if own else 'server'}: {text}" for own, text in self.messages]
        lines = [f"instructions: {self.system_prompt}", *told] if self.system_prompt else told
        return sanitize_text("\n\n".join(lines))


def _parse_messages(value: object) -> Iterator[tuple[bool, str]]:
    for each in _list_or_empty(value):
        message = _object_or_empty(each)
        yield message.get("role") == "assistant", sanitize_text(_read_content_text(message.get("content")))


def _read_content_text(content: object) -> str:
    """The text of a message; what is no text is named."""
    if isinstance(content, list):
        return "\n".join(_read_content_text(each) for each in _list_or_empty(cast("object", content)))
    held = _object_or_empty(content)
    return _text_or_empty(held.get("text")) or f"({_text_or_empty(held.get('type'))[:40] or 'nothing'})"


def _normalize_web_url(url: str) -> str | None:
    """Return an address that everybody reads alike, with its host as browsers resolve it; None where there is
    none. Browsers take a backslash for a slash, a user name looks like a host, and letters of another
    alphabet look like Latin ones."""
    if len(url) > _MAX_URL_CHARACTERS or url_fault(url) is not None:
        return None
    parts = urlsplit(url)
    host = normalize_host(parts.hostname or "")
    if "@" in parts.netloc or host is None:
        return None
    if parts.netloc.isascii():
        return url
    return parts._replace(netloc=host if parts.port is None else f"{host}:{parts.port}").geturl()


def _text_or_empty(value: object) -> str:
    return value if isinstance(value, str) else ""


def _object_or_empty(value: object) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _list_or_empty(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
