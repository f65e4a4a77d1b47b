"""Storage of locks as entries with revisions, replaced by optimistic locking, and the base class of the locks
that use it.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from toolyard.catalog.lock.changes import Change, ChangeKind, compare_pins
from toolyard.catalog.lock.errors import Outdated
from toolyard.catalog.lock.pins import ServerPins, unpack_pins
from toolyard.concurrency.lru_cache import LruCache
from toolyard.errors import ConfigError
from toolyard.types.tool import ValidatedListing

__all__ = [
    "MAX_SAVE_ATTEMPTS",
    "NOTHING_QUARANTINED",
    "ListingLock",
    "LockVerdict",
    "MemoryPinEntryStorage",
    "PinEntry",
    "PinEntryStorage",
    "PinKey",
    "RegistryPinStorage",
    "StoredLock",
    "compare_without_removed",
    "save_conflict_error",
    "unpack_or_empty",
]

MAX_SAVE_ATTEMPTS = 5
"""Number of times that an entry is read and replaced before a conflict with other processes is an error."""
_NOT_COMPARED_REASON = "it could not be compared with the accepted definition"

_log = logging.getLogger("toolyard.catalogue")


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


class MemoryPinEntryStorage:
    """A ``PinEntryStorage`` in memory, for tests and for use without a data directory."""

    def __init__(self) -> None:
        self._entries: dict[PinKey, PinEntry] = {}

    async def revisions(self, pin_keys: Sequence[PinKey]) -> tuple[int, ...]:
        return tuple(entry.revision for entry in await self.read(pin_keys))

    async def read(self, pin_keys: Sequence[PinKey]) -> tuple[PinEntry, ...]:
        return tuple(self._entries.get(pin_key, PinEntry()) for pin_key in pin_keys)

    async def save(self, pin_key: PinKey, entry: PinEntry, *, notify: bool = False) -> bool:
        if self._entries.get(pin_key, PinEntry()).revision != entry.revision:
            return False
        self._entries[pin_key] = replace(entry, revision=entry.revision + 1)
        return True


@dataclass(frozen=True, slots=True)
class LockVerdict:
    """Result of comparing one listing with a lock."""

    changes: Mapping[str, Change] = field(default_factory=dict[str, Change])
    """Changes for which tools are quarantined, by tool."""
    reasons: Mapping[str, str] = field(default_factory=dict[str, str])
    """Reasons why tools are quarantined, by tool."""
    instructions_accepted: bool = True
    pin_keys: tuple[PinKey, ...] = ()
    revisions: tuple[int, ...] = ()
    """Revisions of the entries under ``pin_keys`` that it was compared with; empty if they are not known."""
    checked_at: float = 0.0

    @classmethod
    def from_changes(
        cls,
        changes: Sequence[Change],
        pin_keys: tuple[PinKey, ...] = (),
        revisions: tuple[int, ...] = (),
        checked_at: float = 0.0,
    ) -> LockVerdict:
        """Return the verdict that follows from the changes in a listing."""
        blocking = {change.tool: change for change in changes if change.blocks}
        reasons = {name: change.reason for name, change in blocking.items()}
        instructions_accepted = all(change.kind is not ChangeKind.INSTRUCTIONS for change in changes)
        return cls(blocking, reasons, instructions_accepted, pin_keys, revisions, checked_at)

    @classmethod
    def not_compared(
        cls, contents: ValidatedListing, pin_keys: tuple[PinKey, ...] = (), checked_at: float = 0.0
    ) -> LockVerdict:
        """Return the verdict about a listing that could not be compared: no tool counts as accepted."""
        reasons = {definition.name: _NOT_COMPARED_REASON for definition in contents.definitions}
        return cls({}, reasons, False, pin_keys, (), checked_at)


NOTHING_QUARANTINED = LockVerdict()


class ListingLock(ABC):
    """Lock that has a verdict about each listing."""

    __slots__ = ()

    @abstractmethod
    def find_verdict(self, contents: ValidatedListing) -> LockVerdict:
        """Return the verdict about a listing: the same object as long as nothing changes."""

    def quarantine_reasons(self, contents: ValidatedListing) -> Mapping[str, str]:
        """Return the reasons why tools are quarantined, by the tools' names on the server."""
        return self.find_verdict(contents).reasons

    def change(self, contents: ValidatedListing, tool: str) -> Change | None:
        """Return the change for which a tool is quarantined, None if it is not."""
        return self.find_verdict(contents).changes.get(tool)

    def has_accepted_instructions(self, contents: ValidatedListing) -> bool:
        """Return True if the server's instructions are the accepted ones."""
        return self.find_verdict(contents).instructions_accepted


class StoredLock(ListingLock):
    """Lock with pins in a storage. Listings are compared when they are fetched, and their verdicts kept."""

    def __init__(self, max_verdicts: int) -> None:
        self._verdicts: LruCache[tuple[str, str], LockVerdict] = LruCache(max_verdicts)
        """Verdicts by server and content of the listing."""

    def find_verdict(self, contents: ValidatedListing) -> LockVerdict:
        verdict = self._verdicts.get((contents.server_id, contents.content_hash))
        return self._uncompared_verdict(contents) if verdict is None else verdict

    def _uncompared_verdict(self, contents: ValidatedListing) -> LockVerdict:
        """Return the verdict about a listing before it was compared."""
        return LockVerdict.not_compared(contents)


def compare_without_removed(name: str, current: ServerPins, locked: ServerPins) -> list[Change]:
    """Return the changes without removed tools: a person with fewer rights may see fewer tools."""
    return [change for change in compare_pins(name, current, locked) if change.kind is not ChangeKind.REMOVED]


def unpack_or_empty(body: bytes, where: str) -> ServerPins:
    """Return stored pins. Unreadable ones count as empty, so that nothing is accepted by accident."""
    try:
        return unpack_pins(body, where)
    except ConfigError as error:
        _log.warning("no tool counts as accepted: %s", error.cause)
        return ServerPins()


def save_conflict_error() -> Outdated:
    """Return the error for changes that were not accepted, since others accepted some at the same time."""
    return Outdated(
        "other changes were accepted at the same time, so yours were not accepted", hint="try again"
    )
