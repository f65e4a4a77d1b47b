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

from toolyard.catalog.lock.changes import Change, Kind, accepted, chosen, compare, pins_of
from toolyard.catalog.lock.errors import Outdated
from toolyard.catalog.lock.pins import ServerPins
from toolyard.catalog.lock.serialization import pack, unpack
from toolyard.catalog.lock.storage import Entry, PinStorage, Place
from toolyard.errors import ConfigError
from toolyard.types.catalog import Contents
from toolyard.types.server import InstanceSpec, Server

__all__ = ["RegistryLock"]

log = logging.getLogger("toolyard.catalogue")

_TRIES = 5
_KEPT = 4096
"""Verdicts in memory; each speaks only of tools that are different."""
_UNKNOWN = "it could not be held against what was accepted"


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What became of one listing. ``places`` and ``revisions`` say which locks it was held against."""

    places: tuple[Place, Place]
    revisions: tuple[int, ...]
    changes: Mapping[str, Change] = field(default_factory=dict[str, Change])
    reasons: Mapping[str, str] = field(default_factory=dict[str, str])
    instructed: bool = False
    """Whether its instructions are those that were accepted."""


class RegistryLock:
    """Says which tools of instances are not as they were accepted, and lets people accept."""

    def __init__(self, storage: PinStorage) -> None:
        self._storage = storage
        self._verdicts: OrderedDict[tuple[str, str], _Verdict] = OrderedDict()

    # What an instance was given.

    async def met(self, server: Server, contents: Contents) -> None:
        """Hold what an instance has now against its locks; what nobody has seen before is trusted. Until this
        was done, none of its tools may be used. Raises StoreError."""
        if server.instance is None:
            return
        places = _places(server.instance)
        key = (contents.server_id, contents.content_hash)
        verdict = self._verdicts.get(key)
        # The name of an instance may come to mean another instance; its locks are part of the verdict.
        if verdict is not None and verdict.places != places:
            verdict = None
        if verdict is None or verdict.revisions != await self._storage.revisions(places):
            verdict = await self._judged(places, contents)
        self._verdicts[key] = verdict
        self._verdicts.move_to_end(key)
        while len(self._verdicts) > _KEPT:
            self._verdicts.popitem(last=False)

    def reasons(self, contents: Contents) -> Mapping[str, str]:
        """Why tools of an instance are set aside, by the server's own names."""
        verdict = self._verdicts.get((contents.server_id, contents.content_hash))
        if verdict is None:
            return {definition.name: _UNKNOWN for definition in contents.definitions}
        return verdict.reasons

    def change(self, contents: Contents, tool: str) -> Change | None:
        """What is different about a tool that is set aside."""
        verdict = self._verdicts.get((contents.server_id, contents.content_hash))
        return None if verdict is None else verdict.changes.get(tool)

    def instructed(self, contents: Contents) -> bool:
        """Whether an instance's instructions are those that were accepted."""
        verdict = self._verdicts.get((contents.server_id, contents.content_hash))
        return verdict is not None and verdict.instructed

    async def _judged(self, places: tuple[Place, Place], contents: Contents) -> _Verdict:
        now = await asyncio.to_thread(pins_of, contents)
        for _ in range(_TRIES):
            common, own = await self._storage.read(places)
            if not common.revision:
                # The first use of this server by anybody. Whoever comes second is held against the first.
                await self._storage.save(places[0], Entry(0, await asyncio.to_thread(pack, now)))
                continue
            found = await asyncio.to_thread(_weigh, contents.server_id, now, common, own)
            if found.entry is None:
                return found.verdict(places, (common.revision, own.revision))
            if await self._storage.save(places[1], found.entry):
                return found.verdict(places, (common.revision, own.revision + 1))
        return _Verdict(places, (), {}, dict.fromkeys(now.tools, _UNKNOWN))

    # What an admin was given.

    async def looked(self, server_id: str, now: ServerPins) -> Mapping[str, str]:
        """An admin looked at a server itself: which of its tools are not as they were accepted for everyone,
        and why. What was never used is not trusted by looking. Raises StoreError."""
        place = Place(server_id)
        (common,) = await self._storage.read((place,))
        if not common.revision:
            return {}
        changes, entry = await asyncio.to_thread(_held_against, server_id, now, common)
        if entry is not None:
            await self._storage.save(place, entry)
        return {change.tool: change.reason for change in changes if change.blocks}

    # Accepting.

    async def changes(self, place: Place, name: str) -> list[Change]:
        """All that is different: for one instance, or for a server wherever it was listed. ``name`` is what
        the changes call it. Raises StoreError."""
        return (await self._compared(place, name))[0]

    async def accept(self, place: Place, name: str, keys: Collection[str]) -> list[Change]:
        """Accept the changes of these keys, and no others: for one instance, or for everyone. Raises Outdated
        where there is no such change any more, and StoreError."""
        for _ in range(_TRIES):
            changes, before, locked = await self._compared(place, name)
            wanted = chosen(changes, keys)
            pins = accepted(locked, locked, wanted)
            if not place.instance_id:
                # Others may well have a tool that one of them has under another name.
                pins = replace(pins, tools={**locked.tools, **pins.tools})
            seen = before.seen if len(wanted) < len(changes) or not place.instance_id else None
            entry = Entry(before.revision, await asyncio.to_thread(pack, pins), seen)
            if await self._storage.save(place, entry, tell=True):
                return wanted
        raise Outdated("others accept at the same time: nothing was accepted", hint="try again")

    async def _compared(self, place: Place, name: str) -> tuple[list[Change], Entry, ServerPins]:
        """The changes, the entry that accepting them replaces, and what it holds now."""
        common, own = await self._storage.read((Place(place.server_id), place))
        if not place.instance_id:
            listed = await self._storage.seen(place.server_id)
            locked = _pins(common)
            return await asyncio.to_thread(_everywhere, name, listed, locked), common, locked
        changes, locked = await asyncio.to_thread(_in_instance, name, common, own)
        return changes, own, locked


