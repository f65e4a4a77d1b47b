"""The lock file ``mcp.lock``: reading, writing, and comparing servers with it.

People merge the file by hand, so reading is strict: a file with a wrong hash, a duplicate key, a conflict
marker or another version is broken, and then no tool counts as accepted. Writing is deterministic, for clean
diffs.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from threading import Lock, Thread
from typing import TypeAlias
from weakref import ref

from toolyard.catalog.lock.changes import Change, apply_changes, build_pins, compare_pins, select_changes
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
from toolyard.catalog.lock.storage import NOTHING_QUARANTINED, ListingLock, LockVerdict
from toolyard.config.file_io import decode_utf8, lock_for_editing, read_regular_file, write_atomically
from toolyard.errors import ConfigError
from toolyard.types.server import Server, StdioSpec
from toolyard.types.tool import ValidatedListing

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
"""By runner command: the options that name the package, and other options that take a value."""
_NPM_VERSION = re.compile(r".@v?\d+\.\d+\.\d+")
_PYTHON_VERSION = re.compile(r".(==|@)\s*\d")
_PATH_OR_URL = re.compile(r"[./~]|\w+:|git\+")


def detect_package(spec: StdioSpec) -> tuple[str, bool] | None:
    """Return the package that a command downloads and runs, and whether its version is fixed.

    Return None if the command runs no package. Paths and URLs count as fixed.
    """
    words = (PurePath(spec.command).name.removesuffix(".cmd").removesuffix(".exe"), *spec.args)
    for runner, (package_options, value_options) in _PACKAGE_RUNNERS.items():
        if words[: len(runner)] == runner:
            package = _package_argument(words[len(runner) :], package_options, value_options)
            if package is None:
                return None
            version = _NPM_VERSION if runner[0] in ("npx", "bunx") else _PYTHON_VERSION
            return package, bool(_PATH_OR_URL.match(package) or version.search(package))
    return None


def detect_unpinned_package(spec: StdioSpec) -> str | None:
    """Return the package whose newest version the command would run; None if the version is fixed."""
    package = detect_package(spec)
    return None if package is None or package[1] else package[0]


def _package_argument(
    words: Sequence[str], package_options: frozenset[str], value_options: frozenset[str]
) -> str | None:
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if option in package_options:
            return value if equals else next(rest, None)
        if option in value_options:
            if not equals:
                next(rest, None)
        elif not word.startswith("-"):
            return word
    return None


LOCK_FILE_NAME = "mcp.lock"
LOCK_FORMAT_VERSION = 1
_MAX_LOCK_BYTES = 256 * 1024 * 1024
_CONFLICT_MARKERS = ("<<<<<<< ", "=======", ">>>>>>> ", "||||||| ")


def lock_path(config_file: str | None, data_dir: Path) -> Path:
    """Return the path of the lock: beside the configuration file, or without one in the data directory."""
    return (data_dir if config_file is None else Path(config_file).parent) / LOCK_FILE_NAME


def read_lock(path: Path) -> PinsByServer | None:
    """Return the pins in the file, None if it does not exist. Raise ConfigError if it is broken."""
    file = str(path)
    try:
        path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        # Any other error than a missing file must not look like "no lock", which accepts everything.
        raise_broken_lock(file, f"the lock cannot be read: {error}")
    try:
        text = decode_utf8(read_regular_file(path, max_bytes=_MAX_LOCK_BYTES), file)
    except ConfigError as error:
        raise_broken_lock(file, f"the lock cannot be read: {error.problems[0].message}")
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(_CONFLICT_MARKERS):
            raise_broken_lock(file, "the file has an unresolved merge conflict", line=number)
    root = require_object(file, load_strict_json(file, text), "")
    version: object = root.get("version")
    if version is True or version != LOCK_FORMAT_VERSION:
        raise_broken_lock(
            file,
            f"lock version {json.dumps(version)} is not supported, expected {LOCK_FORMAT_VERSION}",
            "version",
        )
    servers = require_object(file, root.get("servers"), "servers")
    return {
        server_id: pins_from_json(file, pins, f"servers.{server_id}") for server_id, pins in servers.items()
    }


def write_lock(path: Path, lock: PinsByServer) -> None:
    """Write the file atomically. Equal locks result in equal bytes. Raise OSError."""
    servers = {server_id: pins_to_json(pins) for server_id, pins in lock.items()}
    value = {"servers": servers, "version": LOCK_FORMAT_VERSION}
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True) + "\n"
    # Readable by everyone, unlike the configuration: it is committed to repositories and has no secrets.
    write_atomically(path, text.encode("ascii"))


_RELOAD_INTERVAL_SECONDS = 1.0
"""Minimum time between two checks of whether the file has changed."""
_MAX_INLINE_BYTES = 256 * 1024
"""Size up to which a changed file is loaded at once."""
_FileStamp: TypeAlias = tuple[int, int, int] | str
"""Time, size and number of the file, or the name of the error."""


def pin_server_contents(server: Server, contents: ValidatedListing) -> ServerPins:
    """Return pins of all current tools of a configured server, with the package that its command runs."""
    package = detect_package(server.transport) if isinstance(server.transport, StdioSpec) else None
    return build_pins(contents, None if package is None else package[0])


class LockFile(ListingLock):
    """Compares servers with ``mcp.lock``. Without a file all tools are accepted, with a broken file none."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self._clock = clock
        self._last_check = 0.0
        self._file_stamp: _FileStamp = ""
        self._loaded: _LoadedLock | None = None
        self._first_load = Lock()
        self.absent_until = 0.0
        """Time (monotonic) until which the file is known not to exist; 0 if it exists."""

    def is_prepared(self, contents: ValidatedListing) -> bool:
        """Return False if the next question about a listing takes long, because it has not been compared."""
        if self._loaded is None:
            return False
        loaded = self._get_loaded()
        return not loaded.exists or loaded.has_compared(contents)

    @property
    def problem(self) -> ConfigError | None:
        """Problem of a broken file; None if the file is valid or does not exist."""
        return self._get_loaded().problem

    @property
    def exists(self) -> bool:
        """True if there is a lock file, valid or broken."""
        return self._get_loaded().exists

    def find_verdict(self, contents: ValidatedListing) -> LockVerdict:
        loaded = self._get_loaded()
        # Instances are not covered by the file.
        if contents.server_id.startswith("@") or not loaded.exists:
            return NOTHING_QUARANTINED
        return loaded.compare(contents)

    def changes(self, server: Server, contents: ValidatedListing) -> list[Change]:
        """Return all changes of a server, none without a lock. Raise LockBroken."""
        lock = self._read_or_raise()
        return (
            []
            if lock is None
            else compare_pins(server.id, pin_server_contents(server, contents), lock.get(server.id))
        )

    def accept(self, server: Server, contents: ValidatedListing, keys: Collection[str]) -> list[Change]:
        """Accept exactly the changes with these keys.

        Raise Outdated if one of them is not a current change, LockUnwritable and LockBroken.
        """
        current = pin_server_contents(server, contents)
        try:
            # Read again under the file lock: another process may have accepted other changes since.
            with lock_for_editing(self.path):
                lock = self._read_or_raise()
                pins = None if lock is None else lock.get(server.id)
                changes = [] if lock is None else compare_pins(server.id, current, pins)
                accepted = select_changes(changes, keys)
                write_lock(self.path, {**(lock or {}), server.id: apply_changes(pins, current, accepted)})
        except OSError as error:
            raise LockUnwritable(
                f"{self.path} cannot be written: {error.strerror or error}",
                hint="make the file writable, or run `toolyard lock --accept NAME` where it is writable",
            ) from error
        # Reload now, without waiting for the interval.
        self._file_stamp = self._read_stamp()
        self._load(self._file_stamp)
        return accepted

    def _read_or_raise(self) -> PinsByServer | None:
        try:
            return read_lock(self.path)
        except ConfigError as error:
            problem = error.problems[0]
            raise LockBroken(str(replace(problem, hint=None)), hint=problem.hint) from error

    def _get_loaded(self) -> _LoadedLock:
        """Return the loaded file. A large file that changed is loaded in a thread; until then, the loaded one
        stays in use."""
        if self._loaded is None:
            # Listings are compared in threads, and several of them may load the file first.
            with self._first_load:
                if self._loaded is None:
                    self._last_check, self._file_stamp = self._clock(), self._read_stamp()
                    return self._load(self._file_stamp)
        now = self._clock()
        if now - self._last_check >= _RELOAD_INTERVAL_SECONDS:
            self._last_check = now
            stamp = self._read_stamp()
            if stamp != self._file_stamp:
                self._file_stamp = stamp
                if isinstance(stamp, str) or stamp[1] <= _MAX_INLINE_BYTES:
                    return self._load(stamp)
                Thread(target=self._load, args=(stamp,), daemon=True, name="lock file").start()
            elif not self._loaded.exists:
                self.absent_until = now + _RELOAD_INTERVAL_SECONDS
        return self._loaded

    def _read_stamp(self) -> _FileStamp:
        try:
            status = self.path.stat()
        except OSError as error:
            return type(error).__name__
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _load(self, stamp: _FileStamp) -> _LoadedLock:
        """Read the file and compare the listings in use with it."""
        try:
            loaded = _LoadedLock(read_lock(self.path), None)
        except ConfigError as error:
            loaded = _LoadedLock(None, error)
        # Before the file replaces the loaded one: no call then waits for a comparison with it.
        if self._loaded is not None and loaded.exists:
            for contents in self._loaded.compared_contents():
                loaded.compare(contents)
        if self._file_stamp == stamp:  # Otherwise another thread loads a newer file.
            self._loaded = loaded
            self.absent_until = 0.0 if loaded.exists else self._last_check + _RELOAD_INTERVAL_SECONDS
        return loaded


