"""Attachments in chunks: within their quota, gone with their chat or after a day, on both databases."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import func, select
from tests.store.repositories.test_chats import chat

from toolyard.errors import AttachmentRefused, ChatQuotaExceeded
from toolyard.store import Database
from toolyard.store.expiry import ExpiredRowCleanup
from toolyard.store.repositories.attachments import AttachmentLimits
from toolyard.store.repositories.cascades import delete_user_rows
from toolyard.store.sql.tables import attachment_chunks, attachments

DAY_SECONDS = 86_400.0


async def upload(database: Database, *chunks: bytes, owner: str = "local") -> str:
    store = database.chats.attachments
    id = await store.begin(owner, "notes.txt")
    for number, chunk in enumerate(chunks):
        await store.add_chunk(owner, id, number, chunk)
    await store.complete(owner, id, "text/plain", sum(map(len, chunks)))
    return id


async def count_rows(database: Database) -> tuple[int, int]:
    """The number of attachments and of chunks."""

    def work(connection: Any) -> tuple[int, int]:
        tables = attachments, attachment_chunks
        counts = [connection.execute(select(func.count()).select_from(each)).scalar_one() for each in tables]
        return counts[0], counts[1]

    return await database.executor.read(work)


async def test_another_process_reads_an_attachment_in_chunks(
    database: Database, reopen: Callable[..., Awaitable[Database]]
) -> None:
    id = await upload(database, b"one, ", b"two, ", b"three")
    other = (await reopen()).chats.attachments
    attachment = (await other.find("local", [id]))[id]
    assert (attachment.attachment.size, attachment.attachment.mime, attachment.chat_id) == (
        15,
        "text/plain",
        None,
    )
    assert [chunk async for chunk in other.read_chunks(id)] == [b"one, ", b"two, ", b"three"]
    assert await other.load(id) == b"one, two, three"
    assert not await other.find("ann", [id])


async def test_an_attachment_is_deleted_with_its_chat_and_with_its_owner(database: Database) -> None:
    store = database.chats.attachments
    sent_ids, unsent = await upload(database, b"x", b"y"), await upload(database, b"z")
    await upload(database, b"other", owner="ann")
    await database.chats.create(chat(1))
    await store.bind("local", [sent_ids], "chat-1")
    await database.chats.delete("local", "chat-1")
    assert not await store.find("local", [sent_ids])
    assert await count_rows(database) == (2, 2)
    assert await store.delete_unsent("local", unsent)
    await database.executor.write(lambda connection: delete_user_rows(connection, "ann"))
    assert await count_rows(database) == (0, 0)


async def test_an_attachment_belongs_to_one_chat_and_is_not_deleted_from_it(database: Database) -> None:
    store = database.chats.attachments
    id = await upload(database, b"x")
    for number in (1, 2):
        await database.chats.create(chat(number))
    await store.bind("local", [id], "chat-1")
    with pytest.raises(AttachmentRefused):
        await store.bind("local", [id], "chat-2")
    assert not await store.delete_unsent("local", id)
    await store.unbind("local", [id])
    await store.bind("local", [id], "chat-2")
    assert (await store.find("local", [id]))[id].chat_id == "chat-2"


async def test_an_upload_that_is_not_sent_or_was_cut_off_expires(
    reopen: Callable[..., Awaitable[Database]],
) -> None:
    now = 1_000_000.0
    database = await reopen(clock=lambda: now)
    store = database.chats.attachments
    await upload(database, b"unsent")
    await store.add_chunk("local", await store.begin("local", "cut-off.txt"), 0, b"half of it")
    kept_ids = await upload(database, b"sent")
    await database.chats.create(chat(1))
    await store.bind("local", [kept_ids], "chat-1")
    now += DAY_SECONDS + 1
    later = await upload(database, b"later")
    assert set(await store.find("local", [kept_ids, later])) == {kept_ids, later}
    assert await count_rows(database) == (2, 2)


async def test_the_regular_cleanup_deletes_expired_uploads(
    reopen: Callable[..., Awaitable[Database]],
) -> None:
    now = 1_000_000.0
    database = await reopen(clock=lambda: now)
    cleanup = ExpiredRowCleanup(database.executor, lambda: now, monotonic=lambda: now)
    await upload(database, b"unsent")
    now += DAY_SECONDS - 1
    await cleanup.delete_expired(0)
    assert await count_rows(database) == (1, 1)
    now += 2
    await cleanup.delete_expired(0)
    assert await count_rows(database) == (0, 0)


async def test_an_upload_ends_at_the_quota_of_the_user_or_of_all(database: Database) -> None:
    store = database.chats.attachments
    store.limits = AttachmentLimits(bytes=10, bytes_in_all=15)
    first = await upload(database, b"1234567")
    id = await store.begin("local", "more.txt")
    await store.add_chunk("local", id, 0, b"890")
    with pytest.raises(ChatQuotaExceeded, match="10 bytes"):
        await store.add_chunk("local", id, 1, b"!")
    assert await count_rows(database) == (2, 2)
    with pytest.raises(ChatQuotaExceeded, match="10 bytes"):
        await store.begin("local", "another.txt")
    await upload(database, b"12345", owner="ann")
    with pytest.raises(ChatQuotaExceeded, match="all users"):
        await store.begin("ann", "more.txt")
    assert await store.delete_unsent("local", first)
    await upload(database, b"!", owner="ann")


async def test_an_upload_of_known_size_counts_as_a_whole_from_its_beginning(database: Database) -> None:
    """Otherwise uploads at once that do not all fit would refuse each other."""
    store = database.chats.attachments
    store.limits = AttachmentLimits(bytes=10)
    ids = [await store.begin("local", f"{number}.txt", size=4) for number in range(2)]
    with pytest.raises(ChatQuotaExceeded, match="10 bytes"):
        await store.begin("local", "third.txt", size=4)
    for number in range(4):
        for id in ids:
            await store.add_chunk("local", id, number, b"x", growth=0)
    for id in ids:
        await store.complete("local", id, "text/plain", 4)
    attachments = await store.find("local", ids)
    assert {each.attachment.size for each in attachments.values()} == {4}
    await store.begin("local", "third.txt", size=2)


async def test_the_oldest_unsent_upload_makes_room_for_the_newest(
    reopen: Callable[..., Awaitable[Database]],
) -> None:
    now = 1_000.0
    database = await reopen(clock=lambda: now)
    database.chats.attachments.limits = AttachmentLimits(unsent=3)
    await database.chats.create(chat(1))
    sent_ids = await upload(database, b"sent")
    await database.chats.attachments.bind("local", [sent_ids], "chat-1")
    ids: list[str] = []
    for _ in range(5):
        now += 1
        ids.append(await upload(database, b"x"))
    assert set(await database.chats.attachments.find("local", [sent_ids, *ids])) == {sent_ids, *ids[2:]}


async def test_an_upload_that_was_removed_takes_no_more_chunks(database: Database) -> None:
    store = database.chats.attachments
    id = await store.begin("local", "notes.txt")
    assert await store.delete_unsent("local", id)
    with pytest.raises(AttachmentRefused, match="no longer available"):
        await store.add_chunk("local", id, 0, b"x")
    assert await count_rows(database) == (0, 0)
