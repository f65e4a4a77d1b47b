"""Service for local clients in ``toolyard serve``, which takes them over from the background process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from toolyard.background.link import BackgroundLink, NotAttached, read_line
from toolyard.background.listener import ClientListener, open_listener
from toolyard.background.runtime_dir import RuntimeDirError, RuntimePaths, lock_file
from toolyard.background.server import BackgroundServer, OperationServer
from toolyard.background.shared_cores import SharedCores
from toolyard.clients.process_pool import ProcessPool
from toolyard.config.settings.table import PeopleMode, Settings
from toolyard.store import Database

__all__ = ["ForegroundPageService", "LocalClientResources", "serve_local_clients"]

log = logging.getLogger("toolyard.background")

_TAKEOVER_TIMEOUT_SECONDS = 4.0
"""Shorter than the time for which clients wait for a process that answers."""


class ForegroundPageService:
    """The pages of ``toolyard serve``, for the local clients that it serves, once they are open."""

    def __init__(self, people_mode: PeopleMode) -> None:
        self._are_for_local_user = people_mode is PeopleMode.NONE
        self._opened: asyncio.Future[tuple[Database, str]] = asyncio.get_running_loop().create_future()

    def set_opened(self, database: Database, url: str) -> None:
        """Announce that the pages are open: their database and their address."""
        self._opened.set_result((database, url))

    async def open_database(self, *, create: bool) -> Database | None:
        """Return the database of the pages; None if they are not for the local user."""
        return await self.wait_for_database() if self._are_for_local_user else None

    async def wait_for_database(self) -> Database:
        """Return the database of the pages; waits forever if they are not for the local user."""
        if not self._are_for_local_user:
            await asyncio.get_running_loop().create_future()
        return (await asyncio.shield(self._opened))[0]

    async def make_link(self, path: str) -> str | None:
        """Return the address of a page; None if the pages are not for the local user."""
        return f"{(await asyncio.shield(self._opened))[1]}{path}" if self._are_for_local_user else None


@dataclass(frozen=True, slots=True)
class LocalClientResources:
    """Pages and processes that ``toolyard serve`` shares with the local clients that it serves."""

    pages: ForegroundPageService
    processes: ProcessPool


@asynccontextmanager
async def serve_local_clients(
    data_dir: Path, settings: Settings, serve_operation: OperationServer
) -> AsyncGenerator[LocalClientResources]:
    """Own the data directory in this process, and serve the clients of ``toolyard stdio`` meanwhile.

    If another ``toolyard serve`` owns it, nothing happens.
    """
    loop = asyncio.get_running_loop()
    servers: list[BackgroundServer] = []
    loop.add_signal_handler(signal.SIGUSR1, lambda: [server.restore_socket() for server in servers])
    shared = LocalClientResources(
        ForegroundPageService(settings.people_mode), ProcessPool(settings.max_stdio_servers)
    )

    async def run() -> None:
        listener = await asyncio.to_thread(_take_over, str(data_dir))
        if listener is not None:
            shared_cores = SharedCores(data_dir, shared.pages, shared.processes)
            servers.append(BackgroundServer(listener, data_dir, shared_cores, serve_operation))
            await servers[0].run()

    task = asyncio.create_task(run())
    try:
        yield shared
    finally:
        for server in servers:
            server.stop()
        if not servers:
            # It still waits to own the directory. A server is not cancelled, because it moves its clients
            # before it ends.
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await shared.processes.close()
        loop.remove_signal_handler(signal.SIGUSR1)


def _take_over(data_dir: str) -> ClientListener | None:
    """Return None if the local clients cannot be served by this process."""
    try:
        paths = RuntimePaths(data_dir, os.environ.get("XDG_RUNTIME_DIR", ""))
        start_lock = _wait_for_lock(paths.start_lock)
        # Held until this process listens: clients that are moved must not start another one.
        try:
            _ask_to_leave(data_dir)
            listener = open_listener(data_dir, _TAKEOVER_TIMEOUT_SECONDS, wake_owner=False)
        finally:
            if start_lock is not None:
                os.close(start_lock)
    except (RuntimeDirError, OSError) as error:
        log.warning("the clients of `toolyard stdio` are not served here: %s", error)
        return None
    if listener is None:
        log.info("another process serves the clients of `toolyard stdio`")
    return listener


def _wait_for_lock(path: str) -> int | None:
    deadline = time.monotonic() + _TAKEOVER_TIMEOUT_SECONDS
    while (lock := lock_file(path)) is None and time.monotonic() < deadline:
        time.sleep(0.02)
    return lock


def _ask_to_leave(data_dir: str) -> None:
    with contextlib.suppress(NotAttached):
        connection = BackgroundLink(data_dir, {}).connect(start=False)
        try:
            connection.sendall(b"leave\n")
            read_line(connection)
        finally:
            connection.close()
