"""Database of one process, with a repository for each kind of record."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from toolyard.store.change_feed.signals import KEY_CHANNEL, Signals
from toolyard.store.errors import StoreError, WrongKey
from toolyard.store.expiry import ExpiredRowCleanup
from toolyard.store.key_rotation import KeyRotation
from toolyard.store.locks import RefreshLocks, create_refresh_locks
from toolyard.store.repositories.accounts import SqlAccountStorage
from toolyard.store.repositories.agents import SqlAgentStorage
from toolyard.store.repositories.approvals import SqlApprovalStore, SqlPendingItems, SqlQuestionStore
from toolyard.store.repositories.attachments import AttachmentLimits
from toolyard.store.repositories.audit import SqlAuditLog
from toolyard.store.repositories.chat_rows import ChatQuota
from toolyard.store.repositories.chats import SqlChatStore
from toolyard.store.repositories.listings import SqlListingStorage, SqlPinStorage
from toolyard.store.repositories.models import SqlModelStorage
from toolyard.store.repositories.proposals import SqlProposalStore
from toolyard.store.repositories.registry import SqlRegistryStorage
from toolyard.store.repositories.replica_messages import SqlMailbox
from toolyard.store.repositories.results import DatabaseResultStore
from toolyard.store.repositories.sign_ins import SqlAuthStorage
from toolyard.store.repositories.usage import SqlUsage
from toolyard.store.sql.cipher import Cipher
from toolyard.store.sql.dialects import Engines, TimeLimits
from toolyard.store.sql.executor import DatabaseExecutor
from toolyard.store.sql.open import check_key, open_database
from toolyard.store.sql.tables import config_pins

if TYPE_CHECKING:
    from toolyard.config.settings.table import Settings

__all__ = ["Database"]

_log = logging.getLogger("toolyard.store")


class Database:
    """SQLite file in the data directory, or PostgreSQL database; shared by all processes that open it."""

    def __init__(
        self, executor: DatabaseExecutor, cipher: Cipher, locks: RefreshLocks, clock: Callable[[], float]
    ) -> None:
        self.executor = executor
        """Runs transactions of the repositories, and of tests that look at rows."""
        self.cipher = cipher
        self.signals = Signals(executor)
        self.accounts = SqlAccountStorage(executor, cipher, clock, self.signals)
        self.registry = SqlRegistryStorage(executor, cipher, self.signals)
        self.models = SqlModelStorage(executor, cipher, self.signals)
        self.pins = SqlPinStorage(executor, self.signals)
        self.config_pins = SqlPinStorage(executor, self.signals, config_pins)
        self.auth = SqlAuthStorage(executor, cipher, locks)
        self.catalogues = SqlListingStorage(executor)
        self.audit = SqlAuditLog(executor)
        self.usage = SqlUsage(executor)
        self.chats = SqlChatStore(executor, self.signals, clock)
        self.approvals = SqlApprovalStore(executor)
        self.agents = SqlAgentStorage(executor, self.signals)
        self.pending_items = SqlPendingItems(executor)
        self.results = DatabaseResultStore(executor, clock)
        self.expiry = ExpiredRowCleanup(executor, clock)
        self.key_rotation = KeyRotation(executor, cipher, self.signals)
        self.mailbox = SqlMailbox(executor, cipher, self.signals, clock)
        self.proposals = SqlProposalStore(executor)
        self.questions = SqlQuestionStore(executor, self.mailbox)

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
        migrates: bool = True,
    ) -> Database:
        """Open a database, and create or migrate its tables if needed.

        Unless ``migrates``, outdated tables of PostgreSQL raise DatabaseOutdated: others may be using them.
        A ``url`` of None means SQLite in the data directory. ``former_key`` decrypts values that were
        encrypted before the key changed. Raises DatabaseUnavailable, DatabaseUnusable, KeyMissing,
        KeyUnusable and WrongKey; the database is unchanged then.
        """
        # The thread cannot be cancelled. Shield it, so that connections opened after a cancellation are
        # closed.
        work = asyncio.to_thread(
            open_database, data_dir, url, secret_key, former_key, limits, migrates=migrates
        )
        opening = asyncio.ensure_future(work)
        try:
            engines, cipher = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_dispose_when_opened)
            raise
        return cls(DatabaseExecutor(engines), cipher, create_refresh_locks(engines, data_dir), clock)

    @classmethod
    async def open_from_settings(
        cls, settings: Settings, data_dir: Path, *, migrates: bool = False
    ) -> Database:
        """Open the database that a server with these settings uses, including its chat limits. Only the
        server itself, and `toolyard migrate`, may change the tables of a shared database."""
        database = await cls.open(
            data_dir,
            url=settings.database_url,
            secret_key=settings.secret_key,
            former_key=settings.secret_key_former,
            limits=TimeLimits(answer=settings.database_timeout),
            migrates=migrates,
        )
        database.chats.quota = ChatQuota(
            settings.chat_limit, settings.chat_bytes_limit, settings.chat_bytes_limit_all
        )
        database.chats.attachments.limits = AttachmentLimits(
            settings.attachment_bytes,
            settings.attachments_per_message,
            settings.attachment_bytes_limit,
            settings.attachment_bytes_limit_all,
        )
        return database

    async def ping(self) -> None:
        """Raise StoreError if the database does not answer or no longer uses our key.

        After ``toolyard rekey`` a process that only has the former key must not encrypt with it: those values
        would be unreadable once the former key is unset.
        """
        try:
            await self.executor.read(lambda connection: check_key(connection, self.cipher))
        except WrongKey as error:
            if self.cipher.retire():
                _log.error("no more secrets are stored by this process: %s; %s", error.cause, error.hint)
            raise

    async def watch_key(self) -> None:
        """Check the key whenever it may have been changed, until the database is closed."""
        async with aclosing(self.signals.listen(KEY_CHANNEL)) as changes:
            async for _ in changes:
                # Other failures are reported by whatever needs the database.
                with suppress(StoreError):
                    await self.ping()

    async def close(self) -> None:
        """Write queued chat events and audit entries, wait for running work, and close every connection."""
        await self.chats.close()
        await self.signals.close()
        await self.audit.close()
        await self.executor.close()


def _dispose_when_opened(future: asyncio.Future[tuple[Engines, Cipher]]) -> None:
    """Close connections that were opened after the caller of ``open`` was cancelled."""
    if not future.cancelled() and future.exception() is None:
        future.result()[0].dispose()
