"""The lock file while a program runs: read when it changes on disk, asked about what a server has, and
written when somebody accepts."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias
from weakref import ref

from toolyard.catalog.lock.changes import Change, apply_changes, compare_pins, pin_contents, select_changes
from toolyard.catalog.lock.errors import LockBroken, LockUnwritable
from toolyard.catalog.lock.lock_file import lock_for_editing, read_lock, write_lock
from toolyard.catalog.lock.pinned_packages import detect_package
from toolyard.catalog.lock.pins import PinsByServer, ServerPins
from toolyard.errors import ConfigError
from toolyard.types.catalog import ValidatedListing
from toolyard.types.server import Server, StdioSpec

__all__ = ["LockFile", "pin_server_contents"]

_RELOAD_INTERVAL_SECONDS = 1.0
"""Seconds for which the file need not be looked at again."""
_LockVerdict: TypeAlias = tuple[dict[str, Change], dict[str, str]]
_NO_REASONS: Mapping[str, str] = {}


def pin_server_contents(server: Server, contents: ValidatedListing) -> ServerPins:
    """What a server of the files has now, with the package that its command fetches."""
    package = detect_package(server.transport) if isinstance(server.transport, StdioSpec) else None
    return pin_contents(contents, None if package is None else package[0])


class LockFile:
    """Says which tools are not as they were accepted. Without a file, all are; with a broken one, none."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self._clock = clock
        self._last_reload = -_RELOAD_INTERVAL_SECONDS
        self._file_stamp: tuple[int, int, int] | str = ""
        self._accepted_pins: PinsByServer | None = None
        self._problem: ConfigError | None = None
        self._verdict_by_contents: dict[int, tuple[ref[ValidatedListing], _LockVerdict]] = {}

    @property
    def problem(self) -> ConfigError | None:
        """Why the file cannot be used; None where it can, or there is none."""
        self._reload_if_changed()
        return self._problem

    @property
    def exists(self) -> bool:
        """Whether there is a lock at all, good or broken."""
        self._reload_if_changed()
        return self._accepted_pins is not None or self._problem is not None

    def quarantine_reasons(self, contents: ValidatedListing) -> Mapping[str, str]:
        """Why tools of a server are set aside, by the server's own names. The same object for as long as
        nothing changes. About instances the file says nothing."""
        self._reload_if_changed()
        if contents.server_id.startswith("@") or (self._accepted_pins is None and self._problem is None):
            return _NO_REASONS
        return self._verdict_for(contents)[1]

    def change(self, contents: ValidatedListing, tool: str) -> Change | None:
        """What is different about a tool that is set aside."""
        self._reload_if_changed()
        return None if self._accepted_pins is None else self._verdict_for(contents)[0].get(tool)

    def has_accepted_instructions(self, contents: ValidatedListing) -> bool:
        """Whether a server's instructions are those that were accepted."""
        self._reload_if_changed()
        if self._accepted_pins is None:
            return self._problem is None
        pins = self._accepted_pins.get(contents.server_id)
        return pins is not None and (pins.instructions or "") == (contents.listing.instructions or "")

    def changes(self, server: Server, contents: ValidatedListing) -> list[Change]:
        """All that is different about a server; nothing where there is no lock. Raises LockBroken."""
        lock = self._read_or_raise()
        return (
            []
            if lock is None
            else compare_pins(server.id, pin_server_contents(server, contents), lock.get(server.id))
        )

    def accept(self, server: Server, contents: ValidatedListing, keys: Collection[str]) -> list[Change]:
        """Accept the changes of these keys, and no others. Raises Outdated where there is no such change,
        LockUnwritable and LockBroken."""
        now = pin_server_contents(server, contents)
        try:
            with lock_for_editing(self.path):
                lock = self._read_or_raise()
                before = None if lock is None else lock.get(server.id)
                wanted = select_changes([] if lock is None else compare_pins(server.id, now, before), keys)
                write_lock(self.path, {**(lock or {}), server.id: apply_changes(before, now, wanted)})
        except OSError as error:
            raise self._unwritable_error(error) from error
        self._last_reload = -_RELOAD_INTERVAL_SECONDS
        self._file_stamp = ""
        return wanted

    def _unwritable_error(self, error: OSError) -> LockUnwritable:
        return LockUnwritable(
            f"{self.path} cannot be written: {error.strerror or error}",
            hint="run `toolyard lock --accept NAME` where the file can be written",
        )

    def _read_or_raise(self) -> PinsByServer | None:
        try:
            return read_lock(self.path)
        except ConfigError as error:
            problem = error.problems[0]
            raise LockBroken(str(replace(problem, hint=None)), hint=problem.hint) from error

    def _verdict_for(self, contents: ValidatedListing) -> _LockVerdict:
        key = id(contents)
        found = self._verdict_by_contents.get(key)
        if found is None or found[0]() is not contents:
            gone = ref(contents, lambda _: self._verdict_by_contents.pop(key, None))
            found = self._verdict_by_contents[key] = (gone, self._compare_contents(contents))
        return found[1]

    def _compare_contents(self, contents: ValidatedListing) -> _LockVerdict:
        if self._problem is not None or self._accepted_pins is None:
            first = str(self._problem.problems[0] if self._problem else "").split("\n", 1)[0]
            why = f"the lock cannot be used: {first}"
            return {}, {definition.name: why for definition in contents.definitions}
        found = compare_pins(
            contents.server_id, pin_contents(contents), self._accepted_pins.get(contents.server_id)
        )
        changes = {change.tool: change for change in found if change.blocks}
        return changes, {name: change.reason for name, change in changes.items()}

    def _reload_if_changed(self) -> None:
        now = self._clock()
        if now - self._last_reload < _RELOAD_INTERVAL_SECONDS:
            return
        self._last_reload = now
        try:
            found = self.path.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        except OSError as error:
            stamp = type(error).__name__
        if stamp == self._file_stamp:
            return
        self._file_stamp = stamp
        self._verdict_by_contents.clear()
        try:
            self._accepted_pins, self._problem = read_lock(self.path), None
        except ConfigError as error:
            self._accepted_pins, self._problem = None, error
