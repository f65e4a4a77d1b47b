"""Follow the configuration file while Toolyard runs.

What counts is the content of the file, looked at again whenever its folder stirs and now and then besides, so
neither an editor that replaces the file nor a file system without events goes unnoticed.
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
from toolyard.config.file_reader import read_regular_file
from toolyard.config.sources.discovery import ConfigFile, ConfigOrigin
from toolyard.config.sources.load import find_loaded_file, load_from_file
from toolyard.errors import ConfigError, Problem
from toolyard.types.config import Configuration

__all__ = ["ConfigBroken", "ConfigChange", "watch_config", "watch_file"]

T = TypeVar("T")

_POLL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A valid change: ids of servers, ids of the bundles that differ, and the whole new configuration."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    bundles: tuple[str, ...]
    configuration: Configuration


@dataclass(frozen=True, slots=True)
class ConfigBroken:
    """An edit that cannot be used. ``configuration`` is the last good one, which stays in force."""

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
) -> AsyncGenerator[ConfigChange | ConfigBroken, None]:
    """Yield every change after ``current``, which ``load_config`` gave for the same arguments.

    The file stays the one that was chosen then; another in a better place is found at the next start. After
    a broken edit the next good content is always announced, even if nothing is different from before. Ends
    by cancelling the task that iterates.
    """
    env = dict(os.environ if env is None else env)
    file, folder = await asyncio.to_thread(find_loaded_file, current.file, path, env, cwd, data_dir)

    def reload() -> Configuration:
        fresh = load_from_file(file, folder, overrides=overrides, env=env)
        if fresh.file is None and last.file is not None:
            # An editor may remove the file for a moment; servers are not stopped for that.
            message = "the file is gone; its last content stays in force"
            raise ConfigError([Problem(message, file=last.file, hint="put it back, or restart Toolyard")])
        return fresh

    last, broken, seen = current, False, None
    async with aclosing(_watch_folders(file, folder)) as ticks:
        async for _ in ticks:
            signature = await asyncio.to_thread(_compute_signature, file, folder)
            if signature == seen:
                continue
            seen = signature
            try:
                fresh = await asyncio.to_thread(reload)
            except ConfigError as error:
                broken = True
                yield ConfigBroken(error, last)
                continue
            changes = diff_configurations(last, fresh)
            worth_telling = bool(changes) or broken or fresh.waiting != last.waiting
            last, broken = fresh, False
            if worth_telling:
                yield ConfigChange(changes.added, changes.removed, changes.changed, changes.bundles, fresh)


async def watch_file(path: Path) -> AsyncGenerator[None, None]:
    """Come round once a file is watched, whether it is there or not, whenever it may have changed, and every
    few seconds. What is in it, whoever asks looks at. Ends by cancelling the task that iterates."""
    async with aclosing(_watch_folders(ConfigFile(path, ConfigOrigin.EXPLICIT), path.parent)) as ticks:
        async for _ in ticks:
            yield


async def _watch_folders(file: ConfigFile, data_dir: Path) -> AsyncGenerator[None, None]:
    """Come round once the folders that matter are watched, whenever one stirs, and every few seconds."""
    # Only a running server watches. The library's own types name trio, which is not installed.
    from watchfiles import awatch  # pyright: ignore[reportUnknownVariableType]
    from watchfiles._rust_notify import WatchfilesRustInternalError

    while True:
        scope = await asyncio.to_thread(_find_watch_scope, file, data_dir)
        events = awatch(
            *scope.folders,
            watch_filter=scope.includes,
            recursive=False,
            rust_timeout=int(_POLL_SECONDS * 1000),
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
            # A folder vanished, or the system has no watches left: look now and then.
            await asyncio.sleep(_POLL_SECONDS)


@asynccontextmanager
async def _prefetch_event(events: AsyncGenerator[T, None]) -> AsyncGenerator[asyncio.Future[T], None]:
    """The first event, already waited for: what changes from here on is not missed while one looks."""
    first = asyncio.ensure_future(anext(events))
    try:
        await asyncio.sleep(0)
        yield first
    finally:
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _WatchScope:
    """The folders in which a change would show, and the names of the files that matter in them."""

    folders: tuple[str, ...]
    names: frozenset[str]

    def includes(self, _: object, changed_path: str) -> bool:
        name = os.path.basename(changed_path)
        return name in self.names or name.startswith("..")  # Kubernetes swaps "..data" behind its links


def _find_watch_scope(file: ConfigFile, data_dir: Path) -> _WatchScope:
    files = {file.path, Path(os.path.realpath(file.path))}
    if file.needs_approval:
        files.add(approvals_path(data_dir))
    folders = {str(one.parent) for one in files if one.parent.is_dir()}
    return _WatchScope(tuple(sorted(folders)), frozenset(one.name for one in files))


def _compute_signature(file: ConfigFile, data_dir: Path) -> tuple[str, str]:
    record = _hash_file(approvals_path(data_dir)) if file.needs_approval else ""
    return _hash_file(file.path), record


def _hash_file(path: Path) -> str:
    try:
        return hash_content(read_regular_file(path))
    except ConfigError as error:
        return str(error)
