"""Parse elicitation and sampling requests from servers. Pure: the input is untrusted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast
from urllib.parse import quote, urlsplit

import orjson

from toolyard.agents.chat.storable_values import is_storable_json, sanitize_text
from toolyard.auth.errors import AddressNotAllowed
from toolyard.config.value_checks import normalize_host, url_fault
from toolyard.results.json_size import estimate_characters
from toolyard.types.chat import Question
from toolyard.types.json_values import list_or_empty, object_or_empty, text_or_empty
from toolyard.types.server import HttpSpec, Server
from toolyard.types.tool import JsonObject
from toolyard.types.visible_text import hidden_or_space

__all__ = [
    "MAX_SAMPLING_REQUEST_CHARACTERS",
    "SamplingRequest",
    "is_private_page",
    "normalize_web_url",
    "parse_elicitation",
]

_LOCAL_NAME_SUFFIXES = (".local", ".internal", ".lan", ".home.arpa")
"""Names that end so, and names without a dot, belong to the local network."""
_MAX_MESSAGE_CHARACTERS = 10_000
_MAX_SCHEMA_BYTES = 64_000
_MAX_URL_CHARACTERS = 4_000
MAX_SAMPLING_REQUEST_CHARACTERS = 64_000
"""Maximum length of a sampling request that a user can review."""
_MAX_SAMPLING_PARAMS_CHARACTERS = 10_000_000
"""Pictures and sounds are not displayed, so a request may be longer than its text."""
_MAX_SAMPLING_TOKENS = 2**31


def parse_elicitation(params: JsonObject) -> Question | None:
    """Return the question of an elicitation; None if it cannot be displayed."""
    message = sanitize_text(text_or_empty(params.get("message"))[:_MAX_MESSAGE_CHARACTERS])
    if params.get("mode", "form") == "url":
        url = normalize_web_url(text_or_empty(params.get("url")))
        return None if url is None else Question(kind="url", message=message, url=url)
    schema = object_or_empty(params.get("requestedSchema"))
    # Counted first: to encode a schema of many megabytes takes long.
    if estimate_characters(schema, _MAX_SCHEMA_BYTES) > _MAX_SCHEMA_BYTES:
        return None
    if not schema or not is_storable_json(schema) or len(orjson.dumps(schema)) > _MAX_SCHEMA_BYTES:
        return None
    return Question(kind="form", message=message, schema=schema)


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """A sampling request reduced to text, whatever content the server sent."""

    messages: tuple[tuple[bool, str], ...]
    """Pairs of a flag, true for the model's own messages, and the text."""
    system_prompt: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    """Maximum length of the answer that the server requests; None if it names none."""

    @classmethod
    def from_params(cls, params: JsonObject) -> SamplingRequest:
        """Extract the supported parts of a request."""
        temperature, max_tokens = (_number_or_none(params.get(key)) for key in ("temperature", "maxTokens"))
        return cls(
            tuple(_parse_messages(params.get("messages"))),
            text_or_empty(params.get("systemPrompt")) or None,
            None if temperature is None else float(temperature),
            None if max_tokens is None else min(max(1, int(max_tokens)), _MAX_SAMPLING_TOKENS),
        )

    @staticmethod
    def is_too_long(params: JsonObject) -> bool:
        """Return whether the texts of a request are longer than a user can review.

        It is checked before the request is parsed, which takes long for many megabytes.
        """
        shown = [params.get("systemPrompt"), params.get("messages")]
        return estimate_characters(shown, _MAX_SAMPLING_PARAMS_CHARACTERS) > _MAX_SAMPLING_PARAMS_CHARACTERS

    @property
    def display_text(self) -> str:
        """The whole request as text, for the user's review; nothing is omitted."""
        message_lines = [f"{'model' if own else 'server'}: {text}" for own, text in self.messages]
        lines = (
            [f"instructions: {self.system_prompt}", *message_lines] if self.system_prompt else message_lines
        )
        return sanitize_text("\n\n".join(lines))


def _parse_messages(value: object) -> Iterator[tuple[bool, str]]:
    for each in list_or_empty(value):
        message = object_or_empty(each)
        yield message.get("role") == "assistant", sanitize_text(_read_content_text(message.get("content")))


def _read_content_text(content: object) -> str:
    """Return the text of a message; other content is replaced by its type in parentheses."""
    if isinstance(content, list):
        return "\n".join(map(_read_block_text, list_or_empty(cast("object", content))))
    return _read_block_text(content)


def _read_block_text(content: object) -> str:
    block = object_or_empty(content)
    return text_or_empty(block.get("text")) or f"({text_or_empty(block.get('type'))[:40] or 'nothing'})"


def normalize_web_url(url: str) -> str | None:
    """Return a URL that cannot be misread, with its host as browsers resolve it; None if it is not
    acceptable.

    Browsers treat a backslash as a slash, a user name can look like a host, and letters of other alphabets
    can look like Latin ones. Hidden characters, such as those that reverse the direction of a text, are
    percent-encoded, as browsers do before they send them.
    """
    if len(url) > _MAX_URL_CHARACTERS or url_fault(url) is not None or sanitize_text(url) != url:
        return None
    parts = urlsplit(url)
    host = normalize_host(parts.hostname or "")
    if "@" in parts.netloc or host is None:
        return None
    if not parts.netloc.isascii():
        netloc = host if parts.port is None else f"{host}:{parts.port}"
        url = parts._replace(netloc=netloc).geturl()
    return url if url.isascii() else hidden_or_space().sub(lambda match: quote(match[0]), url)


def is_private_page(server: Server | None, url: str) -> bool:
    """Return whether a remote server wants the user to open a page of the user's own network.

    Names are not resolved, but some are known to be those of local networks.
    """
    if server is None or not isinstance(server.transport, HttpSpec):
        return False
    from toolyard.auth.oauth_http import AddressPolicy, parse_http_url  # Imported late: loads yarl.

    try:
        page = parse_http_url(url, "the page")
        configured = parse_http_url(server.transport.url, "the server's URL")
    except AddressNotAllowed:
        return True
    policy = AddressPolicy(server.transport.url, server.private_addresses)
    is_foreign_name = _is_local_name(page.host or "") and not _is_local_name(configured.host or "")
    return policy.is_private_page(page) or (is_foreign_name and policy.is_guarded(page))


def _is_local_name(host: str) -> bool:
    host = host.rstrip(".").lower()
    return ":" not in host and ("." not in host or host.endswith(_LOCAL_NAME_SUFFIXES))


def _number_or_none(value: object) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:  # an integer that no float can represent
        return None
