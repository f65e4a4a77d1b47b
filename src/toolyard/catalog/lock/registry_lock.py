"""Lock of registry servers, stored in the database and shared by all replicas (decision 0022).

Each server has a common lock, created from the first listing that any user gets and changed only by admins.
Each instance has a second lock with the definitions that its owner has used. A tool is usable if its
definition matches either lock. Servers may put a person's data into definitions, so owners see changes
relative to their own lock, and only admins see changes relative to the common lock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from toolyard.catalog.lock.changes import Change, apply_changes, build_pins, select_changes
from toolyard.catalog.lock.pins import ServerPins, pack_pins
from toolyard.catalog.lock.storage import (
    MAX_SAVE_ATTEMPTS,
    LockVerdict,
    PinEntry,
    PinKey,
    RegistryPinStorage,
    StoredLock,
    compare_without_removed,
    save_conflict_error,
    unpack_or_empty,
)
from toolyard.types.server import Server
from toolyard.types.tool import ValidatedListing

__all__ = ["RegistryLock"]

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
