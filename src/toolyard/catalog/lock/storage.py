"""Storage of locks as entries with revisions, replaced by optimistic locking, and the locks that use it.

The lock of registry servers is stored in the database and shared by all replicas (decision 0022). Each server
has a common lock, created from the first listing that any user gets and changed only by admins.
Each instance has a second lock with the definitions that its owner has used. A tool is usable if its
definition matches either lock. Servers may put a person's data into definitions, so owners see changes
relative to their own lock, and only admins see changes relative to the common lock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from toolyard.catalog.lock.changes import (
    Change,
    ChangeKind,
    apply_changes,
    build_pins,
    compare_pins,
    select_changes,
)
from toolyard.catalog.lock.errors import Outdated
from toolyard.catalog.lock.pins import ServerPins, pack_pins, unpack_pins
from toolyard.concurrency.lru_cache import LruCache
from toolyard.errors import ConfigError
from toolyard.types.server import Server
from toolyard.types.tool import ValidatedListing

__all__ = [
    "MAX_SAVE_ATTEMPTS",
    "LockVerdict",
    "MemoryPinEntryStorage",
    "PinEntry",
    "PinEntryStorage",
    "PinKey",
    "RegistryLock",
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


class StoredLock:
    """Lock with pins in a storage. Listings are compared when they are fetched, and their verdicts kept."""

    def __init__(self, max_verdicts: int) -> None:
        self._verdicts: LruCache[tuple[str, str], LockVerdict] = LruCache(max_verdicts)
        """Verdicts by server and content of the listing."""

    def quarantine_reasons(self, contents: ValidatedListing) -> Mapping[str, str]:
        """Return the reasons why tools are quarantined, by the tools' names on the server."""
        return self._find_verdict(contents).reasons

    def change(self, contents: ValidatedListing, tool: str) -> Change | None:
        """Return the change for which a tool is quarantined, None if it is not."""
        return self._find_verdict(contents).changes.get(tool)

    def has_accepted_instructions(self, contents: ValidatedListing) -> bool:
        """Return True if the server's instructions are the accepted ones."""
        return self._find_verdict(contents).instructions_accepted

    def _find_verdict(self, contents: ValidatedListing) -> LockVerdict:
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
        "someone else accepted changes in the meantime, so yours were not accepted", hint="try again"
    )


log = logging.getLogger("toolyard.catalogue")

_MAX_VERDICTS = 4096
"""Maximum number of verdicts in memory. They are small, since they contain only changed tools."""


class RegistryLock(StoredLock):
    """Compares listings of instances with their locks, and accepts changes."""

    def __init__(self, storage: RegistryPinStorage) -> None:
        super().__init__(_MAX_VERDICTS)
        self._storage = storage

    # Listings of instances

    async def check_listing(self, server: Server, contents: ValidatedListing) -> None:
        """Compare the listing of an instance with its locks. Raise StoreError.

        The first listing of a server is accepted. Tools of a listing that was not compared are quarantined.
        """
        if (instance := server.instance) is None:
            return
        pin_keys = (PinKey(instance.registered), PinKey(instance.registered, instance.id))
        key = (contents.server_id, contents.content_hash)
        verdict = self._verdicts.get(key)
        # The id of a deleted instance may be reused for another one, so the verdict includes the lock keys.
        if verdict is not None and verdict.pin_keys != pin_keys:
            verdict = None
        if verdict is None or verdict.revisions != await self._storage.revisions(pin_keys):
            verdict = await self._compare_listing(pin_keys, contents)
        self._verdicts[key] = verdict

    async def _compare_listing(
        self, pin_keys: tuple[PinKey, PinKey], contents: ValidatedListing
    ) -> LockVerdict:
        current = await asyncio.to_thread(build_pins, contents)
        # Optimistic locking: other replicas may write the same entries, so start again on a conflict.
        for _ in range(MAX_SAVE_ATTEMPTS):
            common, own = await self._storage.read(pin_keys)
            if not common.revision:
                # The first use of this server by any user. If two users are first at the same time, one write
                # fails, and the next round compares that user with the other's listing.
                await self._storage.save(
                    pin_keys[0], PinEntry(0, await asyncio.to_thread(pack_pins, current))
                )
                continue
            changes, entry = await asyncio.to_thread(
                _compare_instance, contents.server_id, current, common, own
            )
            if entry is None:
                return LockVerdict.from_changes(changes, pin_keys, (common.revision, own.revision))
            if await self._storage.save(pin_keys[1], entry):
                return LockVerdict.from_changes(changes, pin_keys, (common.revision, own.revision + 1))
        return LockVerdict.not_compared(contents, pin_keys)

    # Previews by admins

    async def compare_preview(self, server_id: str, current: ServerPins) -> Mapping[str, str]:
        """Compare an admin's preview of a server with the common lock, and return the quarantine reasons.

        Unlike the first listing of an instance, a preview accepts nothing. Raise StoreError.
        """
        pin_key = PinKey(server_id)
        (common,) = await self._storage.read((pin_key,))
        if not common.revision:
            return {}
        changes, entry = await asyncio.to_thread(_compare_with_common, server_id, current, common)
        if entry is not None:
            await self._storage.save(pin_key, entry)
        return {change.tool: change.reason for change in changes if change.blocks}

    # Accepting changes

    async def list_unaccepted_changes(self, pin_key: PinKey, name: str) -> list[Change]:
        """Return the unaccepted changes of one instance, or of a server in all its listings.

        ``name`` becomes the ``server_id`` of the changes. Raise StoreError.
        """
        return (await self._load_changes(pin_key, name))[0]

    async def accept(self, pin_key: PinKey, name: str, keys: Collection[str]) -> list[Change]:
        """Accept exactly the changes with these keys, for one instance or for everyone.

        Raise Outdated if one of them is not a current change, and StoreError.
        """
        for _ in range(MAX_SAVE_ATTEMPTS):
            changes, previous, locked = await self._load_changes(pin_key, name)
            accepted = select_changes(changes, keys)
            pins = apply_changes(locked, locked, accepted)
            if not pin_key.instance_id:
                # Other users may still have a renamed tool under its old name.
                pins = replace(pins, tools={**locked.tools, **pins.tools})
            # Keep the last listing while it has unaccepted changes. That of a server is always kept: compared
            # with the new pins it has no changes any more.
            seen = previous.seen if len(accepted) < len(changes) or not pin_key.instance_id else None
            entry = PinEntry(previous.revision, await asyncio.to_thread(pack_pins, pins), seen)
            if await self._storage.save(pin_key, entry, notify=True):
                return accepted
        raise save_conflict_error()

    async def _load_changes(self, pin_key: PinKey, name: str) -> tuple[list[Change], PinEntry, ServerPins]:
        """Return the changes, the entry to replace when they are accepted, and its unpacked pins."""
        common, own = await self._storage.read((PinKey(pin_key.server_id), pin_key))
        if not pin_key.instance_id:
            listed = await self._storage.list_unaccepted(pin_key.server_id)
            changes, locked = await asyncio.to_thread(_list_server_changes, name, listed, common)
            return changes, common, locked
        changes, locked = await asyncio.to_thread(_list_instance_changes, name, common, own)
        return changes, own, locked


