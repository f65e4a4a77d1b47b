"""The ``AuthProvider`` protocol, through which connections obtain credentials, and HTTP challenges."""

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
    """Status and WWW-Authenticate header of a response that demands credentials."""

    status: int
    header: str | None
    params: Mapping[str, str]


class AuthProvider(Protocol):
    """Source of the credentials of a server, sent as headers with every request."""

    async def headers(self) -> Mapping[str, str]:
        """Return the headers with the credentials, refreshed if they are about to expire."""
        ...

    async def challenged(self, challenge: Challenge) -> bool:
        """Handle a 401 or 403 response; return whether to retry once with new credentials."""
        ...


def get_challenge_header(headers: MultiMapping[str]) -> str | None:
    """Return the WWW-Authenticate header of a response.

    Several header lines, one for each scheme, are joined with commas, which means the same (RFC 9110).
    """
    return ", ".join(headers.getall("WWW-Authenticate", ())) or None


def parse_challenge(status: int, header: str | None) -> Challenge:
    """Parse a WWW-Authenticate header leniently: malformed parts are skipped."""
    params: dict[str, str] = {}
    for name, quoted, plain in _AUTH_PARAM_PATTERN.findall((header or "")[:8192]):
        params.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) if quoted else plain)
    return Challenge(status, header, params)
