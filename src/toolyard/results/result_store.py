"""Stores of long or binary results: the interface, the handles, an implementation in memory, and the rules
shared by all persistent ones (separation by principal, expiry, and size limits).
"""

from __future__ import annotations

import asyncio
import re
import zlib
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from toolyard.types.account import Principal
from toolyard.types.server import Trust

__all__ = [
    "MemoryResultStore",
    "PrincipalResultStores",
    "ResultRow",
    "ResultStore",
    "Retention",
    "StoredResult",
    "make_handle",
    "pack_body",
    "parse_stored_result",
    "unpack_body",
]


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


# Persistent stores.


@dataclass(frozen=True, slots=True)
class Retention:
    """Limits on the age and size of stored results.

    A result expires ``max_age_seconds`` after it was last stored. If all results take more than
    ``max_total_bytes``, or those of one principal more than ``max_principal_bytes``, the oldest are deleted,
    but never the newest.
    """

    max_age_seconds: float = 86_400.0
    max_total_bytes: int = 256_000_000
    max_principal_bytes: int = 64_000_000


@dataclass(frozen=True, slots=True)
class ResultRow:
    """Stored form of a result. ``body`` is compressed, ``expires_at`` is in seconds since the epoch."""

    principal: str
    handle: str
    trust: str
    server: str
    expires_at: float
    body: bytes

    @property
    def size(self) -> int:
        return len(self.body)


def parse_stored_result(trust: str, server: str, body: bytes) -> StoredResult:
    """Return the result in a stored row. Raise ValueError if the row is invalid."""
    try:
        content, mime = unpack_body(zlib.decompress(body))
    except zlib.error as error:
        raise ValueError(f"the body is not compressed data: {error}") from None
    return StoredResult(content, Trust(trust), server, mime)


class PrincipalResultStores(ABC):
    """Base class of persistent result stores, one per principal.

    Results that cannot be stored persistently are kept in memory.
    """

    def __init__(self, retention: Retention, clock: Callable[[], float]) -> None:
        """``clock`` returns the time in seconds since the epoch."""
        self.retention = retention
        self.clock = clock
        self.memory_fallback: dict[str, MemoryResultStore] = {}
        """Results by principal that could not be stored."""

    def for_principal(self, principal: Principal) -> ResultStore:
        """Return the store of one principal."""
        return _PrincipalResultStore(self, principal.id)

    @abstractmethod
    async def put(self, row: ResultRow) -> bool:
        """Store a row as the newest, and delete expired rows and those beyond the limits of ``retention``.

        Return False if the storage cannot be used.
        """

    @abstractmethod
    async def find(self, principal: str, handle: str) -> StoredResult | None:
        """Return a stored result that has not expired, or None."""

    @abstractmethod
    async def has_stored(self, principal: str) -> bool:
        """Return True if a result is stored that has not expired."""


class _PrincipalResultStore:
    """``ResultStore`` of one principal."""

    def __init__(self, stores: PrincipalResultStores, principal: str) -> None:
        self._stores = stores
        self._principal = principal

    async def save(self, handle: str, result: StoredResult) -> None:
        row = await asyncio.to_thread(self._make_row, handle, result)
        if not await self._stores.put(row):
            # Memory is scarcer than disk space, so the fallback is much smaller.
            max_chars = self._stores.retention.max_principal_bytes // 16
            memory = self._stores.memory_fallback.setdefault(self._principal, MemoryResultStore(max_chars))
            await memory.save(handle, result)

    async def read(self, handle: str) -> StoredResult | None:
        stored = await self._stores.find(self._principal, handle)
        memory = self._stores.memory_fallback.get(self._principal)
        return stored if stored is not None or memory is None else await memory.read(handle)

    async def has_any(self) -> bool:
        in_memory = self._principal in self._stores.memory_fallback
        return in_memory or await self._stores.has_stored(self._principal)

    def _make_row(self, handle: str, result: StoredResult) -> ResultRow:
        # Level 1 is the fastest. Results live for a day at most, so time matters more than size.
        body = zlib.compress(pack_body(result.body, result.mime), 1)
        expires_at = self._stores.clock() + self._stores.retention.max_age_seconds
        return ResultRow(self._principal, handle, result.trust.value, result.server, expires_at, body)
