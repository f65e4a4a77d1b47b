"""Deletion and sign-out of accounts at the command line, with revocation of their tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from toolyard.cli.input.options import Options
from toolyard.config import load_config
from toolyard.errors import ConfigError
from toolyard.net import AddressGuard, OutboundHttp
from toolyard.registry import Registry
from toolyard.registry.sign_out import SignOuts
from toolyard.types.server import Server

if TYPE_CHECKING:
    from toolyard.config.settings.table import Settings
    from toolyard.store import Database
    from toolyard.types.account import User

__all__ = ["delete_user", "sign_out_user"]


async def delete_user(options: Options, settings: Settings, database: Database, user: User) -> None:
    """Delete an account, and revoke its tokens."""
    async with _open_revocation(settings, database) as (sign_outs, registry):
        held = await sign_outs.collect_user_grants(
            registry, user.principal, _load_configured_servers(options)
        )
        await database.accounts.delete_user(user.id)
        sign_outs.revoke_in_background(held)


async def sign_out_user(options: Options, settings: Settings, database: Database, user: User) -> None:
    """Sign an account out of every server, and revoke its tokens."""
    async with _open_revocation(settings, database) as (sign_outs, registry):
        await sign_outs.sign_out_user(registry, user.principal, _load_configured_servers(options))


@asynccontextmanager
async def _open_revocation(
    settings: Settings, database: Database
) -> AsyncGenerator[tuple[SignOuts, Registry]]:
    """Open the services for revocation; pending revocations get up to a minute at the end."""
    net = OutboundHttp(AddressGuard.from_settings(settings.guard_allow, settings.guard_deny))
    returning: list[Coroutine[Any, Any, None]] = []
    try:
        yield SignOuts(database.auth, net, returning.append), Registry(database.registry, settings)
        await asyncio.gather(*returning)
    finally:
        await net.close()


def _load_configured_servers(options: Options) -> Sequence[Server]:
    """Return the configured servers; errors in the files do not prevent deleting an account."""
    try:
        return tuple(load_config(options.config, data_dir=options.resolved_data_dir).servers.values())
    except ConfigError:
        return ()
