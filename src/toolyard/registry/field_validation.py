"""Validation of single text fields.

Each ``…_fault`` function returns the fault of a text, as the predicate of a sentence without the value
itself, or None if the text is valid.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from urllib.parse import urlsplit

from yarl import URL

from toolyard.config.value_checks import header_name_fault, url_fault
from toolyard.types.registry import TextRule

__all__ = [
    "TEXT_FAULTS",
    "client_credential_fault",
    "header_fault",
    "issuer_fault",
    "query_key_fault",
    "server_url_fault",
    "slug_fault",
    "value_fault",
]

_CONTROL_CHARACTERS = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_CONTROL_CHARACTER_PATTERN = re.compile(f"[{_CONTROL_CHARACTERS}\t\n]")
"""Characters that could manipulate a terminal, reverse the text direction, or cannot be stored."""
_MULTILINE_CONTROL_CHARACTER_PATTERN = re.compile(f"[{_CONTROL_CHARACTERS}]")
_PRINTABLE_ASCII_PATTERN = re.compile(r"[\x20-\x7e]+")
_SCOPE_TOKEN_PATTERN = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_SLUG_PATTERN = re.compile(r"[A-Za-z0-9-]{1,24}")

_RESERVED_HEADER_NAMES = (
    "accept accept-charset accept-encoding connection content-encoding content-length content-type date "
    "expect forwarded host keep-alive last-event-id te trailer transfer-encoding upgrade via"
)
_RESERVED_HEADERS = frozenset(_RESERVED_HEADER_NAMES.split())
"""Headers of the HTTP connection and of MCP, which users must not set."""
_RESERVED_HEADER_PREFIXES = ("mcp-", "proxy-", "sec-")


def server_url_fault(url: str) -> str | None:
    """Check the URL of a server, without contacting it."""
    fault = _label_fault(url, rule=TextRule.URL) or url_fault(url) or _url_parse_fault(url)
    if fault is not None:
        return fault
    return "must not contain a user name or password" if "@" in urlsplit(url).netloc else None


def _resource_fault(url: str) -> str | None:
    """Check a resource indicator of token requests (RFC 8707)."""
    fault = _label_fault(url, rule=TextRule.URL)
    if fault is not None:
        return fault
    try:
        parts = urlsplit(url)
    except ValueError:
        return "is not a valid URI"
    if not parts.scheme or not (parts.netloc or parts.path) or " " in url:
        return "is not an absolute URI"
    return "must not contain a fragment" if "#" in url else None


def issuer_fault(url: str) -> str | None:
    """Check the URL of an issuer (RFC 8414, section 2)."""
    return server_url_fault(url) or ("must not have a query" if "?" in url else None)


def header_fault(name: str) -> str | None:
    """Check the name of the header in which users send a value."""
    fault = _length_fault(name, TextRule.KEY) or header_name_fault(name)
    if fault is not None:
        return fault
    if name.lower() in _RESERVED_HEADERS or name.lower().startswith(_RESERVED_HEADER_PREFIXES):
        return "is reserved for the connection or the protocol"
    return None


def query_key_fault(name: str) -> str | None:
    """Check the name of the query parameter in which users send a value."""
    return _length_fault(name, TextRule.KEY) or (
        None
        if _PRINTABLE_ASCII_PATTERN.fullmatch(name) and " " not in name
        else "must be printable ASCII without spaces"
    )


def value_fault(value: str, *, in_header: bool) -> str | None:
    """Check the value that a user enters, such as an API key."""
    fault = _label_fault(value, rule=TextRule.VALUE)
    if fault is None and in_header and not _PRINTABLE_ASCII_PATTERN.fullmatch(value):
        fault = "contains characters that are not allowed in a header"
    return fault


def client_credential_fault(text: str) -> str | None:
    """Check a client id or secret."""
    return _length_fault(text, TextRule.CREDENTIAL) or (
        None if _PRINTABLE_ASCII_PATTERN.fullmatch(text) else "contains characters outside ASCII"
    )


def _scope_fault(scope: str) -> str | None:
    """Check a single scope (RFC 6749, section 3.3)."""
    return _length_fault(scope, TextRule.SCOPE) or (
        None if _SCOPE_TOKEN_PATTERN.fullmatch(scope) else "is not a valid scope"
    )


def _label_fault(text: str, *, rule: TextRule) -> str | None:
    """Check a text in one line that must not be blank, such as a name."""
    fault = _length_fault(text, rule) or (None if text.strip() else "must not be blank")
    return fault or _line_fault(text, rule=rule)


def _line_fault(
    text: str, *, rule: TextRule, forbidden: re.Pattern[str] = _CONTROL_CHARACTER_PATTERN
) -> str | None:
    """Check a text, which may be empty, and which has one line unless line breaks are not ``forbidden``."""
    has_control_characters = forbidden.search(text) is not None
    return _too_long_fault(text, rule) or ("contains control characters" if has_control_characters else None)


def slug_fault(slug: str) -> str | None:
    """Check a slug."""
    return None if _SLUG_PATTERN.fullmatch(slug) else "must be 1 to 24 letters (a-z), digits or hyphens"


def _length_fault(text: str, rule: TextRule) -> str | None:
    if not text:
        return "must not be empty"
    return _too_long_fault(text, rule)


def _too_long_fault(text: str, rule: TextRule) -> str | None:
    limit = rule.max_characters
    return f"has {len(text):,} characters, at most {limit:,} are allowed" if len(text) > limit else None


def _url_parse_fault(url: str) -> str | None:
    """Check that yarl, which parses the URL for the connection, accepts it, too."""
    try:
        return None if URL(url).host else "has no host"
    except ValueError:
        return "has an invalid host or port"


TEXT_FAULTS: dict[TextRule, Callable[[str], str | None]] = {
    TextRule.CREDENTIAL: client_credential_fault,
    TextRule.DESCRIPTION: partial(
        _line_fault, rule=TextRule.DESCRIPTION, forbidden=_MULTILINE_CONTROL_CHARACTER_PATTERN
    ),
    TextRule.MODEL_NAME: partial(_line_fault, rule=TextRule.MODEL_NAME),
    TextRule.ISSUER: issuer_fault,
    TextRule.NAME: partial(_label_fault, rule=TextRule.NAME),
    TextRule.PROVIDER_MODEL: partial(_line_fault, rule=TextRule.PROVIDER_MODEL),
    TextRule.RESOURCE: _resource_fault,
    TextRule.SCOPE: _scope_fault,
    TextRule.SLUG: slug_fault,
    TextRule.TOOL_NAME: partial(_label_fault, rule=TextRule.TOOL_NAME),
    TextRule.TOOL_PATTERN: partial(_label_fault, rule=TextRule.TOOL_PATTERN),
    TextRule.URL: server_url_fault,
    TextRule.USER_ID: partial(_line_fault, rule=TextRule.USER_ID),
    TextRule.VARIABLE: partial(_line_fault, rule=TextRule.VARIABLE),
}
"""Check of each rule. ``KEY`` and ``VALUE`` depend on the place in which a choice sends the value."""
