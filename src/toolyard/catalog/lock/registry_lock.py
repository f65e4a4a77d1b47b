"""The lock of registry servers: in the database, one for all replicas.

A server has a lock for everyone, made of the first listing that anybody got of it, and changed by admins.
Each instance has its own beside it: what its owner was given and could use. A tool may be used where it is
what either of them holds. What one person was given is never shown to another: owners see what became
different in terms of their own lock, only admins in terms of the server's.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from toolyard.catalog.lock.changes import (
    Change,
    ChangeKind,
    apply_changes,
    compare_pins,
    pin_contents,
    select_changes,
)
from toolyard.catalog.lock.errors import Outdated
from toolyard.catalog.lock.pins import ServerPins, pack_pins, unpack_pins
from toolyard.catalog.lock.storage import PinEntry, PinKey, RegistryPinStorage
from toolyard.errors import ConfigError
from toolyard.types.catalog import ValidatedListing
from toolyard.types.server import InstanceSpec, Server

__all__ = ["RegistryLock"]

log = logging.getLogger("toolyard.catalogue")

_MAX_ATTEMPTS = 5
_MAX_VERDICTS = 4096
"""Verdicts in memory; each speaks only of tools that are different."""
_NOT_COMPARED_REASON = "it could not be held against what was accepted"


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What became of one listing. ``places`` and ``revisions`` say which locks it was held against."""

    pin_keys: tuple[PinKey, PinKey]
    revisions: tuple[int, ...]
    changes: Mapping[str, Change] = field(default_factory=dict[str, Change])
    reasons: Mapping[str, str] = field(default_factory=dict[str, str])
    instructions_accepted: bool = False
    """Whether its instructions are those that were accepted."""


class RegistryLock:
    """Says which tools of instances are not as they were accepted, and lets people accept."""

    def __init__(self, storage: RegistryPinStorage) -> None:
        self._storage = storage
        self._verdicts: OrderedDict[tuple[str, str], _Verdict] = OrderedDict()

    # What an instance was given.

    async def check_listing(self, server: Server, contents: ValidatedListing) -> None:
        """Hold what an instance has now against its locks; what nobody has seen before is trusted. Until this
        was done, none of its tools may be used. Raises StoreError."""
        if server.instance is None:
            return
        places = _pin_keys_of(server.instance)
        key = (contents.server_id, contents.content_hash)
        verdict = self._verdicts.get(key)
        # The name of an instance may come to mean another instance; its locks are part of the verdict.
        if verdict is not None and verdict.pin_keys != places:
            verdict = None
        if verdict is None or verdict.revisions != await self._storage.revisions(places):
            verdict = await self._compare_listing(places, contents)
        self._verdicts[key] = verdict
        self._verdicts.move_to_end(key)
        while len(self._verdicts) > _MAX_VERDICTS:
            self._verdicts.popitem(last=False)

    def quarantine_reasons(self, contents: ValidatedListing) -> Mapping[str, str]:
        """Why tools of an instance are set aside, by the server's own names."""
        verdict = self._verdicts.get((contents.server_id, contents.content_hash))
        if verdict is None:
            return {definition.name: _NOT_COMPARED_REASON for definition in contents.definitions}
        return verdict.reasons

    def change(self, contents: ValidatedListing, tool: str) -> Change | None:
        """What is different about a tool that is set aside."""
        verdict = self._verdicts.get((contents.server_id, contents.content_hash))
        return None if verdict is None else verdict.changes.get(tool)

    def has_accepted_instructions(self, contents: ValidatedListing) -> bool:
        """Whether an instance's instructions are those that were accepted."""
        verdict = self._verdicts.get((contents.server_id, contents.content_hash))
        return verdict is not None and verdict.instructions_accepted

    async def _compare_listing(self, places: tuple[PinKey, PinKey], contents: ValidatedListing) -> _Verdict:
        now = await asyncio.to_thread(pin_contents, contents)
        for _ in range(_MAX_ATTEMPTS):
            common, own = await self._storage.read(places)
            if not common.revision:
                # The first use of this server by anybody. Whoever comes second is held against the first.
                await self._storage.save(places[0], PinEntry(0, await asyncio.to_thread(pack_pins, now)))
                continue
            found = await asyncio.to_thread(_compare_instance, contents.server_id, now, common, own)
            if found.entry is None:
                return found.verdict(places, (common.revision, own.revision))
            if await self._storage.save(places[1], found.entry):
                return found.verdict(places, (common.revision, own.revision + 1))
        return _Verdict(places, (), {}, dict.fromkeys(now.tools, _NOT_COMPARED_REASON))

    # What an admin was given.

    async def compare_preview(self, server_id: str, now: ServerPins) -> Mapping[str, str]:
        """An admin looked at a server itself: which of its tools are not as they were accepted for everyone,
        and why. What was never used is not trusted by looking. Raises StoreError."""
        place = PinKey(server_id)
        (common,) = await self._storage.read((place,))
        if not common.revision:
            return {}
        changes, entry = await asyncio.to_thread(_compare_with_common, server_id, now, common)
        if entry is not None:
            await self._storage.save(place, entry)
        return {change.tool: change.reason for change in changes if change.blocks}

    # Accepting.

    async def changes(self, pin_key: PinKey, name: str) -> list[Change]:
        """All that is different: for one instance, or for a server wherever it was listed. ``name`` is what
        the changes call it. Raises StoreError."""
        return (await self._load_changes(pin_key, name))[0]

    async def accept(self, pin_key: PinKey, name: str, keys: Collection[str]) -> list[Change]:
        """Accept the changes of these keys, and no others: for one instance, or for everyone. Raises Outdated
        where there is no such change any more, and StoreError."""
        for _ in range(_MAX_ATTEMPTS):
            changes, before, locked = await self._load_changes(pin_key, name)
            wanted = select_changes(changes, keys)
            pins = apply_changes(locked, locked, wanted)
            if not pin_key.instance_id:
                # Others may well have a tool that one of them has under another name.
                pins = replace(pins, tools={**locked.tools, **pins.tools})
            seen = before.seen if len(wanted) < len(changes) or not pin_key.instance_id else None
            entry = PinEntry(before.revision, await asyncio.to_thread(pack_pins, pins), seen)
            if await self._storage.save(pin_key, entry, notify=True):
                return wanted
        raise Outdated("others accept at the same time: nothing was accepted", hint="try again")

    async def _load_changes(self, place: PinKey, name: str) -> tuple[list[Change], PinEntry, ServerPins]:
        """The changes, the entry that accepting them replaces, and what it holds now."""
        common, own = await self._storage.read((PinKey(place.server_id), place))
        if not place.instance_id:
            listed = await self._storage.seen(place.server_id)
            locked = _unpack_entry(common)
            return await asyncio.to_thread(_list_server_changes, name, listed, locked), common, locked
        changes, locked = await asyncio.to_thread(_list_instance_changes, name, common, own)
        return changes, own, locked


