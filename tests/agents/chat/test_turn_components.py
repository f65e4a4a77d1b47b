"""Small parts of a turn: limits, progress, storable values, and the writing of text pieces."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agents.chat.chat_harness import KEY, ME

from toolyard.agents.chat.errors import NotHeld
from toolyard.agents.chat.result_event import failure_event
from toolyard.agents.chat.storable_values import is_storable_json, parse_tool_arguments, sanitize_text
from toolyard.agents.chat.turn_limits import (
    ChatLimits,
    find_reached_limit,
    find_refused_calls,
    find_repeated_call,
)
from toolyard.agents.chat.turn_log import TurnLog, read_chat_events
from toolyard.agents.chat.turn_snapshot import TurnSnapshot, call_key
from toolyard.config import load_settings
from toolyard.store import Database
from toolyard.types.chat import (
    CallRequest,
    Chat,
    ChatEvent,
    Kind,
    NewChatEvent,
    ReasoningDelta,
    TextDelta,
    TurnState,
)

RULES = ChatLimits()

# Guards.


def turn(*turn_values: Any, asks: Any = (), steps: int = 0, tokens: int = 0) -> TurnSnapshot:
    """Return a turn with calls that have a result, followed by calls c0, c1, ... without one."""
    events = [event(1, Kind.USER, text="a"), event(2, Kind.USAGE, input=tokens)]
    events += [event(10 + n, Kind.MODEL_MESSAGE, f"step-{n}", text="b") for n in range(steps)]
    for n, arguments in enumerate(turn_values):
        events.append(event(100 + 2 * n, Kind.CALL, id=f"m{n}", name="t", arguments=arguments))
        events.append(event(101 + 2 * n, Kind.RESULT, id=f"m{n}"))
    for n, arguments in enumerate(asks):
        events.append(event(200 + n, Kind.CALL, id=f"c{n}", name="t", arguments=arguments))
    return TurnSnapshot.from_events(events)


def test_the_model_may_be_asked_until_a_limit_is_reached() -> None:
    rules = ChatLimits(max_steps=3, token_budget=100)
    assert find_reached_limit(turn(steps=2, tokens=99), rules, None) is None
    assert find_reached_limit(turn(steps=3), rules, None) is not None
    assert find_reached_limit(turn(steps=3), rules, 4) is None
    assert find_reached_limit(turn(steps=1), rules, 1) is not None
    assert find_reached_limit(turn(tokens=100), rules, None) is not None


def test_the_third_time_is_refused_whether_in_one_answer_or_in_three() -> None:
    assert list(find_refused_calls(turn({"a": 1}, {"a": 1}, asks=[{"a": 1}, {"a": 2}]), RULES)) == ["c0"]
    assert list(find_refused_calls(turn(asks=[{"a": 1, "b": 2}] * 5), RULES)) == ["c2", "c3", "c4"]
    argument_sets = [{"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1, "b": 2}]
    assert list(find_refused_calls(turn(asks=argument_sets), RULES)) == ["c2"]
    assert find_refused_calls(turn(asks=[{"a": 1}, {"a": True}, {"a": "1"}]), RULES) == {}


def test_repeated_calls_after_a_refusal_reach_a_limit() -> None:
    assert find_repeated_call(turn(*[{"a": 1}] * 2, asks=[{"a": 1}])) is None
    assert find_repeated_call(turn(*[{"a": 1}] * 3, asks=[{"a": 2}])) is None
    again = turn(*[{"a": 1}] * 3, asks=[{"a": 1}])
    assert find_repeated_call(again) is not None
    # It was checked before the person was asked.
    assert find_repeated_call(again.apply([event(300, Kind.APPROVAL_REQUEST, id="c0", approval="x")])) is None


def test_the_rules_come_from_the_settings(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, env={}, overrides={"max_steps": 7, "turn_token_budget": 5_000})
    rules = ChatLimits.from_settings(settings)
    assert (rules.max_steps, rules.token_budget) == (7, 5_000)
    assert ChatLimits.from_settings(load_settings(tmp_path, env={})).token_budget == 1_000_000


# Storable values.


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (None, {}),
        ("", {}),
        ("{}", {}),
        ('{"a": [1, null]}', {"a": [1, None]}),
        ({"a": 1}, {"a": 1}),
        ("[]", None),
        ("null", None),
        ("{", None),
        ('{"a": NaN}', None),
        ('{"a": 123456789012345678901234567890}', None),
        ('{"a": "\\ud800"}', None),
        ('{"a":' * 300 + "1" + "}" * 300, None),
        ('{"a":' * 100_000, None),
        ({"a": object()}, None),
    ],
)
def test_arguments_of_a_model(arguments: object, expected: object) -> None:
    assert parse_tool_arguments(arguments) == expected


@given(st.text())
def test_clean_texts_can_be_stored_and_are_left_alone(text: str) -> None:
    clean_text = sanitize_text(text)
    clean_text.encode()
    assert "\0" not in clean_text
    assert sanitize_text(clean_text) == clean_text
    assert len(clean_text) == len(text)
    if "\0" not in text:
        assert clean_text == text or not text.isascii()


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=20))
def test_json_values_can_be_written(value: object) -> None:
    if is_storable_json(value):
        # NaN is not equal to itself, but is written and read.
        assert repr(json.loads(json.dumps(value))) == repr(value)


# Progress of a turn.


def event(seq: int, kind: Kind, part: str = "", **body: Any) -> ChatEvent:
    return ChatEvent("c", seq, 1, kind, float(seq), body, part)


def test_how_far_a_turn_is_stands_in_its_events() -> None:
    events = [
        event(1, Kind.USER, text="a"),
        event(2, Kind.MODEL_MESSAGE, text="b", calls=3),
        event(3, Kind.USAGE, input=10, output=5, cached=2),
        event(4, Kind.CALL, id="x", name="t", arguments={"a": 1}),
        event(5, Kind.CALL, id="y", name="t", arguments="broken"),
        event(6, Kind.CALL, id="z", name="t", arguments={}),
        event(7, Kind.RESULT, id="x"),
        event(8, Kind.APPROVAL_REQUEST, id="y", approval="p"),
        event(9, Kind.APPROVAL_REQUEST, id="z", approval="q"),
        event(10, Kind.APPROVAL_ANSWER, approval="p", yes=True),
        event(11, Kind.APPROVAL_ANSWER, approval="p", yes=False),
        event(12, Kind.QUESTION, id="w"),
        event(13, Kind.TEXT, "step-2", delta="He"),
        event(14, Kind.REASONING, "step-2", delta="hm"),
        event(15, Kind.TEXT, "step-2", delta="y"),
    ]
    standing = TurnSnapshot.from_events(events)
    assert (standing.steps, standing.usage.tokens, standing.text, standing.end) == (1, 15, "a", None)
    assert [(each.request.id, each.request.arguments, each.approved) for each in standing.open_calls] == [
        ("y", "broken", True),
        ("z", {}, None),
    ]
    assert standing.pending_approval_ids == ["q"]
    assert [each.question.id for each in standing.open_questions] == ["w"]
    assert standing.count_completed_calls() == {call_key(CallRequest(name="t", arguments={"a": 1})): 1}
    partial = standing.answers[-1]
    assert (partial.part, partial.text, partial.reasoning, partial.seq) == ("step-2", "Hey", "hm", None)
    model_message = event(16, Kind.MODEL_MESSAGE, "step-2", text="Hey")
    assert TurnSnapshot.from_events([*events, model_message]).answers[-1].seq == 16
    # Applying events one at a time or all at once gives the same.
    assert functools.reduce(lambda turn, each: turn.apply([each]), events, TurnSnapshot()) == standing


def test_items_that_did_not_change_stay_the_same_objects() -> None:
    """A page that follows a turn uses identity to find out which items to send again."""
    before = turn({"a": 1}, {"a": 2}, asks=[{"a": 3}], steps=2)
    after = before.apply([event(300, Kind.PROGRESS, "c0", id="c0", progress=1)])
    keys = [new.key for old, new in zip(before.items, after.items, strict=True) if old is not new]
    assert keys == ["c200"]


# Storage of text pieces.


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = await Database.open(tmp_path / "data", url=None, secret_key=KEY)
    yield database
    await database.close()


@pytest.fixture
async def scribe(database: Database) -> TurnLog:
    chat = Chat("c", ME, "", 1.0, 1.0)
    await database.chats.create(chat)
    first_events = [NewChatEvent(Kind.USER, {"text": "a"})]
    assert await database.chats.claim("c", "me", TurnState.IDLE, first_events, new_turn=True)
    return TurnLog(database.chats, "c", "me")


async def test_pieces_are_gathered_and_give_way_to_the_whole(database: Database, scribe: TurnLog) -> None:
    words = [f"w{n} " for n in range(200)]
    for word in words:
        scribe.add_piece(TextDelta(word), "step-1")
    events = list(await database.chats.wait_for_events("c", 1, 10))
    assert len(events) < 10
    while "".join(each.body["delta"] for each in events) != "".join(words):
        events += await database.chats.wait_for_events("c", events[-1].seq, 10)
    scribe.add_piece(TextDelta("never written"), "step-1")
    [model_event] = await scribe.append([NewChatEvent(Kind.MODEL_MESSAGE, {"text": "all"}, "step-1")])
    assert model_event.kind is Kind.MODEL_MESSAGE
    await scribe.finish()
    assert [each.kind for each in await read_chat_events(database.chats, "c")] == [
        Kind.USER,
        Kind.MODEL_MESSAGE,
    ]


async def test_buffered_events_are_written_before_later_ones(database: Database, scribe: TurnLog) -> None:
    scribe.add_piece(ReasoningDelta("hm"), "step-1")
    scribe.add_piece(TextDelta("a\0"), "step-1")
    scribe.add_piece(TextDelta("b"), "step-1")
    note_event = await scribe.append([NewChatEvent(Kind.NOTE, {"text": "n", "hint": None})])
    assert [each.kind for each in note_event] == [Kind.NOTE]
    await scribe.finish()
    chat_events = await read_chat_events(database.chats, "c", after=1)
    assert [(each.kind, each.body.get("delta")) for each in chat_events] == [
        (Kind.REASONING, "hm"),
        (Kind.TEXT, "a\ufffdb"),
        (Kind.NOTE, None),
    ]


async def test_progress_is_told_rarely_and_the_newest_stays(database: Database, scribe: TurnLog) -> None:
    for n in range(1, 101):
        scribe.report_progress("x", {"progress": n, "total": 100, "message": "m" * 900})
    chat_events: list[ChatEvent] = []
    while not chat_events or chat_events[-1].body["progress"] != 100:
        chat_events += await database.chats.wait_for_events(
            "c", chat_events[-1].seq if chat_events else 1, 10
        )
    assert len(chat_events) <= 3
    assert (chat_events[-1].part, len(chat_events[-1].body["message"])) == ("x", 500)
    scribe.report_progress("x", {"progress": float("nan"), "total": True, "message": 7})
    await scribe.append([failure_event("x", "over")])
    await scribe.finish()
    assert [each.kind for each in await read_chat_events(database.chats, "c", after=1)] == [Kind.RESULT]


async def test_a_write_that_began_is_seen_through(database: Database, scribe: TurnLog) -> None:
    for n in range(20):
        writing = asyncio.ensure_future(scribe.append([NewChatEvent(Kind.NOTE, {"text": str(n)})]))
        await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
    await scribe.finish()
    chat_events = await read_chat_events(database.chats, "c", after=1)
    assert [each.body["text"] for each in chat_events] == [str(n) for n in range(20)]


async def test_once_it_has_settled_nothing_more_is_written(database: Database, scribe: TurnLog) -> None:
    """The end of a turn reads the stored events and adds the missing ones: nothing is written in between."""
    task = asyncio.ensure_future(scribe.append([NewChatEvent(Kind.NOTE, {"text": "began"})]))
    await asyncio.sleep(0)
    finish_task = asyncio.ensure_future(scribe.finish())
    await asyncio.sleep(0)
    with pytest.raises(NotHeld):
        await scribe.append([NewChatEvent(Kind.NOTE, {"text": "late"})])
    await asyncio.gather(task, finish_task)
    chat_events = await read_chat_events(database.chats, "c", after=1)
    assert [each.body["text"] for each in chat_events] == ["began"]


async def test_a_runner_that_lost_the_chat_is_notified(database: Database, scribe: TurnLog) -> None:
    assert await database.chats.take_over("c", "another", "me")
    scribe.add_piece(TextDelta("a"), "step-1")
    async with asyncio.timeout(30):
        while True:
            try:
                scribe.add_piece(TextDelta("b"), "step-1")
            except NotHeld:
                break
            await asyncio.sleep(0.01)
    with pytest.raises(NotHeld):
        await scribe.append([NewChatEvent(Kind.NOTE, {})])
    with pytest.raises(NotHeld):
        await scribe.finish()
    assert await read_chat_events(database.chats, "c", after=1) == []


async def test_a_chat_is_read_page_by_page(database: Database, scribe: TurnLog) -> None:
    await scribe.append([NewChatEvent(Kind.NOTE, {"n": n}) for n in range(2_500)])
    chat_events = await read_chat_events(database.chats, "c")
    assert [each.seq for each in chat_events] == list(range(1, 2_502))
    some = await read_chat_events(database.chats, "c", after=100, before=1_200)
    assert [each.seq for each in some] == list(range(101, 1_200))
