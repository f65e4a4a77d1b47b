"""Letters between processes, in each kind of database."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import select, update
from tests.postgres import KEY
from tests.tasks import cancel

from toolyard.store import Database
from toolyard.store.sql.tables import letters

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def test_letters_are_taken_once_and_in_order(database: Database) -> None:
    mail = database.mailbox
    for number in range(3):
        await mail.post("a", b"%d" % number)
    await mail.post("b", b"other")
    assert await mail.take("a") == [b"0", b"1", b"2"]
    assert await mail.take("a") == ()
    assert await mail.take("b") == [b"other"]


async def test_a_letter_is_sealed_for_its_box(database: Database) -> None:
    await database.mailbox.post("a", b"a word for you alone")
    bodies = await database.executor.read(lambda c: c.execute(select(letters.c.body)).scalar_one())
    assert b"alone" not in bodies
    await database.executor.write(lambda c: c.execute(update(letters).values(box="b")))
    assert await database.mailbox.take("b") == []


async def test_untaken_messages_are_deleted(database: Database) -> None:
    await database.mailbox.post("gone", b"old")
    await database.executor.write(lambda c: c.execute(update(letters).values(sent_at=1.0)))
    await database.mailbox.post("a", b"new")
    assert await database.mailbox.take("gone") == ()
    assert await database.mailbox.take("a") == [b"new"]


async def test_another_process_hears_of_a_letter(
    database: Database, database_url: str | None, tmp_path: Path, wait_until: Callable[..., Awaitable[None]]
) -> None:
    other = await Database.open(tmp_path / "data", url=database_url, secret_key=KEY)
    payloads: list[str] = []

    async def listen() -> None:
        async with aclosing(other.mailbox.watch_mailbox_names()) as listening:
            async for box in listening:
                payloads.append(box)  # noqa: PERF401 - it is read meanwhile

    listening = asyncio.create_task(listen())
    await wait_until(lambda: other.signals.is_listening, 30)
    payloads.clear()
    await database.mailbox.post("a", b"x")
    # With SQLite one hears only that there is something.
    await wait_until(lambda: bool({"a", ""} & set(payloads)), 30)
    assert await other.mailbox.take("a") == [b"x"]
    await cancel(listening)
    await other.close()
