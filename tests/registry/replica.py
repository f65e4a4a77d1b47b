"""One replica: ``replica.py DATA_DIR URL KEY USER INSTANCE CALLS``. It calls when a line comes in.

It opens the database, knows one instance, and prints what each call answered, a line each.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from toolyard.config.settings.table import Settings
from toolyard.core.composition import build_core
from toolyard.errors import ToolyardError
from toolyard.net import OutboundHttp
from toolyard.registry import Registry
from toolyard.registry.auth_provider_factory import AuthProviderFactory
from toolyard.store import Database
from toolyard.types.account import Principal
from toolyard.types.call import Caller, ToolCall
from toolyard.types.server import Configuration


async def main(data_dir: str, url: str, key: str, user: str, instance_id: str, calls: str) -> None:
    database = await Database.open(Path(data_dir), url=url or None, secret_key=key)
    registry, net = Registry(database.registry, Settings()), OutboundHttp()
    credentials = AuthProviderFactory(registry, database.auth, net)
    core = build_core(
        Configuration(), Settings(), data_dir=None, auth_provider_for=credentials.auth_provider_for, net=net
    )
    instance, server = await registry.get_instance(user, instance_id)
    await core.updates.sync_instances(user, [registry.build_instance_server(instance, server)])
    caller = Caller(Principal(user))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)

    async def call() -> str:
        try:
            return (await core.call_path.call(ToolCall(f"mcp_{instance.slug}__whoami"), caller)).text
        except ToolyardError as error:
            return f"{type(error).__name__}: {error.cause}"

    print(*await asyncio.gather(*(call() for _ in range(int(calls)))), sep="\n", flush=True)
    await core.close()
    await net.close()
    await database.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
