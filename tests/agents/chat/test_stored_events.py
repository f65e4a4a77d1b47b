"""Stored events: those of earlier versions are read unchanged, those of later versions are left alone."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy import create_engine, text
from tests.agents.chat.chat_harness import KEY, ME

from toolyard.agents.chat.turn_snapshot import ChatSnapshot
from toolyard.store import Database
from toolyard.types.chat import (
    Attachment,
    Chat,
    ChatEvent,
    Kind,
    NewChatEvent,
    TurnState,
    UnknownEvent,
    UserMessage,
)
from toolyard.web.api.chat_models import EventResponse

STORED_EVENTS = json.loads((Path(__file__).parent / "stored_events.json").read_text())
"""Events stored by turns before events had classes: every kind, with every type that a key had."""


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = await Database.open(tmp_path / "data", url=None, secret_key=KEY)
    await database.chats.create(Chat("c", ME, "a", 0.0, 0.0))
    yield database
    await database.close()


def in_order(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def read_event(kind: Kind, body: dict[str, Any]) -> Any:
    return ChatEvent("c", 1, 1, kind, 0.0, body).data


def test_every_kind_is_among_the_stored_events() -> None:
    assert {each["kind"] for each in STORED_EVENTS} == {kind.value for kind in Kind}


@pytest.mark.parametrize("stored_event", STORED_EVENTS, ids=lambda each: each["kind"])
def test_a_stored_event_is_read_and_written_unchanged(stored_event: dict[str, Any]) -> None:
    data = read_event(Kind(stored_event["kind"]), stored_event["body"])
    assert data.event_kind.value == stored_event["kind"]
    assert in_order(NewChatEvent.from_data(data).body) == in_order(stored_event["body"])


def test_attachments_are_a_key_that_messages_without_any_do_not_have() -> None:
    attachment = Attachment("f1", "notes.txt", "text/plain", 12)
    body = NewChatEvent.from_data(UserMessage("Hello", attachments=(attachment,))).body
    assert body["attachments"] == [{"id": "f1", "name": "notes.txt", "mime": "text/plain", "size": 12}]
    assert read_event(Kind.USER, body) == UserMessage("Hello", attachments=(attachment,))
    assert "attachments" not in NewChatEvent.from_data(UserMessage("Hello")).body
    strange = {**body, "attachments": ["x", {"id": 1, "name": "y", "later": True}]}
    assert read_event(Kind.USER, strange) == UserMessage("Hello", attachments=(Attachment(name="y"),))


async def test_stored_events_come_back_from_the_database_and_the_api_as_they_were(database: Database) -> None:
    events = [
        NewChatEvent(Kind(each["kind"]), each["body"], f"{number}-{each['part']}")
        for number, each in enumerate(STORED_EVENTS)
    ]
    await database.chats.claim("c", "me", TurnState.IDLE, events, new_turn=True)
    found_events = await database.chats.list_events("c")
    assert [in_order(each.body) for each in found_events] == [
        in_order(each["body"]) for each in STORED_EVENTS
    ]
    event_documents = [EventResponse.of(each).model_dump(mode="json") for each in found_events]
    assert [(each["kind"], in_order(each["body"])) for each in event_documents] == [
        (each["kind"], in_order(each["body"])) for each in STORED_EVENTS
    ]


async def test_kinds_and_keys_of_a_later_version_survive(database: Database, tmp_path: Path) -> None:
    later = {"text": "hello", "model": None, "agent": None, "again": None, "mood": {"good": [1, 2.5]}}
    await database.chats.claim("c", "me", TurnState.IDLE, [NewChatEvent(Kind.USER, later)], new_turn=True)
    await database.chats.append("c", "me", [NewChatEvent(Kind.NOTE, {"text": "n", "hint": None})])
    engine = create_engine(f"sqlite:///{tmp_path / 'data' / 'toolyard.db'}")
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE chat_events SET kind = 'later', body = :body WHERE seq = 2"),
            {"body": '{"a": [null, "b"]}'},
        )
    engine.dispose()
    user, unknown = await database.chats.list_events("c")
    assert (user.data, user.body) == (UserMessage("hello"), later)
    assert (unknown.kind, unknown.data, unknown.body) == ("later", UnknownEvent(), {"a": [None, "b"]})
    document = json.loads(EventResponse.of(unknown).model_dump_json())
    assert (document["kind"], document["body"]) == ("later", {"a": [None, "b"]})
    # Serialised again, it is unchanged.
    again = NewChatEvent(unknown.kind, dict(unknown.body), unknown.part)
    (copy,) = await database.chats.append("c", "me", [again])
    assert (copy.kind, copy.body) == (unknown.kind, unknown.body)
    [turn] = ChatSnapshot.from_events(await database.chats.list_events("c")).turns
    assert (turn.text, turn.items, turn.state) == ("hello", (), "running")


def test_a_value_of_another_type_is_read_as_missing() -> None:
    data = read_event(Kind.RESULT, {"id": 5, "ok": 1, "text": None, "media": [3, {"mime": "a", "size": "b"}]})
    assert NewChatEvent.from_data(data).body == {
        "id": "",
        "ok": False,
        "text": "",
        "length": 0,
        "cause": None,
        "seconds": 0.0,
        "media": [{"kind": "", "mime": "a", "size": 0}],
        "handle": None,
        "reconnect": None,
    }