class _LoadedLock:
    """The accepted pins of a file, or its problem, and the listings that were compared with them."""

    def __init__(self, pins: PinsByServer | None, problem: ConfigError | None) -> None:
        self.pins = pins
        self.problem = problem
        self.exists = pins is not None or problem is not None
        # Keyed by identity, because hashing a whole listing for each call would cost too much. The weak
        # reference removes the entry with its listing, and detects an id that was reused for another object.
        self._verdicts: dict[int, tuple[ref[ValidatedListing], LockVerdict]] = {}

    def compared_contents(self) -> list[ValidatedListing]:
        """Return the listings that were compared and are still in use."""
        found = (reference() for reference, _ in list(self._verdicts.values()))
        return [contents for contents in found if contents is not None]

    def has_compared(self, contents: ValidatedListing) -> bool:
        """Return True if the verdict about a listing is known."""
        entry = self._verdicts.get(id(contents))
        return entry is not None and entry[0]() is contents

    def compare(self, contents: ValidatedListing) -> LockVerdict:
        """Return the verdict about a listing, which is computed once."""
        key = id(contents)
        entry = self._verdicts.get(key)
        if entry is None or entry[0]() is not contents:
            reference = ref(contents, lambda _: self._verdicts.pop(key, None))
            entry = self._verdicts[key] = (reference, self._compare(contents))
        return entry[1]

    def _compare(self, contents: ValidatedListing) -> LockVerdict:
        if self.pins is None:
            first_line = str(self.problem.problems[0] if self.problem else "").split("\n", 1)[0]
            reason = f"the lock cannot be used: {first_line}"
            reasons = {definition.name: reason for definition in contents.definitions}
            return LockVerdict({}, reasons, instructions_accepted=False)
        pins = self.pins.get(contents.server_id)
        verdict = LockVerdict.from_changes(compare_pins(contents.server_id, build_pins(contents), pins))
        # None of a server without pins are accepted.
        return verdict if pins is not None else replace(verdict, instructions_accepted=False)
