"""Chats and their events, on both databases."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tasks import cancel

from toolyard.agents.chat.errors import NoSuchChat, NotHeld
from toolyard.store import Database
from toolyard.store.errors import Conflict, StoreClosed, Unstorable
from toolyard.types.account import User
from toolyard.types.chat import Chat, ChatEvent, Kind, NewChatEvent, TurnState

ME, OTHER = "runner-1", "runner-2"


def chat(number: int = 1, owner: str = "local", **values: Any) -> Chat:
    return Chat(
        **{
            "id": f"chat-{number}",
            "owner": owner,
            "title": "",
            "created_at": 1.0,
            "updated_at": 1.0,
            **values,
        }
    )


def build_model_event(text: str, kind: Kind = Kind.MODEL_MESSAGE, **values: Any) -> NewChatEvent:
    return NewChatEvent(kind, {"text": text}, **values)


def piece(delta: str, part: str = "step-1") -> NewChatEvent:
    return NewChatEvent(Kind.TEXT, {"delta": delta}, part)


def numbers(events: Sequence[ChatEvent] | None) -> list[int]:
    return [event.seq for event in events or ()]


async def begin_chat(database: Database, one: Chat | None = None, text: str = "hello") -> Chat:
    """A chat that ME works on, in its first turn."""
    one = one or chat()
    await database.chats.create(one)
    events = await database.chats.claim(
        one.id, ME, TurnState.IDLE, [build_model_event(text, Kind.USER)], new_turn=True
    )
    assert numbers(events) == [1]
    return one


# Chats.


async def test_a_chat_comes_back_as_it_was_stored(database: Database) -> None:
    one = chat(title="½ A title", agent="coder", model="m", choice=("a/b", "@local/x/c"))
    await database.chats.create(one)
    assert await database.chats.get("local", one.id) == one
    assert await database.chats.get("ann", one.id) is None
    assert await database.chats.get("local", "no\0such\ud800") is None
    with pytest.raises(Conflict):
        await database.chats.create(one)
    empty = chat(2, choice=())
    await database.chats.create(empty)
    assert (await database.chats.get("local", empty.id)) == empty


async def test_a_change_stores_only_the_fields_of_the_owner(database: Database) -> None:
    one = await begin_chat(database)
    changed_chat = replace(
        one, title="New", agent="a", model="m", choice=("x/y",), state=TurnState.WAITING, last=9, turn=9
    )
    assert await database.chats.change(changed_chat)
    chat = await database.chats.get("local", one.id)
    assert chat == replace(
        changed_chat, state=TurnState.RUNNING, last=1, turn=1, updated_at=chat and chat.updated_at
    )
    assert not await database.chats.change(replace(changed_chat, owner="ann"))
    assert not await database.chats.change(replace(changed_chat, id="chat-9"))


async def test_a_title_may_hold_anything(database: Database) -> None:
    await database.chats.create(chat(title="a\0b\ud800c"))
    stored_chat = await database.chats.get("local", "chat-1")
    assert stored_chat is not None
    assert stored_chat.title == "a\ufffdb?c"


async def test_the_chat_that_changed_last_comes_first_and_pages_follow(database: Database) -> None:
    for number, at in enumerate([5.0, 7.0, 7.0, 6.0, 1.0], 1):
        await database.chats.create(chat(number, updated_at=at))
    await database.chats.create(chat(9, "ann"))
    chat_ids: list[str] = []
    before = None
    while page := await database.chats.list_chats("local", before=before, limit=2):
        chat_ids += [one.id for one in page]
        before = (page[-1].updated_at, page[-1].id)
    assert chat_ids == ["chat-3", "chat-2", "chat-4", "chat-1", "chat-5"]
    assert await database.chats.list_chats("local", limit=0) == []


async def test_chats_are_found_by_words_in_titles_and_messages(database: Database) -> None:
    await begin_chat(database, chat(1, title="Straßenbahn 100%"), "Where is the ÄRGER?")
    await begin_chat(database, chat(2, title="other"), "nothing")
    await database.chats.append("chat-2", ME, [build_model_event("It is snake_case, see? \0")])
    await database.chats.append("chat-2", ME, [NewChatEvent(Kind.RESULT, {"text": "needle"}), piece("hay")])
    await begin_chat(database, chat(3, "ann", title="strassenbahn"), "ärger")

    async def find_chats(words: str) -> list[str]:
        return sorted(one.id for one in await database.chats.list_chats("local", search_text=words))

    assert await find_chats("STRASSEN") == ["chat-1"]
    assert await find_chats("ärger") == ["chat-1"]
    assert await find_chats("  strassen   ÄRGER ") == ["chat-1"]
    assert await find_chats("strassen nothing") == []
    assert await find_chats("100%") == ["chat-1"]
    assert await find_chats("1%0") == []
    assert await find_chats("snake_case") == ["chat-2"]
    assert await find_chats("snakeXcase") == []
    assert await find_chats("e_c") == ["chat-2"]
    assert await find_chats("s__ke") == []
    assert await find_chats("/ \\") == []
    assert await find_chats("needle") == []
    assert await find_chats("hay") == []
    assert await find_chats("") == await find_chats(" \0 ") == ["chat-1", "chat-2"]
    assert await find_chats("\ud800") == []
    assert await find_chats("x" * 100_000) == []
    assert await find_chats("nothing " * 10_000) == ["chat-2"]


async def test_deleting_a_chat_takes_all_of_it(
    database: Database, rows: Callable[[str], Awaitable[list[Any]]]
) -> None:
    await begin_chat(database)
    assert not await database.chats.delete("ann", "chat-1")
    assert await database.chats.delete("local", "chat-1")
    assert not await database.chats.delete("local", "chat-1")
    assert await rows("chat_events") == []
    with pytest.raises(NotHeld, match="no longer runs the turn"):
        await database.chats.append("chat-1", ME, [build_model_event("late")])
    with pytest.raises(NoSuchChat):
        await database.chats.append_without_claim("chat-1", [build_model_event("late")])


async def test_a_users_chats_go_with_the_user(
    database: Database, ann: User, bob: User, rows: Callable[[str], Awaitable[list[Any]]]
) -> None:
    await begin_chat(database, chat(1, ann.id))
    await begin_chat(database, chat(2, bob.id))
    await database.accounts.delete_user(ann.id)
    assert [row["id"] for row in await rows("chats")] == ["chat-2"]
    assert [row["chat_id"] for row in await rows("chat_events")] == ["chat-2"]


# Events.


async def test_events_are_numbered_and_know_their_turn(database: Database) -> None:
    await begin_chat(database)
    await database.chats.append(
        "chat-1",
        ME,
        [build_model_event("a"), NewChatEvent(Kind.END, {"why": "done"})],
        next_state=TurnState.IDLE,
    )
    second = await database.chats.claim(
        "chat-1",
        ME,
        TurnState.IDLE,
        [build_model_event("b", Kind.USER), build_model_event("c")],
        new_turn=True,
    )
    events = await database.chats.list_events("chat-1")
    assert [(event.seq, event.turn) for event in events] == [(1, 1), (2, 1), (3, 1), (4, 4), (5, 4)]
    assert list(events[3:]) == list(second or ())
    assert numbers(await database.chats.list_events("chat-1", after=2, limit=2)) == [3, 4]
    assert await database.chats.list_events("chat-1", after=2**80) == []
    assert numbers(await database.chats.list_events("chat-1", after=-(2**80))) == [1, 2, 3, 4, 5]
    assert await database.chats.list_events("no\0such") == []
    chat = await database.chats.get("local", "chat-1")
    assert chat is not None
    assert (chat.turn, chat.last, chat.state) == (4, 5, TurnState.RUNNING)
    assert chat.updated_at == events[-1].at > 1.0


async def test_the_event_that_names_a_part_takes_the_place_of_its_pieces(database: Database) -> None:
    await begin_chat(database)
    await database.chats.append("chat-1", ME, [piece("a"), piece("x", "step-2"), piece("b")])
    await database.chats.append("chat-1", ME, [NewChatEvent(Kind.REASONING, {"delta": "hm"}, "step-1")])
    appended_events = await database.chats.append(
        "chat-1", ME, [piece("c"), build_model_event("abc", part="step-1"), piece("d")]
    )
    assert numbers(appended_events) == [6, 7, 8]
    kinds = [(event.seq, event.kind, event.part) for event in await database.chats.list_events("chat-1")]
    assert kinds == [
        (1, Kind.USER, ""),
        (3, Kind.TEXT, "step-2"),
        (7, Kind.MODEL_MESSAGE, "step-1"),
        (8, Kind.TEXT, "step-1"),
    ]
    # Those of another turn are another turn's.
    await database.chats.append("chat-1", ME, [], next_state=TurnState.IDLE)
    await database.chats.claim(
        "chat-1", ME, TurnState.IDLE, [build_model_event("more", Kind.USER)], new_turn=True
    )
    await database.chats.append("chat-1", ME, [piece("e"), build_model_event("e", part="step-1")])
    assert numbers(await database.chats.list_events("chat-1")) == [1, 3, 7, 8, 9, 11]


async def test_separately_stored_texts_are_fetched_by_number(database: Database) -> None:
    await begin_chat(database)
    large = random.Random(1).randbytes(6_000_000)
    await database.chats.append(
        "chat-1",
        ME,
        [
            build_model_event("a", payload=large),
            build_model_event("b"),
            build_model_event("c", payload=b"\0\xff"),
        ],
    )
    assert [event.has_payload for event in await database.chats.list_events("chat-1")] == [
        False,
        True,
        False,
        True,
    ]
    assert await database.chats.get_payload("chat-1", 2) == large
    assert await database.chats.get_payload("chat-1", 3) is None
    assert await database.chats.get_payload("chat-1", 4) == b"\0\xff"
    many = [*range(-2, 3_000), 2**70]
    assert await database.chats.get_payloads("chat-1", many) == {2: large, 4: b"\0\xff"}
    assert (
        await database.chats.get_payloads("chat-1", [])
        == await database.chats.get_payloads("no\0", [1])
        == {}
    )
    for number in (0, -1, 99, 2**64):
        assert await database.chats.get_payload("chat-1", number) is None


HOSTILE: list[tuple[Any, Any]] = [
    ("half \ud800 a \udfff character", "half \ufffd a \ufffd character"),
    ("\ud83d\ude00", "😀"),
    ("nul \0 and \x1b and ￿", "nul \0 and \x1b and ￿"),
    ([math.nan, math.inf, -0.5], [None, None, -0.5]),
    (2**64, str(2**64)),
    (2**64 - 1, 2**64 - 1),
    ({"n": -(2**5000)}, {"n": hex(-(2**5000))}),
    ({1: "one", None: "none", "\ud800": "half"}, {"1": "one", "None": "none", "\ufffd": "half"}),
    ((1, "\ud800"), [1, "\ufffd"]),
    ({"\ud800": {"a"}}, {"\ufffd": ["a"]}),
    (b"bytes", "b'bytes'"),
]


@pytest.mark.parametrize(
    ("text", "expected_text"), HOSTILE, ids=[str(number) for number in range(len(HOSTILE))]
)
async def test_no_text_of_a_model_or_server_loses_an_event(
    database: Database, text: Any, expected_text: Any
) -> None:
    await begin_chat(database)
    body = {"text": text if isinstance(text, str) else "x", "value": text}
    (event,) = await database.chats.append("chat-1", ME, [NewChatEvent(Kind.MODEL_MESSAGE, body)])
    (read,) = await database.chats.list_events("chat-1", after=1)
    assert event == read
    assert read.body["value"] == expected_text
    assert orjson.loads(orjson.dumps(dict(read.body))) == read.body


async def test_a_body_may_be_nested_without_end(database: Database) -> None:
    await begin_chat(database)
    body: dict[str, Any] = {"text": "x"}
    body["again"] = body
    for deep in (body, {"list": _nest_value(400)}, {"list": _nest_value(900)}):
        (event,) = await database.chats.append("chat-1", ME, [NewChatEvent(Kind.MODEL_MESSAGE, deep)])
        assert "…" in orjson.dumps(dict(event.body)).decode()
        assert (await database.chats.list_events("chat-1", after=event.seq - 1))[0] == event


def _nest_value(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


async def test_the_name_of_a_part_may_hold_anything(database: Database) -> None:
    await begin_chat(database)
    for part in ("call\0\ud800", "x" * 100_000, "' OR 1=1"):
        await database.chats.append("chat-1", ME, [piece("a", part)])
        await database.chats.append("chat-1", ME, [build_model_event("b", part=part)])
    assert {event.kind for event in await database.chats.list_events("chat-1", after=1)} == {
        Kind.MODEL_MESSAGE
    }


# The end of a chat, for a page that opens there.


async def _turns(database: Database, *lengths: int) -> None:
    """Turns of so many events."""
    await database.chats.create(chat())
    for length in lengths:
        events = [build_model_event("q", Kind.USER), *(build_model_event(str(n)) for n in range(length - 1))]
        await database.chats.claim("chat-1", ME, TurnState.IDLE, events, new_turn=True)
        await database.chats.append("chat-1", ME, [], next_state=TurnState.IDLE)


async def test_the_latest_events_begin_with_a_turn(database: Database) -> None:
    await _turns(database, 10, 5, 5)
    latest = partial(database.chats.list_latest_events, last_turn=16)
    assert numbers(await latest("chat-1", limit=5)) == list(range(16, 21))
    assert numbers(await latest("chat-1", limit=7)) == list(range(11, 21))
    assert numbers(await latest("chat-1", limit=12)) == list(range(1, 21))
    assert numbers(await latest("chat-1", before=16, limit=4)) == list(range(11, 16))
    assert numbers(await latest("chat-1", before=3, limit=200)) == [1, 2]
    assert await latest("chat-1", before=1) == await latest("chat-1", before=-5) == []
    assert await latest("chat-2") == await latest("no\0such") == []


async def test_the_latest_events_leave_out_the_beginning_of_a_very_long_turn(database: Database) -> None:
    await _turns(database, 500, 8)
    assert numbers(await database.chats.list_latest_events("chat-1", 501, limit=10)) == list(range(501, 509))
    # There is nothing shorter that begins with a turn.
    assert numbers(await database.chats.list_latest_events("chat-1", 501, before=501, limit=10)) == list(
        range(1, 501)
    )


# Turns.


async def test_a_chat_claimed_by_many_at_once_goes_to_one(database: Database) -> None:
    await database.chats.create(chat())

    async def claim(number: int) -> Sequence[ChatEvent] | None:
        return await database.chats.claim(
            "chat-1", f"r{number}", TurnState.IDLE, [build_model_event("x", Kind.USER)], new_turn=True
        )

    results = await asyncio.gather(*(claim(number) for number in range(20)))
    winners = [number for number, events in enumerate(results) if events is not None]
    assert len(winners) == 1
    assert await database.chats.get_runner("chat-1") == f"r{winners[0]}"
    assert numbers(await database.chats.list_events("chat-1")) == [1]
    assert await database.chats.claim("chat-2", ME, TurnState.IDLE, [], new_turn=False) is None


async def test_a_chat_that_waits_is_claimed_from_waiting_only(database: Database) -> None:
    await begin_chat(database)
    ask = NewChatEvent(Kind.APPROVAL_REQUEST, {"id": "c", "approval": "a", "reason": "r"})
    await database.chats.append("chat-1", ME, [ask], next_state=TurnState.WAITING)
    assert await database.chats.get_runner("chat-1") is None
    assert await database.chats.claim("chat-1", OTHER, TurnState.IDLE, [], new_turn=False) is None
    (answer,) = await database.chats.append_without_claim(
        "chat-1", [NewChatEvent(Kind.APPROVAL_ANSWER, {"yes": True})]
    )
    assert (answer.seq, answer.turn) == (3, 1)
    assert await database.chats.claim("chat-1", OTHER, TurnState.WAITING, [], new_turn=False) == []
    (result,) = await database.chats.append("chat-1", OTHER, [build_model_event("r")])
    assert (result.seq, result.turn) == (4, 1)


async def test_only_the_runner_appends_and_only_while_it_holds_the_chat(database: Database) -> None:
    await begin_chat(database)
    with pytest.raises(NotHeld):
        await database.chats.append("chat-1", OTHER, [build_model_event("x")])
    await database.chats.append("chat-1", ME, [build_model_event("a")], next_state=TurnState.IDLE)
    with pytest.raises(NotHeld) as exc_info:
        await database.chats.append("chat-1", ME, [build_model_event("b")])
    assert exc_info.value.hint
    assert numbers(await database.chats.list_events("chat-1")) == [1, 2]


async def test_a_refused_append_does_not_disturb_the_others(database: Database) -> None:
    for number in range(10):
        await begin_chat(database, chat(number))
    appending = [
        database.chats.append(
            f"chat-{number}", OTHER if number % 3 == 0 else ME, [build_model_event(str(number))]
        )
        for number in range(10)
    ]
    impossible = database.chats.append("no\0such\ud800", ME, [build_model_event("x")])
    *outcomes, refusals = await asyncio.gather(*appending, impossible, return_exceptions=True)
    assert [isinstance(outcome, NotHeld) for outcome in outcomes] == [number % 3 == 0 for number in range(10)]
    assert isinstance(refusals, Unstorable)
    for number in range(10):
        assert len(await database.chats.list_events(f"chat-{number}")) == (1 if number % 3 == 0 else 2)


async def test_simultaneous_appends_share_few_writes(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        await begin_chat(database, chat(number))
    writes = 0
    write = database.executor.write

    async def count_write(work: Any) -> Any:
        nonlocal writes
        writes += 1
        return await write(work)

    monkeypatch.setattr(database.executor, "write", count_write)
    await asyncio.gather(
        *(database.chats.append(f"chat-{number}", ME, [build_model_event("x")]) for number in range(50))
    )
    assert writes == 1


async def test_the_order_of_appends_is_kept_in_a_storm(database: Database) -> None:
    """Many tasks on many chats, with large and small events, answers of people, and callers that give up."""
    chance = random.Random(7)
    for number in range(8):
        await begin_chat(database, chat(number))

    async def worker(number: int, name: str) -> None:
        for count in range(25):
            event = build_model_event(f"{name}{count}", payload=b"x" * chance.choice([0, 0, 10, 200_000]))
            events = [event] * chance.choice([1, 1, 3])
            await database.chats.append(f"chat-{number}", ME, events)

    async def people(number: int) -> None:
        for count in range(15):
            await database.chats.append_without_claim(
                f"chat-{number}", [build_model_event(f"p{count}", Kind.APPROVAL_ANSWER)]
            )

    async def impatient(number: int) -> None:
        for _ in range(15):
            task = asyncio.create_task(database.chats.append(f"chat-{number}", ME, [build_model_event("i")]))
            await asyncio.sleep(chance.choice([0, 0.001]))
            await cancel(task)

    async def viewer(number: int) -> list[ChatEvent]:
        events: list[ChatEvent] = []
        while not (events and events[-1].kind is Kind.END):
            events += await database.chats.wait_for_events(
                f"chat-{number}", events[-1].seq if events else 0, 30
            )
        return events

    viewers = [asyncio.create_task(viewer(number)) for number in range(8) for _ in range(2)]
    async with asyncio.timeout(60):
        await asyncio.gather(
            *(work for n in range(8) for work in (worker(n, "a"), worker(n, "b"), people(n), impatient(n)))
        )
        for number in range(8):
            await database.chats.append(
                f"chat-{number}", ME, [NewChatEvent(Kind.END, {})], next_state=TurnState.IDLE
            )
        results = await asyncio.gather(*viewers)
    for number in range(8):
        stored_events = list(await database.chats.list_events(f"chat-{number}"))
        assert numbers(stored_events) == list(range(1, len(stored_events) + 1))
        assert results[2 * number] == results[2 * number + 1] == stored_events
        for name in "abp":
            texts = [str(event.body.get("text", "")) for event in stored_events]
            counts = [int(text[1:]) for text in texts if text.startswith(name) and text[1:].isdigit()]
            assert counts == sorted(counts)
            assert set(counts) == set(range(25 if name in "ab" else 15))


async def test_two_hundred_turns_at_once_lose_nothing(database: Database) -> None:
    chats = [f"chat-{number}" for number in range(200)]
    await asyncio.gather(*(database.chats.create(chat(id=chat_id)) for chat_id in chats))

    async def turn(chat_id: str) -> None:
        assert await database.chats.claim(
            chat_id, ME, TurnState.IDLE, [build_model_event("q", Kind.USER)], new_turn=True
        )
        for count in range(15):
            await database.chats.append(chat_id, ME, [piece(f"{count} ")])
        whole = [build_model_event("whole", part="step-1"), NewChatEvent(Kind.END, {"why": "done"})]
        await database.chats.append(chat_id, ME, whole, next_state=TurnState.IDLE)

    async def page(chat_id: str) -> list[str]:
        chat_titles: list[str] = []
        after = 0
        while True:
            for event in await database.chats.wait_for_events(chat_id, after, 30):
                assert event.seq > after
                after = event.seq
                if event.kind is Kind.TEXT:
                    chat_titles.append(str(event.body["delta"]))
                if event.kind is Kind.END:
                    return chat_titles

    async with asyncio.timeout(120):
        pages = [asyncio.create_task(page(chat_id)) for chat_id in chats]
        await asyncio.gather(*(turn(chat_id) for chat_id in chats))
        for result in await asyncio.gather(*pages):
            # What came before a page looked is gone with the whole; what it saw, it saw in order.
            assert result == sorted(result, key=int)
    for chat_id in chats:
        assert numbers(await database.chats.list_events(chat_id)) == [1, 17, 18]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from([ME, OTHER]), st.sampled_from(list(TurnState))),
        st.tuples(st.just("claim"), st.sampled_from([ME, OTHER]), st.sampled_from(list(TurnState))),
        st.tuples(st.just("remark"), st.none(), st.none()),
    ),
    max_size=12,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, at_once=st.booleans())
async def test_a_chat_obeys_its_law(database: Database, steps: list[Any], at_once: bool) -> None:
    """Whoever comes in whatever order, one after the other or in one batch: what a simple model says."""
    chat_id = uuid4().hex
    await database.chats.create(chat(id=chat_id))
    state, runner, count = TurnState.IDLE, None, 0
    expected: list[Any] = []
    doing: list[Awaitable[Any]] = []
    for action, runner_id, how in steps:
        if action == "claim":
            doing.append(
                database.chats.claim(chat_id, runner_id, how, [build_model_event("c")], new_turn=True)
            )
            is_allowed = state is how
            if is_allowed:
                state, runner = TurnState.RUNNING, runner_id
        elif action == "append":
            doing.append(
                database.chats.append(
                    chat_id, runner_id, [build_model_event("a"), build_model_event("b")], next_state=how
                )
            )
            is_allowed = state is TurnState.RUNNING and runner == runner_id
            if is_allowed and how is not TurnState.RUNNING:
                state, runner = how, None
        else:
            doing.append(database.chats.append_without_claim(chat_id, [build_model_event("r")]))
            is_allowed = True
        length = 2 if action == "append" else 1
        expected.append(list(range(count + 1, count + 1 + length)) if is_allowed else None)
        count += length if is_allowed else 0
    if at_once:
        results = await asyncio.gather(*doing, return_exceptions=True)
    else:
        results = [(await asyncio.gather(each, return_exceptions=True))[0] for each in doing]
    append_results = [None if one is None or isinstance(one, NotHeld) else numbers(one) for one in results]  # type: ignore[arg-type]
    assert append_results == expected
    stored_chat = await database.chats.get("local", chat_id)
    assert stored_chat is not None
    assert (stored_chat.state, stored_chat.last) == (state, count)
    assert await database.chats.get_runner(chat_id) == runner


# Runners that are gone.


async def test_runners_are_told_apart_by_their_last_beat(database: Database) -> None:
    await begin_chat(database, chat(1))
    await database.chats.create(chat(2))
    await database.chats.claim(
        "chat-2", OTHER, TurnState.IDLE, [build_model_event("x", Kind.USER)], new_turn=True
    )
    await begin_chat(database, chat(3))
    await database.chats.append("chat-3", ME, [], next_state=TurnState.WAITING)
    ages: dict[str, float] = {}

    def look(runner: str, age: float) -> bool:
        ages[runner] = age
        return runner == OTHER

    assert [one.id for one in await database.chats.find_abandoned(look)] == ["chat-2"]
    assert set(ages) == {ME, OTHER}
    before = ages[ME]
    await database.chats.record_heartbeat(OTHER)
    await database.chats.find_abandoned(look)
    assert ages[ME] > before >= 0
    assert ages[OTHER] < ages[ME]
    await database.chats.record_heartbeat("nobody")


async def test_one_of_many_takes_over(database: Database) -> None:
    await begin_chat(database)
    taking = (database.chats.take_over("chat-1", f"r{number}", ME) for number in range(10))
    results = await asyncio.gather(*taking)
    assert sum(results) == 1
    assert await database.chats.get_runner("chat-1") == f"r{results.index(True)}"
    with pytest.raises(NotHeld):
        await database.chats.append("chat-1", ME, [build_model_event("late")])
    await database.chats.append(
        "chat-1", f"r{results.index(True)}", [build_model_event("mine")], next_state=TurnState.IDLE
    )
    assert not await database.chats.take_over("chat-1", OTHER, f"r{results.index(True)}")
    assert not await database.chats.take_over("chat-9\0", OTHER, ME)


# Closing.


async def test_items_put_before_closing_are_written(database: Database, reopen: Callable[..., Any]) -> None:
    for number in range(30):
        await begin_chat(database, chat(number))
    appending = [
        asyncio.create_task(database.chats.append(f"chat-{n}", ME, [build_model_event("x")]))
        for n in range(30)
    ]
    await asyncio.sleep(0)
    await database.close()
    assert [numbers(events) for events in await asyncio.gather(*appending)] == [[2]] * 30
    with pytest.raises(StoreClosed):
        await database.chats.append("chat-1", ME, [build_model_event("y")])
    again = await reopen()
    assert numbers(await again.chats.list_events("chat-1")) == [1, 2]
