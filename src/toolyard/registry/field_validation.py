"""Is the text of one field fit for its purpose? Each answer is what is wrong, without the value."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from yarl import URL

from toolyard.config.value_checks import header_name_fault, url_fault

__all__ = [
    "client_credential_fault",
    "description_fault",
    "header_fault",
    "issuer_fault",
    "name_fault",
    "query_key_fault",
    "resource_fault",
    "scope_fault",
    "server_url_fault",
    "slug_fault",
    "tool_pattern_fault",
    "value_fault",
]

_MAX_NAME_CHARACTERS = 80
_MAX_URL_CHARACTERS = 2048
_MAX_VALUE_CHARACTERS = 8192
_MAX_KEY_CHARACTERS = 128
_MAX_TOOL_PATTERN_CHARACTERS = 256
_MAX_SCOPE_CHARACTERS = 256
_MAX_DESCRIPTION_CHARACTERS = 2000

_CONTROL_CHARACTERS = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_CONTROL_CHARACTER_PATTERN = re.compile(f"[{_CONTROL_CHARACTERS}\t\n]")
"""What could rewrite the screen that shows it, turn the direction of a line, or cannot be stored."""
_MULTILINE_CONTROL_CHARACTER_PATTERN = re.compile(f"[{_CONTROL_CHARACTERS}]")
_PRINTABLE_ASCII_PATTERN = re.compile(r"[\x20-\x7e]+")
_SCOPE_TOKEN_PATTERN = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_SLUG_PATTERN = re.compile(r"[A-Za-z0-9-]{1,24}")

_RESERVED_HEADER_NAMES = (
    "accept accept-charset accept-encoding connection content-encoding content-length content-type date "
    "expect forwarded host keep-alive last-event-id te trailer transfer-encoding upgrade via"
)
_RESERVED_HEADERS = frozenset(_RESERVED_HEADER_NAMES.split())
"""Headers of the connection and of the protocol, which nobody else may set."""
_RESERVED_HEADER_PREFIXES = ("mcp-", "proxy-", "sec-")


def name_fault(text: str) -> str | None:
    """What keeps a text from being the name of a server or an instance."""
    return _length_fault(text, _MAX_NAME_CHARACTERS) or _control_character_fault(text)


def description_fault(text: str) -> str | None:
    """What keeps a text from being a description; it may be empty and have several lines."""
    if len(text) > _MAX_DESCRIPTION_CHARACTERS:
        return _format_too_long(text, _MAX_DESCRIPTION_CHARACTERS)
    return "holds control characters" if _MULTILINE_CONTROL_CHARACTER_PATTERN.search(text) else None


def server_url_fault(url: str) -> str | None:
    """What keeps a text from being the address of a server. It is not asked whether one is there."""
    fault = (
        _length_fault(url, _MAX_URL_CHARACTERS)
        or _control_character_fault(url)
        or url_fault(url)
        or _url_parse_fault(url)
    )
    if fault is not None:
        return fault
    return "holds a user name or password" if "@" in urlsplit(url).netloc else None


def resource_fault(url: str) -> str | None:
    """What keeps a text from naming a resource to ask tokens for (RFC 8707)."""
    fault = _length_fault(url, _MAX_URL_CHARACTERS) or _control_character_fault(url)
    if fault is not None:
        return fault
    try:
        parts = urlsplit(url)
    except ValueError:
        return "is no URI"
    if not parts.scheme or not (parts.netloc or parts.path) or " " in url:
        return "is no absolute URI"
    return "holds a fragment" if "#" in url else None


def issuer_fault(url: str) -> str | None:
    """Return the reason why a text cannot be an issuer (RFC 8414, section 2), or None."""
    return server_url_fault(url) or ("must not have a query" if "?" in url else None)


def header_fault(name: str) -> str | None:
    """What keeps a text from being the header in which users send a value."""
    fault = _length_fault(name, _MAX_KEY_CHARACTERS) or header_name_fault(name)
    if fault is not None:
        return fault
    if name.lower() in _RESERVED_HEADERS or name.lower().startswith(_RESERVED_HEADER_PREFIXES):
        return "is a header of the connection or the protocol"
    return None


def query_key_fault(name: str) -> str | None:
    """What keeps a text from being the query parameter in which users send a value."""
    return _length_fault(name, _MAX_KEY_CHARACTERS) or (
        None if _PRINTABLE_ASCII_PATTERN.fullmatch(name) and " " not in name else "is no plain word"
    )


def value_fault(value: str, *, in_header: bool) -> str | None:
    """What keeps a text from being the value that a user gives."""
    fault = _length_fault(value, _MAX_VALUE_CHARACTERS) or _control_character_fault(value)
    if fault is None and in_header and not _PRINTABLE_ASCII_PATTERN.fullmatch(value):
        fault = "holds characters that no header may have"
    return fault


def client_credential_fault(text: str) -> str | None:
    """What keeps a text from being a client id or secret."""
    return _length_fault(text, _MAX_VALUE_CHARACTERS) or (
        None if _PRINTABLE_ASCII_PATTERN.fullmatch(text) else "holds characters outside ASCII"
    )


def scope_fault(scope: str) -> str | None:
    """What keeps a text from being one scope (RFC 6749)."""
    return _length_fault(scope, _MAX_SCOPE_CHARACTERS) or (
        None if _SCOPE_TOKEN_PATTERN.fullmatch(scope) else "is no scope"
    )


def tool_pattern_fault(name: str) -> str | None:
    """What keeps a text from being the name of a tool, or a glob of such."""
    return _length_fault(name, _MAX_TOOL_PATTERN_CHARACTERS) or _control_character_fault(name)


def slug_fault(slug: str) -> str | None:
    """What keeps a text from being a slug."""
    return None if _SLUG_PATTERN.fullmatch(slug) else "is not 1 to 24 of A-Z, a-z, 0-9 and -"


def _length_fault(text: str, max_characters: int) -> str | None:
    if not text:
        return "must not be empty"
    return _format_too_long(text, max_characters) if len(text) > max_characters else None


def _format_too_long(text: str, max_characters: int) -> str:
    return f"has {len(text):,} characters, at most {max_characters:,} are allowed"


def _control_character_fault(text: str) -> str | None:
    if not text.strip():
        return "must not be blank"
    return "holds control characters" if _CONTROL_CHARACTER_PATTERN.search(text) else None


def _url_parse_fault(url: str) -> str | None:
    """Whether the library that will dial it reads it, too."""
    try:
        return None if URL(url).host else "names no host"
    except ValueError:
        return "has a host or port that cannot be read"
