"""``mcp.lock``: read with care, because people merge it by hand; written the same way every time.

Anything that is not exactly what was written counts as broken, and then nothing is accepted.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TypeAlias
from weakref import ref

from toolyard.catalog.lock.changes import Change, apply_changes, compare_pins, pin_contents, select_changes
from toolyard.catalog.lock.errors import LockBroken, LockUnwritable
from toolyard.catalog.lock.pins import (
    PinsByServer,
    ServerPins,
    load_strict_json,
    pins_from_json,
    pins_to_json,
    raise_broken_lock,
    require_object,
)
from toolyard.config.file_reader import decode_utf8, read_regular_file
from toolyard.config.file_writer import lock_for_editing, write_atomically
from toolyard.errors import ConfigError
from toolyard.types.catalog import ValidatedListing
from toolyard.types.server import Server, StdioSpec

__all__ = [
    "LOCK_FILE_NAME",
    "LOCK_FORMAT_VERSION",
    "LockFile",
    "detect_package",
    "detect_unpinned_package",
    "lock_for_editing",
    "lock_path",
    "pin_server_contents",
    "read_lock",
    "write_lock",
]


_PACKAGE_RUNNERS: dict[tuple[str, ...], tuple[frozenset[str], frozenset[str]]] = {
    ("npx",): (frozenset({"-p", "--package"}), frozenset({"-c", "--call", "--prefix", "-w", "--workspace"})),
    ("bunx",): (frozenset({"-p", "--package"}), frozenset()),
    ("uvx",): (frozenset({"--from"}), frozenset({"--with", "-p", "--python", "--index", "--directory"})),
    ("uv", "tool", "run"): (frozenset({"--from"}), frozenset({"--with", "-p", "--python", "--index"})),
    ("pipx", "run"): (frozenset({"--spec"}), frozenset({"--python", "--index-url"})),
}
"""By runner: the options that name the package, and other options that take a value."""
_NPM_VERSION = re.compile(r".@v?\d+\.\d+\.\d+")
_PYTHON_VERSION = re.compile(r".(==|@)\s*\d")
_PATH_OR_URL = re.compile(r"[./~]|\w+:|git\+")


def detect_package(spec: StdioSpec) -> tuple[str, bool] | None:
    """What the command fetches and runs, and whether that is always the same; None where it fetches nothing.

    A path or an address is taken as it is: it names what it names.
    """
    words = (PurePath(spec.command).name.removesuffix(".cmd").removesuffix(".exe"), *spec.args)
    for runner, (naming, valued) in _PACKAGE_RUNNERS.items():
        if words[: len(runner)] == runner:
            package = _package_argument(words[len(runner) :], naming, valued)
            if package is None:
                return None
            version = _NPM_VERSION if runner[0] in ("npx", "bunx") else _PYTHON_VERSION
            return package, bool(_PATH_OR_URL.match(package) or version.search(package))
    return None


def detect_unpinned_package(spec: StdioSpec) -> str | None:
    """The package whose newest version this would run; None where it names a version, or runs no package."""
    found = detect_package(spec)
    return None if found is None or found[1] else found[0]


def _package_argument(words: Sequence[str], naming: frozenset[str], valued: frozenset[str]) -> str | None:
    found: str | None = None
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if option in naming:
            return value if equals else next(rest, None)
        if option in valued:
            if not equals:
                next(rest, None)
        elif not word.startswith("-"):
            found = word
            break
    return found


LOCK_FILE_NAME = "mcp.lock"
LOCK_FORMAT_VERSION = 1
_MAX_LOCK_BYTES = 256 * 1024 * 1024
_CONFLICT_MARKERS = ("<<<<<<< ", "=======", ">>>>>>> ", "||||||| ")


def lock_path(config_file: str | None, data_dir: Path) -> Path:
    """Where the lock is, if there is one: beside the configuration file, else in the data directory."""
    return (data_dir if config_file is None else Path(config_file).parent) / LOCK_FILE_NAME


def read_lock(path: Path) -> PinsByServer | None:
    """What the file says; None where there is none. Raises ConfigError for one that cannot be believed."""
    file = str(path)
    try:
        path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise_broken_lock(file, f"the lock cannot be read: {error}")
    try:
        text = decode_utf8(read_regular_file(path, max_bytes=_MAX_LOCK_BYTES), file)
    except ConfigError as error:
        raise_broken_lock(file, f"the lock cannot be read: {error.problems[0].message}")
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(_CONFLICT_MARKERS):
            raise_broken_lock(file, "a conflict marker: the file was merged halfway", line=number)
    root = require_object(file, load_strict_json(file, text), "")
    version: object = root.get("version")
    if version is True or version != LOCK_FORMAT_VERSION:
        raise_broken_lock(
            file,
            f"version {json.dumps(version)} of the lock, where {LOCK_FORMAT_VERSION} is expected",
            "version",
        )
    servers = require_object(file, root.get("servers"), "servers")
    return {
        server_id: pins_from_json(file, one, f"servers.{server_id}") for server_id, one in servers.items()
    }


def write_lock(path: Path, lock: PinsByServer) -> None:
    """Write the file as one step. The same lock is the same bytes. Raises OSError."""
    servers = {server_id: pins_to_json(pins) for server_id, pins in lock.items()}
    value = {"servers": servers, "version": LOCK_FORMAT_VERSION}
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True) + "\n"
    # For everyone to read, unlike the configuration: it goes into repositories and holds no secrets.
    write_atomically(path, text.encode("ascii"))


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
