"""Write to a database without end and print the confirmed writes: ``database_writer.py FOLDER [URL]``.

Each line of output is a confirmed write, which must be in the database after the process is killed.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from uuid import uuid4

from toolyard.config.settings.table import Settings
from toolyard.registry import ChoiceDraft, InstanceDraft, Registry, ServerDraft
from toolyard.store import Database
from toolyard.store.errors import StoreError
from toolyard.types.account import Role
from toolyard.types.audit import AuditEntry

KEY = "a key for tests, long enough"
SECRET = "the-secret-that-is-never-in-the-clear"
PROMISE = "promise"


async def main(folder: Path, url: str | None) -> None:
    database = await Database.open(folder, url=url, secret_key=KEY)
    registry = Registry(database.registry, Settings(), clock=lambda: 1.0)
    user = await database.accounts.add_user(uuid4().hex, Role.USER)
    choice = ChoiceDraft(kind="header", key="X-Key")
    server = await registry.add_server(ServerDraft(uuid4().hex, "https://example.org/mcp", choices=(choice,)))
    while True:
        slug = uuid4().hex[:20]
        draft = InstanceDraft(server.id, server.choices[0].id, slug, "Name", value=SECRET)
        try:
            instance = await registry.create_instance(user.id, draft)
            entry = AuditEntry(at=1.0, action=PROMISE, actor=user.id, actor_name="", target=instance.id)
            await database.audit.write(entry)
        except StoreError as error:
            print(f"error {' '.join(error.cause.split())}", flush=True)
            await asyncio.sleep(0.05)
            continue
        print(f"kept {user.id} {instance.id}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None))
