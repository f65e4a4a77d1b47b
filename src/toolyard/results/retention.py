"""The rules of every store of results, whatever it is made of: each principal's own, for some time, within
a size."""

from __future__ import annotations

import asyncio
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from toolyard.results.memory_store import MemoryResultStore
from toolyard.results.result_store import ResultStore, StoredResult, pack_body, unpack_body
from toolyard.types.principal import Principal
from toolyard.types.server import Trust

__all__ = [
    "PrincipalResultStores",
    "ResultRow",
    "ResultRows",
    "Retention",
    "parse_stored_result",
    "put_and_evict",
]


@dataclass(frozen=True, slots=True)
class Retention:
    """A result is kept for ``seconds`` after it was last put in. Where all together take more than ``most``
    bytes, or those of one principal more than ``share``, the oldest go; the newest always stays."""

    seconds: float = 86_400.0
    max_total_bytes: int = 256_000_000
    max_principal_bytes: int = 64_000_000


@dataclass(frozen=True, slots=True)
class ResultRow:
    """A result as it is stored; ``body`` is compressed."""

    principal: str
    handle: str
    trust: str
    server: str
    expires_at: float
    body: bytes

    @property
    def size(self) -> int:
        return len(self.body)


class ResultRows(Protocol):
    """What is stored, within one transaction."""

    def delete_expired(self, now: float) -> None:
        """Delete what is over."""
        ...

    def put(self, row: ResultRow) -> None:
        """Store it as the newest, in place of an earlier one of that principal and handle."""
        ...

    def sum_bytes(self, principal: str | None) -> int:
        """The bytes of one principal's, or of all."""
        ...

    def list_oldest_first(self, principal: str | None) -> Sequence[tuple[str, str, int]]:
        """Principal, handle and size of one principal's, or of all."""
        ...

    def delete(self, principal: str, handle: str) -> None:
        """Delete it."""
        ...


def put_and_evict(rows: ResultRows, row: ResultRow, retention: Retention, now: float) -> None:
    """Put a result in. What is over goes, and the oldest until the rest fits; never this one."""
    rows.delete_expired(now)
    rows.put(row)
    for whose, most in ((row.principal, retention.max_principal_bytes), (None, retention.max_total_bytes)):
        held = rows.sum_bytes(whose)
        for principal, handle, size in rows.list_oldest_first(whose) if held > most else ():
            if held <= most:
                break
            if (principal, handle) != (row.principal, row.handle):
                rows.delete(principal, handle)
                held -= size


def parse_stored_result(trust: str, server: str, body: bytes) -> StoredResult:
    """What a row holds. Raises ValueError or zlib.error for one that nobody put in."""
    found, mime = unpack_body(zlib.decompress(body))
    return StoredResult(found, Trust(trust), server, mime)


class PrincipalResultStores(ABC):
    """Gives each principal a store of their own. While the storage cannot be used, memory serves."""

    def __init__(self, retention: Retention, clock: Callable[[], float]) -> None:
        """``clock`` says what time it is, in seconds since the epoch."""
        self.bounds = retention
        self.clock = clock
        self._memory_fallback: dict[str, MemoryResultStore] = {}

    def for_principal(self, principal: Principal) -> ResultStore:
        """The store of one principal."""
        return _PrincipalResultStore(self, principal.id)

    async def save(self, principal: str, handle: str, result: StoredResult) -> None:
        """Put a result in."""
        row = await asyncio.to_thread(self._make_row, principal, handle, result)
        if not await self.put(row):
            room = self.bounds.max_principal_bytes // 16
            await self._memory_fallback.setdefault(principal, MemoryResultStore(room)).save(handle, result)

    async def read(self, principal: str, handle: str) -> StoredResult | None:
        """What this principal has under the handle."""
        found = await self.find(principal, handle)
        if found is not None:
            return found
        spare = self._memory_fallback.get(principal)
        return None if spare is None else await spare.read(handle)

    async def has_any(self, principal: str) -> bool:
        """Whether the principal has anything to read."""
        return principal in self._memory_fallback or await self.has_stored(principal)

    def _make_row(self, principal: str, handle: str, result: StoredResult) -> ResultRow:
        body = zlib.compress(pack_body(result.body, result.mime), 1)
        return ResultRow(
            principal, handle, result.trust.value, result.server, self.clock() + self.bounds.seconds, body
        )

    @abstractmethod
    async def put(self, row: ResultRow) -> bool:
        """Store it by ``put_within``; False where the storage cannot be used."""

    @abstractmethod
    async def find(self, principal: str, handle: str) -> StoredResult | None:
        """What is stored and not over."""

    @abstractmethod
    async def has_stored(self, principal: str) -> bool:
        """Whether anything is stored that is not over."""


class _PrincipalResultStore:
    """One principal's part."""

    def __init__(self, stores: PrincipalResultStores, principal: str) -> None:
        self._stores = stores
        self._principal = principal

    async def save(self, handle: str, result: StoredResult) -> None:
        await self._stores.save(self._principal, handle, result)

    async def read(self, handle: str) -> StoredResult | None:
        return await self._stores.read(self._principal, handle)

    async def has_any(self) -> bool:
        return await self._stores.has_any(self._principal)
