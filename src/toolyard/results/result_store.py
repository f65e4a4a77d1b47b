"""Where results that were too long, or no text, are kept, and under which name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from toolyard.types.server import Trust

__all__ = ["ResultStore", "StoredResult", "make_handle", "pack_body", "unpack_body"]


_BYTES_MARKER = b"\xff"
"""Stands in no UTF-8: what begins with it is no packed text."""


def pack_body(body: str | bytes, mime: str) -> bytes:
    """The bytes. ``mime`` counts for bytes only, and has ASCII letters."""
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    return _BYTES_MARKER.join((b"", mime.encode("ascii", "replace"), body))


def unpack_body(packed: bytes) -> tuple[str | bytes, str]:
    """What was packed. Raises ValueError for what nobody packed."""
    if not packed.startswith(_BYTES_MARKER):
        return packed.decode("utf-8", "surrogatepass"), ""
    mime, mark, body = packed[1:].partition(_BYTES_MARKER)
    if not mark:
        raise ValueError("bytes without their media type")
    return body, mime.decode("ascii")


_PIECE = 1_000_000
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A whole text, or whole bytes with their media type; and what must be known to show a part of it: an
    untrusted server's is fenced again."""

    body: str | bytes
    trust: Trust
    server: str = ""
    mime: str = ""
    """Of bytes only."""

    @property
    def text(self) -> str | None:
        """The text, also where it came as bytes; None for what is no text."""
        if isinstance(self.body, str):
            return self.body
        try:
            text = self.body.decode("utf-8-sig")
        except UnicodeDecodeError:
            return None
        return None if _CONTROL_CHARACTERS.search(text) else text


class ResultStore(Protocol):
    """The store that shaping needs. It is made for one principal: a handle is no secret."""

    async def save(self, handle: str, result: StoredResult) -> None:
        """Keep it under a handle. The same handle always comes with the same text or bytes."""
        ...

    async def read(self, handle: str) -> StoredResult | None:
        """What is kept under the handle; None where nothing is, or no longer."""
        ...

    async def has_any(self) -> bool:
        """Whether anything can be read."""
        ...


def make_handle(result: StoredResult) -> str:
    """The handle that follows from what is kept, so that a repeated call reads the same in a prompt."""
    whose = "\0".join((result.trust.value, result.server, "")).encode("utf-8", "surrogatepass")
    digest = sha256(whose)
    if isinstance(result.body, bytes):
        digest.update(pack_body(result.body, result.mime))
    else:
        # In pieces: a thread that hashes a long text lets others run in between.
        for start in range(0, len(result.body), _PIECE):
            digest.update(pack_body(result.body[start : start + _PIECE], ""))
    return f"r{digest.hexdigest()[:20]}"