def _compare_instance(
    name: str, current: ServerPins, common: PinEntry, own: PinEntry
) -> tuple[list[Change], PinEntry | None]:
    """Return the changes in one listing, and the instance's new entry; None if it need not be written."""
    own_pins = _unpack_entry(own) if own.revision else None
    locked = _effective_pins(own_pins, _unpack_entry(common), current)
    changes = compare_without_removed(name, current, locked)
    seen = current if changes else None
    last = None if own.seen is None else _unpack(own.seen)
    # Most listings change nothing. Writing the entry anyway would raise its revision and make every replica
    # compare again.
    if own_pins is not None and _is_same_pins(own_pins, locked) and _is_same_pins(last, seen):
        return changes, None
    return changes, PinEntry(own.revision, pack_pins(locked), None if seen is None else pack_pins(seen))


def _compare_with_common(
    name: str, current: ServerPins, common: PinEntry
) -> tuple[list[Change], PinEntry | None]:
    changes = compare_without_removed(name, current, _unpack_entry(common))
    seen = current if changes else None
    last = None if common.seen is None else _unpack(common.seen)
    entry = (
        None if _is_same_pins(last, seen) else replace(common, seen=None if seen is None else pack_pins(seen))
    )
    return changes, entry


def _list_instance_changes(name: str, common: PinEntry, own: PinEntry) -> tuple[list[Change], ServerPins]:
    """Return the changes in an instance's last listing, and the pins that apply to it."""
    if own.seen is None:
        return [], _unpack_entry(own)
    seen = _unpack(own.seen)
    locked = _effective_pins(_unpack_entry(own), _unpack_entry(common), seen)
    return compare_without_removed(name, seen, locked), locked


def _list_server_changes(
    name: str, listed: Iterable[bytes], common: PinEntry
) -> tuple[list[Change], ServerPins]:
    """Return the changes in all of these listings, without duplicates, and the pins of the common lock."""
    locked = _unpack_entry(common)
    comparisons = (compare_without_removed(name, _unpack(body), locked) for body in listed)
    by_key = {change.key: change for changes in comparisons for change in changes}
    return sorted(by_key.values(), key=lambda change: (not change.tool, change.tool)), locked


def _effective_pins(own: ServerPins | None, common: ServerPins, current: ServerPins) -> ServerPins:
    """Return the pins that apply to an instance: its own, and current tools that match the common lock."""
    same = {
        name: pin
        for name, pin in current.tools.items()
        if name in common.tools and common.tools[name].hash == pin.hash
    }
    if own is None:
        # The first listing of a new instance: only tools that match the common lock are accepted.
        return ServerPins(same, current.instructions)
    instructions = current.instructions if current.instructions == common.instructions else own.instructions
    return ServerPins({**own.tools, **same}, instructions)


def _unpack_entry(entry: PinEntry) -> ServerPins:
    return _unpack(entry.pins) if entry.revision else ServerPins()


def _unpack(body: bytes) -> ServerPins:
    return unpack_or_empty(body, "the lock in the database")


def _is_same_pins(one: ServerPins | None, other: ServerPins | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.instructions == other.instructions and {name: pin.hash for name, pin in one.tools.items()} == {
        name: pin.hash for name, pin in other.tools.items()
    }
