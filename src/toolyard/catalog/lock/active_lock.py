"""The lock file while a program runs: read when it changes on disk, asked about what a server has, and
written when somebody accepts."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias
from weakref import ref

from toolyard.catalog.lock.changes import Change, accepted, chosen, compare, pins_of
from toolyard.catalog.lock.errors import LockBroken, LockUnwritable
from toolyard.catalog.lock.lock_file import editing, read_lock, write_lock
from toolyard.catalog.lock.pinned_packages import package_of
from toolyard.catalog.lock.pins import Lock, ServerPins
from toolyard.errors import ConfigError
from toolyard.types.catalog import Contents
from toolyard.types.server import Server, StdioSpec

__all__ = ["LockKeeper", "has_now"]

_LOOK = 1.0
"""Seconds for which the file need not be looked at again."""
_Verdict: TypeAlias = tuple[dict[str, Change], dict[str, str]]
_NOTHING: Mapping[str, str] = {}


def has_now(server: Server, contents: Contents) -> ServerPins:
    """What a server of the files has now, with the package that its command fetches."""
    package = package_of(server.transport) if isinstance(server.transport, StdioSpec) else None
    return pins_of(contents, None if package is None else package[0])


class LockKeeper:
    """Says which tools are not as they were accepted. Without a file, all are; with a broken one, none."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self._clock = clock
        self._looked = -_LOOK
        self._stamp: tuple[int, int, int] | str = ""
        self._lock: Lock | None = None
        self._problem: ConfigError | None = None
        self._judged: dict[int, tuple[ref[Contents], _Verdict]] = {}

    @property
    def problem(self) -> ConfigError | None:
        """Why the file cannot be used; None where it can, or there is none."""
        self._look()
        return self._problem

    @property
    def holds(self) -> bool:
        """Whether there is a lock at all, good or broken."""
        self._look()
        return self._lock is not None or self._problem is not None

    def reasons(self, contents: Contents) -> Mapping[str, str]:
        """Why tools of a server are set aside, by the server's own names. The same object for as long as
        nothing changes. About instances the file says nothing."""
        self._look()
        if contents.server_id.startswith("@") or (self._lock is None and self._problem is None):
            return _NOTHING
        return self._verdict(contents)[1]

    def change(self, contents: Contents, tool: str) -> Change | None:
        """What is different about a tool that is set aside."""
        self._look()
        return None if self._lock is None else self._verdict(contents)[0].get(tool)

    def instructed(self, contents: Contents) -> bool:
        """Whether a server's instructions are those that were accepted."""
        self._look()
        if self._lock is None:
            return self._problem is None
        pins = self._lock.get(contents.server_id)
        return pins is not None and (pins.instructions or "") == (contents.listing.instructions or "")

    def changes(self, server: Server, contents: Contents) -> list[Change]:
        """All that is different about a server; nothing where there is no lock. Raises LockBroken."""
        lock = self._read()
        return [] if lock is None else compare(server.id, has_now(server, contents), lock.get(server.id))

    def accept(self, server: Server, contents: Contents, keys: Collection[str]) -> list[Change]:
        """Accept the changes of these keys, and no others. Raises Outdated where there is no such change,
        LockUnwritable and LockBroken."""
        now = has_now(server, contents)
        try:
            with editing(self.path):
                lock = self._read()
                before = None if lock is None else lock.get(server.id)
                wanted = chosen([] if lock is None else compare(server.id, now, before), keys)
                write_lock(self.path, {**(lock or {}), server.id: accepted(before, now, wanted)})
        except OSError as error:
            raise self._unwritable(error) from error
        self._looked = -_LOOK
        self._stamp = ""
        return wanted

    def _unwritable(self, error: OSError) -> LockUnwritable:
        return LockUnwritable(
            f"{self.path} cannot be written: {error.strerror or error}",
            hint="run `toolyard lock --accept NAME` where the file can be written",
        )

    def _read(self) -> Lock | None:
        try:
            return read_lock(self.path)
        except ConfigError as error:
            problem = error.problems[0]
            raise LockBroken(str(replace(problem, hint=None)), hint=problem.hint) from error

    def _verdict(self, contents: Contents) -> _Verdict:
        key = id(contents)
        found = self._judged.get(key)
        if found is None or found[0]() is not contents:
            gone = ref(contents, lambda _: self._judged.pop(key, None))
            found = self._judged[key] = (gone, self._judge(contents))
        return found[1]

    def _judge(self, contents: Contents) -> _Verdict:
        if self._problem is not None or self._lock is None:
            first = str(self._problem.problems[0] if self._problem else "").split("\n", 1)[0]
            why = f"the lock cannot be used: {first}"
            return {}, {definition.name: why for definition in contents.definitions}
        found = compare(contents.server_id, pins_of(contents), self._lock.get(contents.server_id))
        changes = {change.tool: change for change in found if change.blocks}
        return changes, {name: change.reason for name, change in changes.items()}

    def _look(self) -> None:
        now = self._clock()
        if now - self._looked < _LOOK:
            return
        self._looked = now
        try:
            found = self.path.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        except OSError as error:
            stamp = type(error).__name__
        if stamp == self._stamp:
            return
        self._stamp = stamp
        self._judged.clear()
        try:
            self._lock, self._problem = read_lock(self.path), None
        except ConfigError as error:
            self._lock, self._problem = None, error
