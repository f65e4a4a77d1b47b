"""Is the text of one field fit for its purpose? Each answer is what is wrong, without the value."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from yarl import URL

from toolyard.config.value_checks import header_name_fault, url_fault

__all__ = [
    "client_fault",
    "header_fault",
    "issuer_fault",
    "name_fault",
    "query_key_fault",
    "resource_fault",
    "scope_fault",
    "server_url_fault",
    "slug_fault",
    "text_fault",
    "tool_fault",
    "value_fault",
]

_NAME = 80
_URL = 2048
_VALUE = 8192
_KEY = 128
_TOOL = 256
_SCOPE = 256
_TEXT = 2000

_BREAKS = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_UNFIT = re.compile(f"[{_BREAKS}\t\n]")
"""What could rewrite the screen that shows it, turn the direction of a line, or cannot be stored."""
_UNFIT_IN_TEXT = re.compile(f"[{_BREAKS}]")
_ASCII = re.compile(r"[\x20-\x7e]+")
_SCOPE_TOKEN = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_SLUG = re.compile(r"[A-Za-z0-9-]{1,24}")

_OUR_HEADERS = (
    "accept accept-charset accept-encoding connection content-encoding content-length content-type date "
    "expect forwarded host keep-alive last-event-id te trailer transfer-encoding upgrade via"
)
_OURS = frozenset(_OUR_HEADERS.split())
"""Headers of the connection and of the protocol, which nobody else may set."""
_OUR_PREFIXES = ("mcp-", "proxy-", "sec-")


def name_fault(text: str) -> str | None:
    """What keeps a text from being the name of a server or an instance."""
    return _sized(text, _NAME) or _plain(text)


def text_fault(text: str) -> str | None:
    """What keeps a text from being a description; it may be empty and have several lines."""
    if len(text) > _TEXT:
        return _too_long(text, _TEXT)
    return "holds control characters" if _UNFIT_IN_TEXT.search(text) else None


def server_url_fault(url: str) -> str | None:
    """What keeps a text from being the address of a server. It is not asked whether one is there."""
    fault = _sized(url, _URL) or _plain(url) or url_fault(url) or _readable(url)
    if fault is not None:
        return fault
    return "holds a user name or password" if "@" in urlsplit(url).netloc else None


def resource_fault(url: str) -> str | None:
    """What keeps a text from naming a resource to ask tokens for (RFC 8707)."""
    fault = _sized(url, _URL) or _plain(url)
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
    fault = _sized(name, _KEY) or header_name_fault(name)
    if fault is not None:
        return fault
    if name.lower() in _OURS or name.lower().startswith(_OUR_PREFIXES):
        return "is a header of the connection or the protocol"
    return None


def query_key_fault(name: str) -> str | None:
    """What keeps a text from being the query parameter in which users send a value."""
    return _sized(name, _KEY) or (None if _ASCII.fullmatch(name) and " " not in name else "is no plain word")


def value_fault(value: str, *, in_header: bool) -> str | None:
    """What keeps a text from being the value that a user gives."""
    fault = _sized(value, _VALUE) or _plain(value)
    if fault is None and in_header and not _ASCII.fullmatch(value):
        fault = "holds characters that no header may have"
    return fault


def client_fault(text: str) -> str | None:
    """What keeps a text from being a client id or secret."""
    return _sized(text, _VALUE) or (None if _ASCII.fullmatch(text) else "holds characters outside ASCII")


def scope_fault(scope: str) -> str | None:
    """What keeps a text from being one scope (RFC 6749)."""
    return _sized(scope, _SCOPE) or (None if _SCOPE_TOKEN.fullmatch(scope) else "is no scope")


def tool_fault(name: str) -> str | None:
    """What keeps a text from being the name of a tool, or a glob of such."""
    return _sized(name, _TOOL) or _plain(name)


def slug_fault(slug: str) -> str | None:
    """What keeps a text from being a slug."""
    return None if _SLUG.fullmatch(slug) else "is not 1 to 24 of A-Z, a-z, 0-9 and -"


def _sized(text: str, most: int) -> str | None:
    if not text:
        return "must not be empty"
    return _too_long(text, most) if len(text) > most else None


def _too_long(text: str, most: int) -> str:
    return f"has {len(text):,} characters, at most {most:,} are allowed"


def _plain(text: str) -> str | None:
    if not text.strip():
        return "must not be blank"
    return "holds control characters" if _UNFIT.search(text) else None


def _readable(url: str) -> str | None:
    """Whether the library that will dial it reads it, too."""
    try:
        return None if URL(url).host else "names no host"
    except ValueError:
        return "has a host or port that cannot be read"
