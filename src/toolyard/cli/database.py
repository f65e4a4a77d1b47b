"""The database, opened for one command: its accounts, sign-ins and audit log."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from toolyard.cli.invocation import Options, run_async

if TYPE_CHECKING:
    from toolyard.accounts import AccountService
    from toolyard.auth.storage import AuthStorage
    from toolyard.registry.sign_out import SignOutService
    from toolyard.store import Database
    from toolyard.types.account import User

__all__ = [
    "AUDIT_ACTOR_NAME",
    "open_database",
    "open_existing_database",
    "open_sign_out_service",
    "record_audit_entry",
    "record_if_database_exists",
    "require_user",
    "run_with_database",
]

T = TypeVar("T")

AUDIT_ACTOR_NAME = "command line"
"""Actor of audit entries; the operator of the command line has no account."""


@asynccontextmanager
async def open_database(options: Options, *, migrates: bool = False) -> AsyncGenerator[Database]:
    """Open the database, which is created if there is none. Raises StoreError."""
    from toolyard.store import Database  # slow to load

    settings, folder = options.load_settings(), options.resolved_data_dir
    database = await Database.open_from_settings(settings, folder, migrates=migrates)
    try:
        yield database
    finally:
        await database.close()


def run_with_database(options: Options, operation: Callable[[Database], Coroutine[Any, Any, T]]) -> T:
    """Run an operation with the database open. Raises StoreError."""

    async def run_operation() -> T:
        async with open_database(options) as database:
            return await operation(database)

    return run_async(run_operation())


@asynccontextmanager
async def open_existing_database(options: Options) -> AsyncGenerator[Database | None]:
    """Open the database if a server has used the data directory, else yield None. Raises StoreError."""
    from toolyard.store.lazy_database import LazyDatabase  # not for the help

    lazy_database = LazyDatabase(options.load_settings(), options.resolved_data_dir)
    try:
        yield await lazy_database.open_if_exists()
    finally:
        await lazy_database.close()


@asynccontextmanager
async def open_sign_out_service(options: Options, storage: AuthStorage) -> AsyncGenerator[SignOutService]:
    """Open the service that revokes tokens. Pending revocations get up to a minute at the end."""
    import asyncio  # slow to load, as the whole core is

    from toolyard.net import AddressGuard, OutboundHttp
    from toolyard.registry.sign_out import SignOutService

    settings = options.load_settings()
    net = OutboundHttp(AddressGuard.from_settings(settings.guard_allow, settings.guard_deny))
    revocations: list[Coroutine[Any, Any, None]] = []
    try:
        yield SignOutService(storage, net, revocations.append)
        await asyncio.gather(*revocations)
    finally:
        await net.close()


async def require_user(people: AccountService, name: str) -> User:
    """Return the account with this name. Raises NoSuchUser."""
    user = await people.find_user(name)
    if user is None:
        from toolyard.accounts.errors import NoSuchUser  # loaded with the accounts

        raise NoSuchUser(f"unknown user '{name}'", hint="`toolyard users list` shows all users")
    return user


async def record_audit_entry(database: Database, action: str, target: str = "", **details: object) -> None:
    """Write an entry durably. Raises StoreError."""
    from toolyard.types.audit import AuditEntry  # not for the help

    entry = AuditEntry(time.time(), action, "", AUDIT_ACTOR_NAME, target, details=details)
    await database.audit.write(entry)


async def record_if_database_exists(
    options: Options, action: str, details_by_target: Mapping[str, Mapping[str, object]]
) -> None:
    """Write an entry for each target if a server has used the data directory. Raises StoreError.

    For actions on files, which need no database themselves.
    """
    async with open_existing_database(options) as database:
        if database is not None:
            for target, details in details_by_target.items():
                await record_audit_entry(database, action, target, **details)
