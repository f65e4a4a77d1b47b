"""A data directory that an earlier version wrote opens in this one, with all that is in it.

``stored_data`` was written by ``toolyard serve`` of revision 0004: its database as SQL statements, its key,
and its protocol eras. Two servers were added to the registry and connected, one by a sign-in and one with a
key, tools were run in three chats, one call was approved for its chat, and another one waits.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from toolyard.accounts import AccountService
from toolyard.agents.chat.turn_snapshot import ChatSnapshot
from toolyard.catalog.lock.storage import PinKey
from toolyard.clients.handshake import FileEraCache
from toolyard.config.settings.table import PeopleMode, Settings
from toolyard.registry import Registry
from toolyard.store import Database
from toolyard.types.account import Right, Role
from toolyard.types.chat import TurnState

STORED_DATA = Path(__file__).parent / "stored_data"
EXPECTED: dict[str, Any] = json.loads((STORED_DATA / "expected.json").read_text())
WRITE_TIME = 1_795_100_430.0
SETTINGS = Settings(people_mode=PeopleMode.PASSWORD)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in ("secret.key", "eras.json"):
        shutil.copy(STORED_DATA / name, tmp_path)
    with sqlite3.connect(tmp_path / "toolyard.db") as connection:
        connection.executescript((STORED_DATA / "toolyard.sql").read_text())
    connection.close()
    return tmp_path


@pytest.fixture
async def database(data: Path) -> AsyncIterator[Database]:
    database = await Database.open(data, url=None, secret_key=None, clock=lambda: WRITE_TIME)
    yield database
    await database.close()


@pytest.fixture
def people(database: Database) -> AccountService:
    return AccountService(database.accounts, SETTINGS, clock=lambda: WRITE_TIME)


async def find_root(people: AccountService) -> str:
    user = await people.find_user("root")
    assert user is not None
    assert user.role is Role.ADMIN
    return user.id


async def test_people_sign_in_by_password_session_and_token(people: AccountService) -> None:
    root = await find_root(people)
    user, _ = await people.sign_in("root", EXPECTED["password"], "127.0.0.1")
    assert user.id == root
    by_session = await people.authenticate_cookie(EXPECTED["cookie"])
    assert by_session is not None
    assert by_session[1].id == root
    by_token = await people.authenticate_token(EXPECTED["token"])
    assert by_token is not None
    assert (by_token[0].name, by_token[0].scope.rights) == ("mine", frozenset(Right))
    assert by_token[1].id == root


async def test_chats_have_all_their_events(database: Database, people: AccountService) -> None:
    root = await find_root(people)
    chats = sorted(await database.chats.list_chats(root), key=lambda chat: chat.created_at)
    assert [(chat.title, chat.state) for chat in chats] == [
        ("mcp_guard__hello", TurnState.IDLE),
        ("granted", TurnState.IDLE),
        ("waiting", TurnState.WAITING),
    ]
    stored_events = [event for chat in chats for event in await database.chats.list_events(chat.id)]
    names = ("seq", "turn", "kind", "part", "body")
    assert [{name: getattr(event, name) for name in names} for event in stored_events] == [
        {name: event[name] for name in names} for event in EXPECTED["events"]
    ]
    latest = await database.chats.list_latest_events(chats[0].id, chats[0].turn)
    turns = ChatSnapshot.from_events(latest).turns
    assert [call.result.text for turn in turns for call in turn.calls if call.result] == [
        "hello Ada ☃",
        "note Ada ☃",
    ]


async def test_an_approval_waits_and_a_grant_counts(database: Database, people: AccountService) -> None:
    root = await find_root(people)
    (pending,) = await database.approvals.list_pending(root)
    assert (pending.name, pending.arguments) == ("notes_write", {"name": "two"})
    (grant,) = await database.approvals.list_grants(root, WRITE_TIME)
    assert grant.tool == "notes/write"
    assert await database.approvals.answer(root, pending.id, yes=True, at=WRITE_TIME, grant=None)


async def test_servers_keys_and_sign_ins_of_the_registry_are_kept(
    database: Database, people: AccountService
) -> None:
    instances = await Registry(database.registry, SETTINGS).list_instances(await find_root(people))
    (guarded_instance, by_sign_in), (keyed_instance, by_key) = instances
    assert (guarded_instance.slug, by_sign_in.name, guarded_instance.value) == ("guard", "Guarded", None)
    assert (keyed_instance.slug, by_key.name, keyed_instance.value) == ("keyed", "Keyed", "sesame")
    grant = await database.auth.get_grant(guarded_instance.grant_key)
    assert grant is not None
    assert grant.refresh_token
    assert await database.pins.revisions(
        [PinKey(by_sign_in.id), PinKey(by_sign_in.id, guarded_instance.id)]
    ) == (1, 1)


async def test_audit_entries_are_kept(database: Database) -> None:
    actions = [entry.action async for entry in database.audit.export()]
    assert len(actions) == 17
    assert {"user.add", "server.add", "instance.sign_in", "approval.answer", "tool.call"} <= set(actions)


def test_protocol_eras_are_read(data: Path) -> None:
    eras = FileEraCache(data / "eras.json", lambda: b"key")
    first, second = json.loads((STORED_DATA / "eras.json").read_text())
    assert (eras.recall(first), eras.recall(second)) == ("modern", "modern")
    # A key that is stored again is hashed from then on.
    eras.remember(first, "modern")
    document = json.loads((data / "eras.json").read_text())
    assert first not in document
    assert list(document.values()) == ["modern", "modern"]
    assert FileEraCache(data / "eras.json", lambda: b"key").recall(first) == "modern"
