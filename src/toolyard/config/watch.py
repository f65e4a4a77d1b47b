"""Watch the configuration file for changes while Toolyard runs.

The file is compared by content, after every event in its folder and also every two seconds. So a change is
noticed when an editor replaces the file, and on file systems that send no events.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from toolyard.config.configuration_diff import diff_configurations
from toolyard.config.file_approvals import approvals_path, hash_content
from toolyard.config.file_io import read_regular_file
from toolyard.config.sources.load import (
    ConfigFile,
    ConfigOrigin,
    client_environment,
    find_loaded_file,
    load_from_file,
)
from toolyard.errors import ConfigError, Problem
from toolyard.types.server import Configuration

__all__ = ["ConfigBroken", "ConfigChange", "watch_config", "watch_file"]

T = TypeVar("T")

_POLL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A valid change: ids of affected servers and bundles, and the complete new configuration."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    bundles: tuple[str, ...]
    configuration: Configuration


@dataclass(frozen=True, slots=True)
class ConfigBroken:
    """An invalid edit. ``configuration`` is the last valid one, which stays in use."""

    error: ConfigError
    configuration: Configuration


async def watch_config(
    current: Configuration,
    path: str | os.PathLike[str] | None = None,
    *,
    overrides: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    poll_seconds: float = _POLL_SECONDS,
) -> AsyncGenerator[ConfigChange | ConfigBroken, None]:
    """Yield every change after ``current``, the result of ``load_config`` with the same arguments.

    The watched file stays the same; a new file with a higher precedence is found at the next start. After an
    invalid edit the next valid content is always reported, even if it equals the last valid one. A change
    without an event is noticed after ``poll_seconds``. Cancel the iterating task to stop.
    """
    env = client_environment(cwd) if env is None else dict(env)
    file, folder = await asyncio.to_thread(find_loaded_file, current.file, path, env, cwd, data_dir)

    def reload() -> Configuration:
        fresh = load_from_file(file, folder, overrides=overrides, env=env, cwd=cwd)
        if fresh.file is None and last.file is not None:
            # An editor may remove the file for a moment; that must not stop the servers.
            message = "the file was removed; its last content stays in use"
            raise ConfigError(
                [Problem(message, file=last.file, hint="restore the file, or restart Toolyard")]
            )
        return fresh

    last, broken, last_signature = current, False, None
    async with aclosing(_watch_folders(file, folder, poll_seconds)) as ticks:
        async for _ in ticks:
            signature = await asyncio.to_thread(_compute_signature, file, folder)
            if signature == last_signature:
                continue
            last_signature = signature
            try:
                fresh = await asyncio.to_thread(reload)
            except ConfigError as error:
                broken = True
                yield ConfigBroken(error, last)
                continue
            changes = diff_configurations(last, fresh)
            is_reportable = bool(changes) or broken or fresh.waiting != last.waiting
            last, broken = fresh, False
            if is_reportable:
                yield ConfigChange(changes.added, changes.removed, changes.changed, changes.bundles, fresh)


async def watch_file(path: Path) -> AsyncGenerator[None, None]:
    """Yield once when the watch is active, and then whenever the file may have changed.

    Also yields every few seconds; the caller must compare the content. The file need not exist. Cancel the
    iterating task to stop.
    """
    file = ConfigFile(path, ConfigOrigin.EXPLICIT)
    async with aclosing(_watch_folders(file, path.parent, _POLL_SECONDS)) as ticks:
        async for _ in ticks:
            yield


async def _watch_folders(file: ConfigFile, data_dir: Path, poll_seconds: float) -> AsyncGenerator[None, None]:
    """Yield once when the relevant folders are watched, then after every event and every few seconds."""
    # Imported here because only a running server watches. The annotations of watchfiles refer to trio, which
    # is not installed.
    from watchfiles import awatch  # pyright: ignore[reportUnknownVariableType]
    from watchfiles._rust_notify import WatchfilesRustInternalError

    # The folders can change while we watch, e.g. when a link gets another target or a missing folder is
    # created. Then the inner loop ends and the watch starts again with the new folders.
    while True:
        scope = await asyncio.to_thread(_find_watch_scope, file, data_dir)
        events = awatch(
            *scope.folders,
            watch_filter=scope.includes,
            recursive=False,
            rust_timeout=int(poll_seconds * 1000),
            yield_on_timeout=True,
        )
        try:
            async with aclosing(events), _prefetch_event(events) as first:
                yield
                await first
                while scope == await asyncio.to_thread(_find_watch_scope, file, data_dir):
                    yield
                    await anext(events)
        except (OSError, WatchfilesRustInternalError):
            # A folder was removed, or the system has no inotify watches left: fall back to polling.
            await asyncio.sleep(poll_seconds)


@asynccontextmanager
async def _prefetch_event(events: AsyncGenerator[T, None]) -> AsyncGenerator[asyncio.Future[T], None]:
    """Start waiting for the first event before the caller reads the files.

    Otherwise a change between reading the files and the start of the watch would be missed.
    """
    first = asyncio.ensure_future(anext(events))
    try:
        await asyncio.sleep(0)  # let the task run up to its first await, which installs the watch
        yield first
    finally:
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _WatchScope:
    """Folders to watch, and the names of the relevant files in them."""

    folders: tuple[str, ...]
    names: frozenset[str]

    def includes(self, _: object, changed_path: str) -> bool:
        name = os.path.basename(changed_path)
        # Kubernetes updates a mounted volume by replacing the link "..data", not the files themselves.
        return name in self.names or name.startswith("..")


def _find_watch_scope(file: ConfigFile, data_dir: Path) -> _WatchScope:
    # Watch the folder of a link and that of its target: either may change.
    files = {file.path, Path(os.path.realpath(file.path))}
    if file.needs_approval:
        files.add(approvals_path(data_dir))
    folders = {str(one.parent) for one in files if one.parent.is_dir()}
    return _WatchScope(tuple(sorted(folders)), frozenset(one.name for one in files))


def _compute_signature(file: ConfigFile, data_dir: Path) -> tuple[str, str]:
    record = _hash_file(approvals_path(data_dir)) if file.needs_approval else ""
    return _hash_file(file.path), record


def _hash_file(path: Path) -> str:
    # For an unreadable file the error is the signature, so that a different error counts as a change.
    try:
        return hash_content(read_regular_file(path))
    except ConfigError as error:
        return str(error)