def _places(spec: InstanceSpec) -> tuple[Place, Place]:
    return Place(spec.registered), Place(spec.registered, spec.id)


@dataclass(frozen=True, slots=True)
class _Weighed:
    """One listing, compared; with the entry of its instance that has to be written."""

    changes: list[Change]
    entry: Entry | None

    def verdict(self, places: tuple[Place, Place], revisions: tuple[int, ...]) -> _Verdict:
        aside = {change.tool: change for change in self.changes if change.blocks}
        instructed = all(change.kind is not Kind.INSTRUCTIONS for change in self.changes)
        reasons = {name: each.reason for name, each in aside.items()}
        return _Verdict(places, revisions, aside, reasons, instructed)


def _weigh(name: str, now: ServerPins, common: Entry, own: Entry) -> _Weighed:
    before = _pins(own) if own.revision else None
    locked = _for_instance(before, _pins(common), now)
    changes = _different(name, now, locked)
    seen = now if changes else None
    last = None if own.seen is None else _pins(Entry(own.revision, own.seen))
    if before is not None and _same(before, locked) and _same(last, seen):
        return _Weighed(changes, None)
    return _Weighed(changes, Entry(own.revision, pack(locked), None if seen is None else pack(seen)))


def _held_against(name: str, now: ServerPins, common: Entry) -> tuple[list[Change], Entry | None]:
    changes = _different(name, now, _pins(common))
    seen = now if changes else None
    last = None if common.seen is None else _pins(Entry(common.revision, common.seen))
    entry = None if _same(last, seen) else replace(common, seen=None if seen is None else pack(seen))
    return changes, entry


def _in_instance(name: str, common: Entry, own: Entry) -> tuple[list[Change], ServerPins]:
    """What is different in what an instance was given last, and what it goes by."""
    if own.seen is None:
        return [], _pins(own)
    seen = _pins(Entry(own.revision, own.seen))
    locked = _for_instance(_pins(own), _pins(common), seen)
    return _different(name, seen, locked), locked


def _everywhere(name: str, listed: Iterable[bytes], locked: ServerPins) -> list[Change]:
    """What is different in any of these listings, once."""
    found = (_different(name, _pins(Entry(1, body)), locked) for body in listed)
    by_key = {change.key: change for changes in found for change in changes}
    return sorted(by_key.values(), key=lambda change: (not change.tool, change.tool))


def _different(name: str, now: ServerPins, locked: ServerPins) -> list[Change]:
    """Without what was taken away: a person may see less of a server than others do."""
    return [change for change in compare(name, now, locked) if change.kind is not Kind.REMOVED]


def _for_instance(own: ServerPins | None, common: ServerPins, now: ServerPins) -> ServerPins:
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


def _pins(entry: Entry) -> ServerPins:
    """What an entry holds; nothing, where it cannot be believed."""
    if not entry.revision:
        return ServerPins()
    try:
        return unpack(entry.pins, "the lock in the database")
    except ConfigError as error:
        log.warning("nothing counts as accepted: %s", error.cause)
        return ServerPins()


def _same(one: ServerPins | None, other: ServerPins | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.instructions == other.instructions and {name: pin.hash for name, pin in one.tools.items()} == {
        name: pin.hash for name, pin in other.tools.items()
    }
