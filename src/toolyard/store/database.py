"""The database of one process, with a repository for each room that needs one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from toolyard.store.change_feed.signals import Signals
from toolyard.store.errors import WrongKey
from toolyard.store.expiry import Sweeping
from toolyard.store.key_rotation import Rekeying
from toolyard.store.locks.refresh_locks import Locks, locks_for
from toolyard.store.repositories.accounts import SqlPeople
from toolyard.store.repositories.approvals import SqlApprovals
from toolyard.store.repositories.audit import SqlAudit
from toolyard.store.repositories.chat_quota import ChatQuota
from toolyard.store.repositories.chats import SqlChats
from toolyard.store.repositories.listings import SqlCatalogues
from toolyard.store.repositories.pins import SqlPins
from toolyard.store.repositories.registry import SqlRegistry
from toolyard.store.repositories.replica_messages import SqlLetters
from toolyard.store.repositories.results import SqlResults
from toolyard.store.repositories.sign_ins import SqlAuthStorage
from toolyard.store.sql.cipher import Cipher
from toolyard.store.sql.dialects import Engines, TimeLimits
from toolyard.store.sql.executor import Workshop
from toolyard.store.sql.open import check_key, open_database
from toolyard.store.sql.tables import config_pins

if TYPE_CHECKING:
    from toolyard.config.settings.table import Settings

__all__ = ["Database"]


class Database:
    """SQLite in the data directory, or PostgreSQL. Everything that it keeps is shared by all who open it."""

    def __init__(self, workshop: Workshop, cipher: Cipher, locks: Locks, clock: Callable[[], float]) -> None:
        self._workshop = workshop
        self.cipher = cipher
        self.signals = Signals(workshop)
        self.people = SqlPeople(workshop, cipher, clock, self.signals)
        self.registry = SqlRegistry(workshop, cipher, self.signals)
        self.pins = SqlPins(workshop, self.signals)
        self.config_pins = SqlPins(workshop, self.signals, config_pins)
        self.auth = SqlAuthStorage(workshop, cipher, locks)
        self.catalogues = SqlCatalogues(workshop)
        self.audit = SqlAudit(workshop)
        self.chats = SqlChats(workshop, self.signals, clock)
        self.approvals = SqlApprovals(workshop)
        self.results = SqlResults(workshop, clock)
        self.sweeping = Sweeping(workshop, clock)
        self.rekeying = Rekeying(workshop, cipher)
        self.letters = SqlLetters(workshop, cipher, self.signals, clock)

    @classmethod
    async def open(
        cls,
        data_dir: Path,
        *,
        url: str | None,
        secret_key: str | None,
        former_key: str | None = None,
        clock: Callable[[], float] = time.time,
        limits: TimeLimits = TimeLimits(),  # noqa: B008 - frozen
    ) -> Database:
        """Open it, and make or update its tables where that is needed.

        ``url`` None is SQLite in the data directory. ``former_key`` reads what it encrypted.
        Raises DatabaseUnavailable, DatabaseUnusable, KeyMissing, KeyUnusable and WrongKey; then nothing was
        changed.
        """
        work = asyncio.to_thread(open_database, data_dir, url, secret_key, former_key, limits)
        opening = asyncio.ensure_future(work)
        try:
            engines, cipher = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_let_go)
            raise
        return cls(Workshop(engines), cipher, locks_for(engines, data_dir), clock)

    @classmethod
    async def of(cls, settings: Settings, data_dir: Path) -> Database:
        """Open the database that a server with these settings and this data directory uses."""
        database = await cls.open(
            data_dir,
            url=settings.database_url,
            secret_key=settings.secret_key,
            former_key=settings.secret_key_former,
            limits=TimeLimits(answer=settings.database_timeout),
        )
        database.chats.quota = ChatQuota(
            settings.chat_limit, settings.chat_bytes_limit, settings.chat_bytes_limit_all
        )
        return database

    async def ready(self) -> None:
        """Whether it answers, and still has our key. Raises StoreError.

        After ``toolyard rekey`` a process that has only the former key must not encrypt anything more with
        it: nobody could read that once the former key is unset.
        """
        try:
            await self._workshop.read(lambda connection: check_key(connection, self.cipher))
        except WrongKey:
            self.cipher.retire()
            raise

    async def close(self) -> None:
        """Finish what was begun, write down what was noted, and let go of everything."""
        await self.chats.close()
        await self.signals.close()
        await self.audit.close()
        await self._workshop.close()


def _let_go(opening: asyncio.Future[tuple[Engines, Cipher]]) -> None:
    """Nobody waits for it any more."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result()[0].dispose()
