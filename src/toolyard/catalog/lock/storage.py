"""Storage interface of the locks: entries with revisions, replaced by optimistic locking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["PinEntry", "PinEntryStorage", "PinKey", "RegistryPinStorage"]


@dataclass(frozen=True, slots=True)
class PinKey:
    """Key of a lock: that of a server, or with ``instance_id`` that of one instance of it.

    For first-use pins of configured servers, ``instance_id`` is a hash of the server's address or command.
    """

    server_id: str
    instance_id: str = ""


@dataclass(frozen=True, slots=True)
class PinEntry:
    """Stored form of a lock. Revision 0 means that there is none yet."""

    revision: int = 0
    pins: bytes = b""
    """Accepted definitions, packed by ``pack_pins``."""
    seen: bytes | None = None
    """Definitions of the last listing, if they differ from the accepted ones."""
    saved_at: float = 0.0
    """Time at which ``pins`` was stored, in seconds since the epoch; 0 if the storage does not record it."""


class PinEntryStorage(Protocol):
    """Storage of lock entries by key, shared by all processes that use it."""

    async def revisions(self, pin_keys: Sequence[PinKey]) -> tuple[int, ...]:
        """Return the revision of each entry, 0 if there is none."""
        ...

    async def read(self, pin_keys: Sequence[PinKey]) -> tuple[PinEntry, ...]:
        """Return the entry of each key, an empty one if there is none."""
        ...

    async def save(self, pin_key: PinKey, entry: PinEntry, *, notify: bool = False) -> bool:
        """Replace the entry if it still has ``entry.revision``; the new revision is one higher.

        Return False if the revision changed in the meantime, or if the server or instance was deleted.
        ``notify`` announces the change to all replicas.
        """
        ...


class RegistryPinStorage(PinEntryStorage, Protocol):
    """Storage of registry locks, shared by all replicas. Entries are deleted with their owner."""

    async def list_unaccepted(self, server_id: str) -> Sequence[bytes]:
        """Return the ``seen`` fields of the server's lock and of the locks of all its instances."""
        ...
