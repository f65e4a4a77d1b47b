"""What the lock of registry servers needs of a store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["PinEntry", "PinEntryStorage", "PinKey", "RegistryPinStorage"]


@dataclass(frozen=True, slots=True)
class PinKey:
    """Whose lock it is: a registry server's, for everyone, or that of one instance of it."""

    server_id: str
    instance_id: str = ""


@dataclass(frozen=True, slots=True)
class PinEntry:
    """One lock as it is kept. Revision 0: there is none yet."""

    revision: int = 0
    pins: bytes = b""
    """What was accepted."""
    seen: bytes | None = None
    """What was listed last, where that is something else."""
    saved_at: float = 0.0
    """When ``pins`` was stored, in seconds since the epoch; 0 where the storage does not keep it."""


class PinEntryStorage(Protocol):
    """Entries by their places, replaced by revision. Shared by every process that uses the storage."""

    async def revisions(self, pin_keys: Sequence[PinKey]) -> tuple[int, ...]:
        """How often each was written; 0 where there is none."""
        ...

    async def read(self, pin_keys: Sequence[PinKey]) -> tuple[PinEntry, ...]:
        """What each of them is."""
        ...

    async def save(self, pin_key: PinKey, entry: PinEntry, *, notify: bool = False) -> bool:
        """Replace the entry of this revision. ``tell``: all replicas hear of it. False: it is another one by
        now, or what it is of is gone."""
        ...


class RegistryPinStorage(PinEntryStorage, Protocol):
    """Locks by their places; shared by every replica, and gone with their server or instance."""

    async def seen(self, server_id: str) -> Sequence[bytes]:
        """What was listed of a server and is not what was accepted, wherever it was listed."""
        ...
