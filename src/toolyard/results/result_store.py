"""Interface for storing long or binary results, their handles, and an implementation in memory."""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from toolyard.types.server import Trust

__all__ = ["MemoryResultStore", "ResultStore", "StoredResult", "make_handle", "pack_body", "unpack_body"]


_BYTES_MARKER = b"\xff"
"""A byte that never occurs in UTF-8; it distinguishes packed bytes from packed text."""


def pack_body(body: str | bytes, mime: str) -> bytes:
    """Return the body as bytes for storage. ``mime`` is ASCII, and stored only if the body is bytes."""
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    return _BYTES_MARKER.join((b"", mime.encode("ascii", "replace"), body))


def unpack_body(packed: bytes) -> tuple[str | bytes, str]:
    """Return the body and media type packed by ``pack_body``. Raise ValueError for other input."""
    if not packed.startswith(_BYTES_MARKER):
        return packed.decode("utf-8", "surrogatepass"), ""
    mime, mark, body = packed[1:].partition(_BYTES_MARKER)
    if not mark:
        raise ValueError("the stored bytes have no media type")
    return body, mime.decode("ascii")


_PIECE_CHARS = 1_000_000
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A complete text, or bytes with their media type.

    ``trust`` and ``server`` are stored as well, because parts of an untrusted server's result are fenced
    again when they are read.
    """

    body: str | bytes
    trust: Trust
    server: str = ""
    mime: str = ""
    """Media type of bytes; empty for text."""

    @property
    def text(self) -> str | None:
        """The text, decoded if the body is bytes; None if the bytes are not valid text."""
        if isinstance(self.body, str):
            return self.body
        try:
            text = self.body.decode("utf-8-sig")
        except UnicodeDecodeError:
            return None
        return None if _CONTROL_CHARACTERS.search(text) else text


class ResultStore(Protocol):
    """Store of one principal's results. Handles are not secret, so each principal has a store of its own."""

    async def save(self, handle: str, result: StoredResult) -> None:
        """Store a result. The same handle always belongs to the same text or bytes."""
        ...

    async def read(self, handle: str) -> StoredResult | None:
        """Return the result with a handle; None if there is none or it has expired."""
        ...

    async def has_any(self) -> bool:
        """Return True if the store has any result."""
        ...


def make_handle(result: StoredResult) -> str:
    """Return the handle of a result, a hash of its content.

    Equal results have equal handles, so that repeated calls give identical prompts, which providers can
    cache.
    """
    origin = "\0".join((result.trust.value, result.server, "")).encode("utf-8", "surrogatepass")
    digest = sha256(origin)
    if isinstance(result.body, bytes):
        digest.update(pack_body(result.body, result.mime))
    else:
        # In pieces: encoding a long text at once would hold the GIL for too long.
        for start in range(0, len(result.body), _PIECE_CHARS):
            digest.update(pack_body(result.body[start : start + _PIECE_CHARS], ""))
    return f"r{digest.hexdigest()[:20]}"


class MemoryResultStore:
    """Stores the newest results up to a total length of ``max_chars``, and always the newest one."""

    def __init__(self, max_chars: int = 32_000_000) -> None:
        self._max_chars = max_chars
        self._results: OrderedDict[str, StoredResult] = OrderedDict()
        self._total_chars = 0

    async def save(self, handle: str, result: StoredResult) -> None:
        """Store a result and remove the oldest ones if the limit is exceeded."""
        if handle in self._results:
            self._results.move_to_end(handle)
            return
        self._results[handle] = result
        self._total_chars += len(result.body)
        while self._total_chars > self._max_chars and len(self._results) > 1:
            _, oldest = self._results.popitem(last=False)
            self._total_chars -= len(oldest.body)

    async def read(self, handle: str) -> StoredResult | None:
        """Return the result with a handle; None if there is none or it was removed."""
        return self._results.get(handle)

    async def has_any(self) -> bool:
        """Return True if the store has any result."""
        return bool(self._results)
