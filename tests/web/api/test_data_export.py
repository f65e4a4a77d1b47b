"""The archive of all data of a person."""

from __future__ import annotations

import asyncio
import io
import json
import time
import zipfile
from collections.abc import AsyncIterator

from sqlalchemy import insert
from tests.loop_watch import LoopWatch
from tests.web.conftest import InProcessApp, SignedInUser

from toolyard.store.sql.tables import grants
from toolyard.types.chat import Chat, Kind, NewChatEvent, TurnState

LONG_TEXT = "a line of a long message\n" * 20_000


async def add_chat(team: InProcessApp, owner: str, chat_id: str, text: str) -> None:
    store = team.services.database.chats
    await store.create(Chat(chat_id, owner, f"About {chat_id}!", time.time(), time.time()))
    message = NewChatEvent(Kind.USER, {"text": text, "model": None, "agent": None, "again": None})
    assert await store.claim(chat_id, "runner", TurnState.IDLE, [message], new_turn=True)
    end = NewChatEvent(Kind.END, {"why": "done", "error": None, "hint": None, "seconds": 1.0})
    await store.append(chat_id, "runner", [end], next_state=TurnState.IDLE)


async def download(person: SignedInUser) -> zipfile.ZipFile:
    answer = await person.browser.get("/api/v1/me/export")
    assert answer.status == 200
    assert answer.headers["Content-Disposition"].startswith('attachment; filename="toolyard-data-')
    return await asyncio.to_thread(zipfile.ZipFile, io.BytesIO(answer.body))


async def test_the_archive_has_all_chats_of_the_person_and_no_others(
    password_site: InProcessApp,
) -> None:
    ann, bob = await password_site.person("ann"), await password_site.person("bob")
    await add_chat(password_site, ann.user.id, "first", "Hello there")
    await add_chat(password_site, ann.user.id, "second", LONG_TEXT)
    await add_chat(password_site, bob.user.id, "other", "Private")

    async def content() -> AsyncIterator[bytes]:
        yield b"attached"

    attachments = password_site.services.chats.attachments
    attachment_id = await attachments.upload(ann.user.id, "../notes.txt", content())
    await password_site.services.database.chats.attachments.bind(ann.user.id, [attachment_id.id], "first")
    archive = await download(ann)
    assert archive.testzip() is None
    assert archive.read(f"chats/first-about-first/{attachment_id.id}-notes.txt") == b"attached"
    assert sorted(archive.namelist()) == [
        "account.json",
        "audit.jsonl",
        "chats/first-about-first.jsonl",
        "chats/first-about-first.md",
        f"chats/first-about-first/{attachment_id.id}-notes.txt",
        "chats/second-about-second.jsonl",
        "chats/second-about-second.md",
        "instances.json",
        "proposals.json",
        "standing-approvals.json",
        "tokens.json",
        "usage.json",
    ]
    assert "Hello there" in archive.read("chats/first-about-first.md").decode()
    events = [json.loads(line) for line in archive.read("chats/second-about-second.jsonl").splitlines()]
    assert [each["kind"] for each in events] == ["user", "end"]
    assert events[0]["body"]["text"] == LONG_TEXT
    assert json.loads(archive.read("account.json"))["name"] == "ann"


async def test_the_archive_contains_no_secret_of_a_token(password_site: InProcessApp) -> None:
    ann = await password_site.person("ann")
    archive = await download(ann)
    assert json.loads(archive.read("tokens.json"))["items"][0]["name"] == "test"
    secret = ann.secret.encode()
    assert all(secret not in archive.read(name) for name in archive.namelist())


async def test_long_standing_approvals_block_no_other_request(password_site: InProcessApp) -> None:
    ann = await password_site.person("ann")
    predicate = json.dumps(
        {"*": {"equal": {"a": [{"b": "\n" * 20, "c": number} for number in range(4_000)]}}}
    )
    now = time.time()
    shared_values = {
        "owner": ann.user.id,
        "tool": "a/b",
        "name": "b",
        "definition_hash": "x",
        "predicate": predicate,
    }
    rows = [
        {**shared_values, "id": f"g{number}", "created_at": now, "expires_at": now + 1_000}
        for number in range(200)
    ]
    executor = password_site.services.database.executor
    await executor.write(lambda connection: connection.execute(insert(grants), rows))
    async with LoopWatch() as watch:
        archive = await download(ann)
    assert watch.longest_seconds < 0.15
    assert len(json.loads(archive.read("standing-approvals.json"))["items"]) == 200
    async with LoopWatch() as watch:
        page = await ann.browser.get("/ui/approvals")
    assert page.text.count("Where * = ") == 200
    assert watch.longest_seconds < 0.15
    async with LoopWatch() as watch:
        response = await ann.token.get("/api/v1/grants")
    assert response.status == 200
    assert watch.longest_seconds < 0.15
