"""Checks of URLs, headers and process arguments.

The ``*_fault`` functions return a description of the fault, or None. It completes a sentence about the value
("... contains a line break") and never includes the value, which may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from urllib.parse import unquote, urlsplit

__all__ = [
    "HOST_WITH_PORT",
    "argument_fault",
    "find_path_tokens",
    "header_name_fault",
    "header_value_fault",
    "mask_url_secrets",
    "mask_user_info",
    "normalize_host",
    "url_fault",
]

# Browsers treat a backslash in a URL as a slash and urlsplit does not, so the two could see different hosts.
_INVALID_URL_CHARACTER = re.compile(r"[\x00-\x20\x7f\\]")
# Tabs are allowed in header values (RFC 9110, section 5.5).
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_HTTP_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Everything up to the last "@" of the authority is user info, so that "//bank.example@evil.example" is
# masked.
_URL_USER_INFO = re.compile(r"(?<=//)[^/?#]*@")
_TEXT_BEFORE_AT = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)?.*@", re.DOTALL)
_URL_HOST = re.compile(r"[^\s/?#@\\<>\"`{}|^]+")

_PATH_SEGMENT = re.compile(r"(?<=/)[^/?#;]+")
_URL_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")
_TOKEN_CHARACTERS = re.compile(r"[A-Za-z0-9_~=-]+", re.ASCII)
_TOKEN_PUNCTUATION = re.compile(r"[_~=-]")
KNOWN_KEY = re.compile(r"(?:sk-|gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|AKIA|eyJ)[\w.-]{6,}")
"""A key that its first characters identify."""
_UUID_OR_COMMIT = re.compile(r"(?i)[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}|[0-9a-f]{40}")
_MIN_TOKEN_CHARACTERS = 20
"""Tokens of at least 20 letters of both cases and digits have more than 100 bits."""
_MIN_ONE_CASE_TOKEN_CHARACTERS = 32
_MIN_DISTINCT_CHARACTERS = 10
_MIN_CLASS_CHANGES = 0.35
"""Minimum proportion of neighbours of different classes. Random characters have about 0.6 with both cases and
0.4 to 0.5 with one; words in CamelCase have less than 0.3."""
_MIN_ONE_CASE_CLASS_CHANGES = 0.25

HOST_WITH_PORT = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?")
"""Host name or address with an optional port, in lower case, as in a ``Host`` header."""


def url_fault(url: str) -> str | None:
    """Return why a string is not a valid http(s) URL."""
    if _INVALID_URL_CHARACTER.search(url):
        return "contains a space, a backslash or a control character"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # reading the port raises ValueError if it is invalid
    except ValueError:
        return "has an invalid host or port"
    if not parts.scheme or parts.scheme not in ("http", "https"):
        return "does not begin with http:// or https://"
    if not host or not _URL_HOST.fullmatch(host):
        return "has no valid host"
    return None


def normalize_host(host: str) -> str | None:
    """Return a host, with an optional port, in the form that browsers send, or None if it is invalid.

    That form is lower case, with IPv6 addresses in brackets and international names encoded (IDNA).
    """
    bare = host.lower()
    if bare.count(":") > 1 and not bare.startswith("["):
        bare = f"[{bare}]"
    try:
        bare = bare if bare.isascii() else bare.encode("idna").decode()
    except UnicodeError:
        return None
    return bare if HOST_WITH_PORT.fullmatch(bare) else None


def header_name_fault(name: str) -> str | None:
    """Return why a string is not a valid header name."""
    return None if _HTTP_TOKEN.fullmatch(name) else "is not a valid header name"


def header_value_fault(value: str) -> str | None:
    """Return why a string is not a valid header value."""
    if "\n" in value or "\r" in value:
        return "contains a line break"
    return "contains a control character" if _CONTROL_CHARACTER.search(value) else None


def argument_fault(text: str) -> str | None:
    """Return why a string cannot be passed to a process, as an argument or environment value."""
    return "contains a NUL character" if "\0" in text else None


def mask_user_info(url: str) -> str:
    """Return the URL with user and password masked, so that its actual host is obvious."""
    return _URL_USER_INFO.sub("***@", url)


def mask_url_secrets(url: str) -> str:
    """Return the printable part of a possibly invalid URL: no text before an ``@``, no query, no token."""
    text = _TEXT_BEFORE_AT.sub(r"\1***@", url.partition("?")[0])
    for start, end in reversed([*find_path_tokens(text)]):
        text = f"{text[:start]}***{text[end:]}"
    return text


def find_path_tokens(url: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each segment of a URL's path that can only be a random token.

    UUIDs are not tokens: most are the ids of a workspace or a tenant, and RFC 9562 (section 8) says
    that they must not be secrets. Nor are commit ids, which also have a fixed number of hexadecimal digits.
    """
    authority = _URL_AUTHORITY.match(url)
    if authority is None:
        return
    end = min((found for mark in "?#" if (found := url.find(mark, authority.end())) >= 0), default=len(url))
    for segment in _PATH_SEGMENT.finditer(url, authority.end(), end):
        if _is_random_token(segment[0]):
            yield segment.span()


def _is_random_token(segment: str) -> bool:
    text = unquote(segment)
    if KNOWN_KEY.fullmatch(text):
        return True
    if _UUID_OR_COMMIT.fullmatch(text) or not _TOKEN_CHARACTERS.fullmatch(text):
        return False
    core = _TOKEN_PUNCTUATION.sub("", text)
    classes = [(each.isdigit(), each.isupper()) for each in core]
    one_case = len(set(classes)) == 2 and any(map(str.isdigit, core))
    if len(set(classes)) < 3 and not one_case:
        return False
    min_length = _MIN_ONE_CASE_TOKEN_CHARACTERS if one_case else _MIN_TOKEN_CHARACTERS
    min_changes = _MIN_ONE_CASE_CLASS_CHANGES if one_case else _MIN_CLASS_CHANGES
    changes = sum(one != other for one, other in pairwise(classes))
    return (
        len(core) >= min_length
        # More of it separates words.
        and len(text.rstrip("=")) - len(core) <= len(core) / 10
        and len(set(core)) >= _MIN_DISTINCT_CHARACTERS
        and changes >= min_changes * (len(core) - 1)
    )
