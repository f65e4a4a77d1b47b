"""Trust on first use for configured servers that have no ``mcp.lock``.

The first listing of a server is accepted and stored. Later listings are compared with it: a new or changed
tool of a quarantined server cannot be used until it is accepted; for other servers the change is logged
once and stored as the accepted state.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256

from toolyard.catalog.lock.changes import Change, ChangeKind, apply_changes, build_pins, select_changes
from toolyard.catalog.lock.errors import Outdated
from toolyard.catalog.lock.pins import ServerPins, pack_pins
from toolyard.catalog.lock.storage import (
    MAX_SAVE_ATTEMPTS,
    NOTHING_QUARANTINED,
    LockVerdict,
    PinEntry,
    PinEntryStorage,
    PinKey,
    StoredLock,
    compare_without_removed,
    save_conflict_error,
    unpack_or_empty,
)
from toolyard.config.settings.table import PinTools
from toolyard.errors import ToolyardError
from toolyard.types.server import HttpSpec, Server, Trust
from toolyard.types.tool import ValidatedListing

__all__ = ["FirstUseLock", "first_use_pin_key"]

log = logging.getLogger("toolyard.catalogue")

_MAX_VERDICTS = 1024
_RECHECK_SECONDS = 1.0
"""Age of a verdict at which the stored revision is read again."""
_MAX_NAMED_TOOLS = 5
_MAX_NOTICES = 100
_QUARANTINED_TRUSTS: Mapping[PinTools, frozenset[Trust]] = {
    PinTools.OFF: frozenset(),
    PinTools.UNTRUSTED: frozenset({Trust.UNTRUSTED}),
    PinTools.ALL: frozenset(Trust),
}


def first_use_pin_key(server: Server) -> PinKey:
    """Return the storage key of a server's pins.

    It covers the address or the command, but no headers and no environment: rotating a credential must not
    make us trust the server again.
    """
    transport = server.transport
    parts = (
        [transport.url]
        if isinstance(transport, HttpSpec)
        else [transport.command, *transport.args, transport.cwd or ""]
    )
    identity = "\0".join([server.id, transport.type, *parts])
    return PinKey(server.id, sha256(identity.encode("utf-8", "surrogatepass")).hexdigest())


class FirstUseLock(StoredLock):
    """Compares configured servers with their first listing."""

    def __init__(
        self,
        storage: PinEntryStorage,
        mode: PinTools = PinTools.UNTRUSTED,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(_MAX_VERDICTS)
        self._storage = storage
        self._mode = mode
        self.quarantined_trusts = _QUARANTINED_TRUSTS[mode]
        """Changed tools of servers with this trust have to be accepted."""
        self._exempt_servers: set[str] = set()
        """Ids of checked servers that are not quarantined. Other servers need a verdict to be used."""
        self._clock = clock
        self._wall_clock = wall_clock
        self.notices: deque[str] = deque(maxlen=_MAX_NOTICES)
        """Changes of servers that are not quarantined, as they were logged by this process."""

    async def check_listing(self, server: Server, contents: ValidatedListing) -> None:
        """Compare a listing with the stored one; the first listing of a server is stored."""
        if self._mode is PinTools.OFF:
            return
        key = (contents.server_id, contents.content_hash)
        cached = self._verdicts.get(key)
        # A changed entry has other pins under the same id.
        if cached is not None and cached.pin_keys != (first_use_pin_key(server),):
            cached = None
        quarantines = server.trust in self.quarantined_trusts
        (self._exempt_servers.discard if quarantines else self._exempt_servers.add)(server.id)
        if cached is not None and not (quarantines and await self._is_outdated(cached)):
            return
        try:
            verdict = await self._compare_with_pins(server, contents, quarantines)
        except ToolyardError as error:
            log.warning("the stored tools of server '%s' cannot be read: %s", server.id, error.cause)
            if not quarantines:
                return
            # Fail closed: without the accepted definitions, every tool may be a changed one.
            verdict = LockVerdict.not_compared(contents, (first_use_pin_key(server),), self._clock())
        self._verdicts[key] = verdict

    async def load_accepted_pins(self, server: Server) -> ServerPins | None:
        """Return the accepted definitions of a quarantined server, None before its first listing.

        Raise StoreError.
        """
        if server.trust not in self.quarantined_trusts:
            return None
        (entry,) = await self._storage.read((first_use_pin_key(server),))
        return await asyncio.to_thread(_unpack, entry.pins) if entry.revision else None

    async def changes(self, server: Server, contents: ValidatedListing) -> list[Change]:
        """Return the unaccepted changes in a listing of a quarantined server. Raise StoreError."""
        if server.trust not in self.quarantined_trusts:
            return []
        (entry,) = await self._storage.read((first_use_pin_key(server),))
        return await asyncio.to_thread(_list_unaccepted_changes, entry, contents) if entry.revision else []

    async def accept(self, server: Server, contents: ValidatedListing, keys: Collection[str]) -> list[Change]:
        """Accept exactly the changes of a listing with these keys.

        Raise Outdated if one of them is not a current change, and StoreError.
        """
        pin_key = first_use_pin_key(server)
        for _ in range(MAX_SAVE_ATTEMPTS):
            (entry,) = await self._storage.read((pin_key,))
            changes = await asyncio.to_thread(_list_unaccepted_changes, entry, contents)
            # A key covers the definition. If the listing is another one by now, its keys differ, and nothing
            # is accepted that the person has not seen.
            accepted = select_changes(changes, keys)
            locked = _unpack(entry.pins)
            pins = apply_changes(locked, locked, accepted)
            body = await asyncio.to_thread(pack_pins, pins)
            saved = PinEntry(entry.revision, body, None, self._wall_clock())
            if await self._storage.save(pin_key, saved, notify=True):
                # Make this process compare again at once; others notice the new revision within a second.
                for key in [key for key in self._verdicts if key[0] == server.id]:
                    self._verdicts[key] = replace(
                        self._verdicts[key], revisions=(), checked_at=-_RECHECK_SECONDS
                    )
                return accepted
        raise save_conflict_error()

    def _uncompared_verdict(self, contents: ValidatedListing) -> LockVerdict:
        # Verdicts are evicted. The next check, at the latest that of the next call, compares again.
        if self._mode is PinTools.OFF or contents.server_id in self._exempt_servers:
            return NOTHING_QUARANTINED
        return super()._uncompared_verdict(contents)

    async def _is_outdated(self, verdict: LockVerdict) -> bool:
        now = self._clock()
        if now - verdict.checked_at < _RECHECK_SECONDS:
            return False
        try:
            return await self._storage.revisions(verdict.pin_keys) != verdict.revisions
        except ToolyardError:
            # Use the last verdict while the storage cannot be read.
            return False

    async def _compare_with_pins(
        self, server: Server, contents: ValidatedListing, quarantines: bool
    ) -> LockVerdict:
        pin_key = first_use_pin_key(server)
        current = await asyncio.to_thread(build_pins, contents)
        # Optimistic locking: start again if another process has written the entry in the meantime.
        for _ in range(MAX_SAVE_ATTEMPTS):
            (entry,) = await self._storage.read((pin_key,))
            checked = self._clock()
            if not entry.revision:
                first = PinEntry(0, await asyncio.to_thread(pack_pins, current), None, self._wall_clock())
                if await self._storage.save(pin_key, first):
                    return LockVerdict.from_changes((), (pin_key,), (1,), checked)
                continue
            pins = await asyncio.to_thread(_unpack, entry.pins)
            changes = compare_without_removed(server.id, current, pins)
            if not quarantines:
                if not changes or await self._store_and_log(server, pin_key, entry, pins, changes):
                    return LockVerdict.from_changes((), (pin_key,), (entry.revision,), checked)
                continue
            return LockVerdict.from_changes(changes, (pin_key,), (entry.revision,), checked)
        cause = f"other processes stored the tools of server '{server.id}' at the same time"
        raise Outdated(cause, hint="try again")

    async def _store_and_log(
        self, server: Server, pin_key: PinKey, entry: PinEntry, pins: ServerPins, changes: list[Change]
    ) -> bool:
        """Store changes of a server that is not quarantined, and log them. Return False on a write conflict.

        Only the process that stored the changes logs them. Tools that are missing now stay pinned, since
        other users may still see them.
        """
        updated = apply_changes(pins, pins, changes)
        tools = {**pins.tools, **updated.tools}
        body = await asyncio.to_thread(pack_pins, replace(updated, tools=tools))
        if not await self._storage.save(pin_key, PinEntry(entry.revision, body, None, self._wall_clock())):
            return False
        names = [change.tool or change.kind.value for change in changes]
        shown = ", ".join(map(repr, names[:_MAX_NAMED_TOOLS]))
        shown += ", …" if len(names) > _MAX_NAMED_TOOLS else ""
        since = datetime.fromtimestamp(entry.saved_at, UTC).date().isoformat()
        notice = (
            f"{len(names)} {'definition' if len(names) == 1 else 'definitions'} of server '{server.id}' "
            f"{_describe_kinds(changes)} since {since}: {shown}"
        )
        log.warning("%s", notice)
        self.notices.append(notice)
        return True


def _list_unaccepted_changes(entry: PinEntry, contents: ValidatedListing) -> list[Change]:
    return compare_without_removed(contents.server_id, build_pins(contents), _unpack(entry.pins))


def _unpack(body: bytes) -> ServerPins:
    return unpack_or_empty(body, "the stored tool definitions")


def _describe_kinds(changes: Sequence[Change]) -> str:
    """Return whether definitions are new, have changed, or both."""
    new = sum(change.kind is ChangeKind.NEW for change in changes)
    if not new:
        return "changed"
    return f"{'is' if len(changes) == 1 else 'are'} new{' or changed' if new < len(changes) else ''}"
