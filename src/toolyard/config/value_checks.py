"""Are a URL, a header or an argument fit to be sent? Each answer is what is wrong, without the value."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

__all__ = [
    "HOST_WITH_PORT",
    "argument_fault",
    "header_name_fault",
    "header_value_fault",
    "mask_url_secrets",
    "mask_user_info",
    "normalize_host",
    "url_fault",
]

_INVALID_URL_CHARACTER = re.compile(r"[\x00-\x20\x7f\\]")
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_HTTP_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_URL_USER_INFO = re.compile(r"(?<=//)[^/?#]*@")
_TEXT_BEFORE_AT = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)?.*@", re.DOTALL)
_URL_HOST = re.compile(r"[^\s/?#@\\<>\"`{}|^]+")

HOST_WITH_PORT = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?")
"""A name or address with or without a port, in small letters, as a ``Host`` header has it."""


def url_fault(url: str) -> str | None:
    """What keeps a text from being an http(s) URL."""
    if _INVALID_URL_CHARACTER.search(url):
        return "holds a space, a backslash or a control character"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "has a host or port that cannot be read"
    if not parts.scheme or parts.scheme not in ("http", "https"):
        return "does not begin with http:// or https://"
    if not host or not _URL_HOST.fullmatch(host):
        return "names no host"
    return None


def normalize_host(host: str) -> str | None:
    """A host as browsers write it: small letters, IPv6 in brackets, other alphabets encoded; a port may stand
    after it. None where no browser would name it so."""
    bare = host.lower()
    if bare.count(":") > 1 and not bare.startswith("["):
        bare = f"[{bare}]"
    try:
        bare = bare if bare.isascii() else bare.encode("idna").decode()
    except UnicodeError:
        return None
    return bare if HOST_WITH_PORT.fullmatch(bare) else None


def header_name_fault(name: str) -> str | None:
    """What keeps a text from being the name of a header."""
    return None if _HTTP_TOKEN.fullmatch(name) else "is no valid header name"


def header_value_fault(value: str) -> str | None:
    """What keeps a text from being the value of a header."""
    if "\n" in value or "\r" in value:
        return "holds a line break"
    return "holds a control character" if _CONTROL_CHARACTER.search(value) else None


def argument_fault(text: str) -> str | None:
    """What keeps a text from being handed to a process."""
    return "holds a NUL character" if "\0" in text else None


def mask_user_info(url: str) -> str:
    """The URL without user and password, and with its true host in sight."""
    return _URL_USER_INFO.sub("***@", url)


def mask_url_secrets(url: str) -> str:
    """What may be shown of a text that should have been a URL: nothing before an ``@``, no query."""
    return _TEXT_BEFORE_AT.sub(r"\1***@", url.partition("?")[0])
