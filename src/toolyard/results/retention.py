"""The rules of every store of results, whatever it is made of: each principal's own, for some time, within
a size."""

from __future__ import annotations

import asyncio
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from toolyard.results.memory_store import MemoryHandles
from toolyard.results.result_store import Handles, Kept
from toolyard.results.serialization import pack, unpack
from toolyard.types.principal import Principal
from toolyard.types.server import Trust

__all__ = ["Bounds", "Ledger", "Results", "Row", "kept_of", "put_within"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """A result is kept for ``seconds`` after it was last put in. Where all together take more than ``most``
    bytes, or those of one principal more than ``share``, the oldest go; the newest always stays."""

    seconds: float = 86_400.0
    most: int = 256_000_000
    share: int = 64_000_000


@dataclass(frozen=True, slots=True)
class Row:
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


class Ledger(Protocol):
    """What is stored, within one transaction."""

    def expire(self, now: float) -> None:
        """Delete what is over."""
        ...

    def put(self, row: Row) -> None:
        """Store it as the newest, in place of an earlier one of that principal and handle."""
        ...

    def held(self, principal: str | None) -> int:
        """The bytes of one principal's, or of all."""
        ...

    def oldest_first(self, principal: str | None) -> Sequence[tuple[str, str, int]]:
        """Principal, handle and size of one principal's, or of all."""
        ...

    def drop(self, principal: str, handle: str) -> None:
        """Delete it."""
        ...


def put_within(ledger: Ledger, row: Row, bounds: Bounds, now: float) -> None:
    """Put a result in. What is over goes, and the oldest until the rest fits; never this one."""
    ledger.expire(now)
    ledger.put(row)
    for whose, most in ((row.principal, bounds.share), (None, bounds.most)):
        held = ledger.held(whose)
        for principal, handle, size in ledger.oldest_first(whose) if held > most else ():
            if held <= most:
                break
            if (principal, handle) != (row.principal, row.handle):
                ledger.drop(principal, handle)
                held -= size


def kept_of(trust: str, server: str, body: bytes) -> Kept:
    """What a row holds. Raises ValueError or zlib.error for one that nobody put in."""
    found, mime = unpack(zlib.decompress(body))
    return Kept(found, Trust(trust), server, mime)


class Results(ABC):
    """Gives each principal a store of their own. While the storage cannot be used, memory serves."""

    def __init__(self, bounds: Bounds, clock: Callable[[], float]) -> None:
        """``clock`` says what time it is, in seconds since the epoch."""
        self.bounds = bounds
        self.clock = clock
        self._spare: dict[str, MemoryHandles] = {}

    def of(self, principal: Principal) -> Handles:
        """The store of one principal."""
        return _Own(self, principal.id)

    async def keep(self, principal: str, handle: str, kept: Kept) -> None:
        """Put a result in."""
        row = await asyncio.to_thread(self._row, principal, handle, kept)
        if not await self.put(row):
            room = self.bounds.share // 16
            await self._spare.setdefault(principal, MemoryHandles(room)).keep(handle, kept)

    async def read(self, principal: str, handle: str) -> Kept | None:
        """What this principal has under the handle."""
        found = await self.find(principal, handle)
        if found is not None:
            return found
        spare = self._spare.get(principal)
        return None if spare is None else await spare.read(handle)

    async def has_any(self, principal: str) -> bool:
        """Whether the principal has anything to read."""
        return principal in self._spare or await self.has_stored(principal)

    def _row(self, principal: str, handle: str, kept: Kept) -> Row:
        body = zlib.compress(pack(kept.body, kept.mime), 1)
        return Row(principal, handle, kept.trust.value, kept.server, self.clock() + self.bounds.seconds, body)

    @abstractmethod
    async def put(self, row: Row) -> bool:
        """Store it by ``put_within``; False where the storage cannot be used."""

    @abstractmethod
    async def find(self, principal: str, handle: str) -> Kept | None:
        """What is stored and not over."""

    @abstractmethod
    async def has_stored(self, principal: str) -> bool:
        """Whether anything is stored that is not over."""


class _Own:
    """One principal's part."""

    def __init__(self, results: Results, principal: str) -> None:
        self._results = results
        self._principal = principal

    async def keep(self, handle: str, kept: Kept) -> None:
        await self._results.keep(self._principal, handle, kept)

    async def read(self, handle: str) -> Kept | None:
        return await self._results.read(self._principal, handle)

    async def has_any(self) -> bool:
        return await self._results.has_any(self._principal)
