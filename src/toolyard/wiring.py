"""The composition root: builds the rooms from settings. What a door does not need it does not load."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from toolyard.auth import AuthProvider
from toolyard.catalog.cache import Catalogues
from toolyard.catalog.names import Naming, Templates
from toolyard.catalog.sqlite import SqliteStorage
from toolyard.catalog.storage import CatalogueStorage, Key, MemoryStorage, Stored
from toolyard.clients import Callbacks, ClientManager
from toolyard.clients.call import Approve, CallPath, CallRules
from toolyard.clients.eras import FileEras
from toolyard.clients.fetching import Fetcher
from toolyard.clients.rosters import Rosters
from toolyard.config.settings import Settings
from toolyard.content import Limits
from toolyard.model.call import CallRecord
from toolyard.model.config import Configuration
from toolyard.model.server import HttpSpec, Server
from toolyard.model.tool import JsonObject
from toolyard.wire.headers import HeaderParamError, header_params

__all__ = ["Parts", "build"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Parts:
    """The core, built. ``close`` ends it."""

    manager: ClientManager
    catalogues: Catalogues
    rosters: Rosters
    calls: CallPath
    naming: Naming
    close_storage: Callable[[], Awaitable[None]] | None = None

    async def close(self) -> None:
        """End connections, children and fetches, then storage. Bounded."""
        # Connections first: a fetch that loses its own says why, one that is cancelled says nothing.
        self.rosters.close()
        await self.manager.close_all()
        await self.catalogues.close()
        if self.close_storage is not None:
            await self.close_storage()


def build(
    configuration: Configuration,
    settings: Settings,
    *,
    data_dir: Path | None,
    callbacks: Callbacks | None = None,
    auth_providers: Mapping[str, AuthProvider] | None = None,
    approve: Approve | None = None,
    record: Callable[[CallRecord], None] | None = None,
    on_list_changed: Callable[[str], None] | None = None,
) -> Parts:
    """The core for one process. Nothing is started or opened. Without a data directory nothing is kept."""

    def told(server_id: str, method: str, params: Mapping[str, Any]) -> None:
        if method == "notifications/tools/list_changed" and on_list_changed is not None:
            on_list_changed(server_id)

    manager = ClientManager(
        configuration.servers.values(),
        callbacks=callbacks,
        auth_providers=auth_providers,
        eras=None if data_dir is None else FileEras(data_dir / "eras.json"),
        on_told=told,
    )
    kept = None if data_dir is None else _Finished(SqliteStorage(data_dir / "catalogue.db"))
    storage: CatalogueStorage = kept or MemoryStorage()
    catalogues = Catalogues(Fetcher(manager), storage, check=_header_marks)
    naming = Naming(Templates(settings.naming_template, settings.instance_naming_template))
    rosters = Rosters(manager, catalogues, naming)
    rules = CallRules(settings.write_tools, Limits(settings.result_limit))
    calls = CallPath(manager, rosters, rules, approve=approve, record=record)
    return Parts(manager, catalogues, rosters, calls, naming, kept.close if kept is not None else None)


class _Finished:
    """A storage that is closed only when its work is done, also where nobody waits for that any more.

    A statement whose waiter was cancelled still runs in its thread, and after a close it would open the file
    again.
    """

    def __init__(self, storage: SqliteStorage) -> None:
        self._storage = storage
        self._running: set[asyncio.Task[Any]] = set()

    async def load(self, keys: Sequence[Key], *, newer_than: float = 0.0) -> Stored | None:
        return await self._finish(self._storage.load(keys, newer_than=newer_than))

    async def save(self, stored: Stored) -> None:
        await self._finish(self._storage.save(stored))

    async def expire(self, server_id: str) -> None:
        await self._finish(self._storage.expire(server_id))

    async def forget(self, server_id: str, scope: str | None = None) -> None:
        await self._finish(self._storage.forget(server_id, scope))

    async def close(self) -> None:
        while self._running:
            await asyncio.wait(self._running)
        await self._storage.close()

    async def _finish(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)


def _header_marks(server: Server, input_schema: JsonObject) -> str | None:
    """Over HTTP a tool that marks its parameters for headers wrongly must not be used."""
    if not isinstance(server.transport, HttpSpec):
        return None
    try:
        header_params(input_schema)
    except HeaderParamError as error:
        return str(error)
    return None
