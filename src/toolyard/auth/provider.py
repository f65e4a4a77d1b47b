"""What a connection needs of whoever holds the credentials of a server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from multidict import MultiMapping

__all__ = ["AuthProvider", "Challenge", "get_challenge_header", "parse_challenge"]

_AUTH_PARAM_PATTERN = re.compile(
    r'(?<![A-Za-z0-9_-])([A-Za-z0-9_-]++)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,]+))'
)


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a server said when it wanted credentials: the status and its WWW-Authenticate header."""

    status: int
    header: str | None
    params: Mapping[str, str]


class AuthProvider(Protocol):
    """Gives the headers of every request, and is told when a server does not accept them."""

    async def headers(self) -> Mapping[str, str]:
        """Headers that prove who we are, refreshed where they were about to run out."""
        ...

    async def challenged(self, challenge: Challenge) -> bool:
        """The server answered 401 or 403. True: new credentials are there, try once more."""
        ...


def get_challenge_header(headers: MultiMapping[str]) -> str | None:
    """The WWW-Authenticate header of an answer. It may come as several, one for each scheme, which mean the
    same as one with commas."""
    return ", ".join(headers.getall("WWW-Authenticate", ())) or None


def parse_challenge(status: int, header: str | None) -> Challenge:
    """Read a WWW-Authenticate header as far as it can be read."""
    params: dict[str, str] = {}
    for name, quoted, plain in _AUTH_PARAM_PATTERN.findall((header or "")[:8192]):
        params.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) if quoted else plain)
    return Challenge(status, header, params)