def _pin_keys_of(spec: InstanceSpec) -> tuple[PinKey, PinKey]:
    return PinKey(spec.registered), PinKey(spec.registered, spec.id)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One listing, compared; with the entry of its instance that has to be written."""

    changes: list[Change]
    entry: PinEntry | None

    def verdict(self, pin_keys: tuple[PinKey, PinKey], revisions: tuple[int, ...]) -> _Verdict:
        aside = {change.tool: change for change in self.changes if change.blocks}
        instructed = all(change.kind is not ChangeKind.INSTRUCTIONS for change in self.changes)
        reasons = {name: each.reason for name, each in aside.items()}
        return _Verdict(pin_keys, revisions, aside, reasons, instructed)


def _compare_instance(name: str, now: ServerPins, common: PinEntry, own: PinEntry) -> _Comparison:
    before = _unpack_entry(own) if own.revision else None
    locked = _effective_pins(before, _unpack_entry(common), now)
    changes = _compare_without_removed(name, now, locked)
    seen = now if changes else None
    last = None if own.seen is None else _unpack_entry(PinEntry(own.revision, own.seen))
    if before is not None and _is_same_pins(before, locked) and _is_same_pins(last, seen):
        return _Comparison(changes, None)
    return _Comparison(
        changes, PinEntry(own.revision, pack_pins(locked), None if seen is None else pack_pins(seen))
    )


def _compare_with_common(
    name: str, now: ServerPins, common: PinEntry
) -> tuple[list[Change], PinEntry | None]:
    changes = _compare_without_removed(name, now, _unpack_entry(common))
    seen = now if changes else None
    last = None if common.seen is None else _unpack_entry(PinEntry(common.revision, common.seen))
    entry = (
        None if _is_same_pins(last, seen) else replace(common, seen=None if seen is None else pack_pins(seen))
    )
    return changes, entry


def _list_instance_changes(name: str, common: PinEntry, own: PinEntry) -> tuple[list[Change], ServerPins]:
    """What is different in what an instance was given last, and what it goes by."""
    if own.seen is None:
        return [], _unpack_entry(own)
    seen = _unpack_entry(PinEntry(own.revision, own.seen))
    locked = _effective_pins(_unpack_entry(own), _unpack_entry(common), seen)
    return _compare_without_removed(name, seen, locked), locked


def _list_server_changes(name: str, listed: Iterable[bytes], locked: ServerPins) -> list[Change]:
    """What is different in any of these listings, once."""
    found = (_compare_without_removed(name, _unpack_entry(PinEntry(1, body)), locked) for body in listed)
    by_key = {change.key: change for changes in found for change in changes}
    return sorted(by_key.values(), key=lambda change: (not change.tool, change.tool))


def _compare_without_removed(name: str, now: ServerPins, locked: ServerPins) -> list[Change]:
    """Without what was taken away: a person may see less of a server than others do."""
    return [change for change in compare_pins(name, now, locked) if change.kind is not ChangeKind.REMOVED]


def _effective_pins(own: ServerPins | None, common: ServerPins, now: ServerPins) -> ServerPins:
    """What an instance goes by: its own lock, and whatever it has that is as everyone's."""
    same = {
        name: pin
        for name, pin in now.tools.items()
        if name in common.tools and common.tools[name].hash == pin.hash
    }
    if own is None:
        return ServerPins(same, now.instructions)
    told = now.instructions if now.instructions == common.instructions else own.instructions
    return ServerPins({**own.tools, **same}, told)


def _unpack_entry(entry: PinEntry) -> ServerPins:
    """What an entry holds; nothing, where it cannot be believed."""
    if not entry.revision:
        return ServerPins()
    try:
        return unpack_pins(entry.pins, "the lock in the database")
    except ConfigError as error:
        log.warning("nothing counts as accepted: %s", error.cause)
        return ServerPins()


def _is_same_pins(one: ServerPins | None, other: ServerPins | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.instructions == other.instructions and {name: pin.hash for name, pin in one.tools.items()} == {
        name: pin.hash for name, pin in other.tools.items()
    }
