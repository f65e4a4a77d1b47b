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


def said(text: str, kind: Kind = Kind.MODEL_MESSAGE, **values: Any) -> NewChatEvent:
    return NewChatEvent(kind, {"text": text}, **values)


def piece(delta: str, part: str = "step-1") -> NewChatEvent:
    return NewChatEvent(Kind.TEXT, {"delta": delta}, part)


def numbers(events: Sequence[ChatEvent] | None) -> list[int]:
    return [event.seq for event in events or ()]


async def begin_chat(database: Database, one: Chat | None = None, text: str = "hello") -> Chat:
    """A chat that ME works on, in its first turn."""
    one = one or chat()
    await database.chats.create(one)
    events = await database.chats.claim(one.id, ME, TurnState.IDLE, [said(text, Kind.USER)], new_turn=True)
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


async def test_a_change_stores_what_its_owner_may_change_and_nothing_else(database: Database) -> None:
    one = await begin_chat(database)
    changed = replace(
        one, title="New", agent="a", model="m", choice=("x/y",), state=TurnState.WAITING, last=9, turn=9
    )
    assert await database.chats.change(changed)
    stored = await database.chats.get("local", one.id)
    assert stored == replace(
        changed, state=TurnState.RUNNING, last=1, turn=1, updated_at=stored and stored.updated_at
    )
    assert not await database.chats.change(replace(changed, owner="ann"))
    assert not await database.chats.change(replace(changed, id="chat-9"))


async def test_a_title_may_hold_anything(database: Database) -> None:
    await database.chats.create(chat(title="a\0b\ud800c"))
    stored = await database.chats.get("local", "chat-1")
    assert stored is not None
    assert stored.title == "a\ufffdb?c"


async def test_the_chat_that_changed_last_comes_first_and_pages_follow(database: Database) -> None:
    for number, at in enumerate([5.0, 7.0, 7.0, 6.0, 1.0], 1):
        await database.chats.create(chat(number, updated_at=at))
    await database.chats.create(chat(9, "ann"))
    found: list[str] = []
    before = None
    while page := await database.chats.list_chats("local", before=before, limit=2):
        found += [one.id for one in page]
        before = (page[-1].updated_at, page[-1].id)
    assert found == ["chat-3", "chat-2", "chat-4", "chat-1", "chat-5"]
    assert await database.chats.list_chats("local", limit=0) == []


async def test_chats_are_found_by_words_in_titles_and_in_what_was_said(database: Database) -> None:
    await begin_chat(database, chat(1, title="Straßenbahn 100%"), "Where is the ÄRGER?")
    await begin_chat(database, chat(2, title="other"), "nothing")
    await database.chats.append("chat-2", ME, [said("It is snake_case, see? \0")])
    await database.chats.append("chat-2", ME, [NewChatEvent(Kind.RESULT, {"text": "needle"}), piece("hay")])
    await begin_chat(database, chat(3, "ann", title="strassenbahn"), "ärger")

    async def found(words: str) -> list[str]:
        return sorted(one.id for one in await database.chats.list_chats("local", search_text=words))

    assert await found("STRASSEN") == ["chat-1"]
    assert await found("ärger") == ["chat-1"]
    assert await found("  strassen   ÄRGER ") == ["chat-1"]
    assert await found("strassen nothing") == []
    assert await found("100%") == ["chat-1"]
    assert await found("1%0") == []
    assert await found("snake_case") == ["chat-2"]
    assert await found("snakeXcase") == []
    assert await found("e_c") == ["chat-2"]
    assert await found("s__ke") == []
    assert await found("/ \\") == []
    assert await found("needle") == []
    assert await found("hay") == []
    assert await found("") == await found(" \0 ") == ["chat-1", "chat-2"]
    assert await found("\ud800") == []
    assert await found("x" * 100_000) == []
    assert await found("nothing " * 10_000) == ["chat-2"]


async def test_deleting_a_chat_takes_all_of_it(
    database: Database, rows: Callable[[str], Awaitable[list[Any]]]
) -> None:
    await begin_chat(database)
    assert not await database.chats.delete("ann", "chat-1")
    assert await database.chats.delete("local", "chat-1")
    assert not await database.chats.delete("local", "chat-1")
    assert await rows("chat_events") == []
    with pytest.raises(NotHeld, match="no longer runs the turn"):
        await database.chats.append("chat-1", ME, [said("late")])
    with pytest.raises(NoSuchChat):
        await database.chats.append_without_claim("chat-1", [said("late")])


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
        "chat-1", ME, [said("a"), NewChatEvent(Kind.END, {"why": "done"})], next_state=TurnState.IDLE
    )
    second = await database.chats.claim(
        "chat-1", ME, TurnState.IDLE, [said("b", Kind.USER), said("c")], new_turn=True
    )
    events = await database.chats.list_events("chat-1")
    assert [(event.seq, event.turn) for event in events] == [(1, 1), (2, 1), (3, 1), (4, 4), (5, 4)]
    assert list(events[3:]) == list(second or ())
    assert numbers(await database.chats.list_events("chat-1", after=2, limit=2)) == [3, 4]
    assert await database.chats.list_events("chat-1", after=2**80) == []
    assert numbers(await database.chats.list_events("chat-1", after=-(2**80))) == [1, 2, 3, 4, 5]
    assert await database.chats.list_events("no\0such") == []
    stored = await database.chats.get("local", "chat-1")
    assert stored is not None
    assert (stored.turn, stored.last, stored.state) == (4, 5, TurnState.RUNNING)
    assert stored.updated_at == events[-1].at > 1.0


async def test_the_event_that_names_a_part_takes_the_place_of_its_pieces(database: Database) -> None:
    await begin_chat(database)
    await database.chats.append("chat-1", ME, [piece("a"), piece("x", "step-2"), piece("b")])
    await database.chats.append("chat-1", ME, [NewChatEvent(Kind.REASONING, {"delta": "hm"}, "step-1")])
    done = await database.chats.append("chat-1", ME, [piece("c"), said("abc", part="step-1"), piece("d")])
    assert numbers(done) == [6, 7, 8]
    kinds = [(event.seq, event.kind, event.part) for event in await database.chats.list_events("chat-1")]
    assert kinds == [
        (1, Kind.USER, ""),
        (3, Kind.TEXT, "step-2"),
        (7, Kind.MODEL_MESSAGE, "step-1"),
        (8, Kind.TEXT, "step-1"),
    ]
    # Those of another turn are another turn's.
    await database.chats.append("chat-1", ME, [], next_state=TurnState.IDLE)
    await database.chats.claim("chat-1", ME, TurnState.IDLE, [said("more", Kind.USER)], new_turn=True)
    await database.chats.append("chat-1", ME, [piece("e"), said("e", part="step-1")])
    assert numbers(await database.chats.list_events("chat-1")) == [1, 3, 7, 8, 9, 11]


async def test_what_is_kept_aside_is_fetched_by_number(database: Database) -> None:
    await begin_chat(database)
    large = random.Random(1).randbytes(6_000_000)
    await database.chats.append(
        "chat-1", ME, [said("a", payload=large), said("b"), said("c", payload=b"\0\xff")]
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


@pytest.mark.parametrize(("given", "kept"), HOSTILE, ids=[str(number) for number in range(len(HOSTILE))])
async def test_no_text_of_a_model_or_server_loses_an_event(database: Database, given: Any, kept: Any) -> None:
    await begin_chat(database)
    body = {"text": given if isinstance(given, str) else "x", "value": given}
    (event,) = await database.chats.append("chat-1", ME, [NewChatEvent(Kind.MODEL_MESSAGE, body)])
    (read,) = await database.chats.list_events("chat-1", after=1)
    assert event == read
    assert read.body["value"] == kept
    assert orjson.loads(orjson.dumps(dict(read.body))) == read.body


async def test_a_body_may_be_nested_without_end(database: Database) -> None:
    await begin_chat(database)
    body: dict[str, Any] = {"text": "x"}
    body["again"] = body
    for deep in (body, {"list": _nested(400)}, {"list": _nested(900)}):
        (event,) = await database.chats.append("chat-1", ME, [NewChatEvent(Kind.MODEL_MESSAGE, deep)])
        assert "…" in orjson.dumps(dict(event.body)).decode()
        assert (await database.chats.list_events("chat-1", after=event.seq - 1))[0] == event


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


async def test_the_name_of_a_part_may_hold_anything(database: Database) -> None:
    await begin_chat(database)
    for part in ("call\0\ud800", "x" * 100_000, "' OR 1=1"):
        await database.chats.append("chat-1", ME, [piece("a", part)])
        await database.chats.append("chat-1", ME, [said("b", part=part)])
    assert {event.kind for event in await database.chats.list_events("chat-1", after=1)} == {
        Kind.MODEL_MESSAGE
    }


# The end of a chat, for a page that opens there.


async def _turns(database: Database, *lengths: int) -> None:
    """Turns of so many events."""
    await database.chats.create(chat())
    for length in lengths:
        events = [said("q", Kind.USER), *(said(str(n)) for n in range(length - 1))]
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


async def test_of_many_who_claim_a_chat_one_gets_it(database: Database) -> None:
    await database.chats.create(chat())

    async def claim(number: int) -> Sequence[ChatEvent] | None:
        return await database.chats.claim(
            "chat-1", f"r{number}", TurnState.IDLE, [said("x", Kind.USER)], new_turn=True
        )

    claimed = await asyncio.gather(*(claim(number) for number in range(20)))
    winners = [number for number, events in enumerate(claimed) if events is not None]
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
    (result,) = await database.chats.append("chat-1", OTHER, [said("r")])
    assert (result.seq, result.turn) == (4, 1)


async def test_only_the_runner_appends_and_only_while_it_holds_the_chat(database: Database) -> None:
    await begin_chat(database)
    with pytest.raises(NotHeld):
        await database.chats.append("chat-1", OTHER, [said("x")])
    await database.chats.append("chat-1", ME, [said("a")], next_state=TurnState.IDLE)
    with pytest.raises(NotHeld) as caught:
        await database.chats.append("chat-1", ME, [said("b")])
    assert caught.value.hint
    assert numbers(await database.chats.list_events("chat-1")) == [1, 2]


async def test_one_who_may_not_append_does_not_disturb_the_others(database: Database) -> None:
    for number in range(10):
        await begin_chat(database, chat(number))
    appending = [
        database.chats.append(f"chat-{number}", OTHER if number % 3 == 0 else ME, [said(str(number))])
        for number in range(10)
    ]
    impossible = database.chats.append("no\0such\ud800", ME, [said("x")])
    *outcomes, refused = await asyncio.gather(*appending, impossible, return_exceptions=True)
    assert [isinstance(outcome, NotHeld) for outcome in outcomes] == [number % 3 == 0 for number in range(10)]
    assert isinstance(refused, Unstorable)
    for number in range(10):
        assert len(await database.chats.list_events(f"chat-{number}")) == (1 if number % 3 == 0 else 2)


async def test_many_who_append_at_once_share_few_writes(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        await begin_chat(database, chat(number))
    writes = 0
    write = database.executor.write

    async def counted(work: Any) -> Any:
        nonlocal writes
        writes += 1
        return await write(work)

    monkeypatch.setattr(database.executor, "write", counted)
    await asyncio.gather(*(database.chats.append(f"chat-{number}", ME, [said("x")]) for number in range(50)))
    assert writes == 1


async def test_the_order_of_appends_is_kept_in_a_storm(database: Database) -> None:
    """Many tasks on many chats, with large and small events, answers of people, and callers that give up."""
    chance = random.Random(7)
    for number in range(8):
        await begin_chat(database, chat(number))

    async def worker(number: int, name: str) -> None:
        for count in range(25):
            event = said(f"{name}{count}", payload=b"x" * chance.choice([0, 0, 10, 200_000]))
            events = [event] * chance.choice([1, 1, 3])
            await database.chats.append(f"chat-{number}", ME, events)

    async def people(number: int) -> None:
        for count in range(15):
            await database.chats.append_without_claim(
                f"chat-{number}", [said(f"p{count}", Kind.APPROVAL_ANSWER)]
            )

    async def impatient(number: int) -> None:
        for _ in range(15):
            task = asyncio.create_task(database.chats.append(f"chat-{number}", ME, [said("i")]))
            await asyncio.sleep(chance.choice([0, 0.001]))
            await cancel(task)

    async def viewer(number: int) -> list[ChatEvent]:
        seen: list[ChatEvent] = []
        while not (seen and seen[-1].kind is Kind.END):
            seen += await database.chats.wait_for_events(f"chat-{number}", seen[-1].seq if seen else 0, 30)
        return seen

    viewers = [asyncio.create_task(viewer(number)) for number in range(8) for _ in range(2)]
    async with asyncio.timeout(60):
        await asyncio.gather(
            *(work for n in range(8) for work in (worker(n, "a"), worker(n, "b"), people(n), impatient(n)))
        )
        for number in range(8):
            await database.chats.append(
                f"chat-{number}", ME, [NewChatEvent(Kind.END, {})], next_state=TurnState.IDLE
            )
        seen = await asyncio.gather(*viewers)
    for number in range(8):
        stored = list(await database.chats.list_events(f"chat-{number}"))
        assert numbers(stored) == list(range(1, len(stored) + 1))
        assert seen[2 * number] == seen[2 * number + 1] == stored
        for name in "abp":
            texts = [str(event.body.get("text", "")) for event in stored]
            counts = [int(text[1:]) for text in texts if text.startswith(name) and text[1:].isdigit()]
            assert counts == sorted(counts)
            assert set(counts) == set(range(25 if name in "ab" else 15))


async def test_two_hundred_turns_at_once_lose_nothing(database: Database) -> None:
    chats = [f"chat-{number}" for number in range(200)]
    await asyncio.gather(*(database.chats.create(chat(id=chat_id)) for chat_id in chats))

    async def turn(chat_id: str) -> None:
        assert await database.chats.claim(chat_id, ME, TurnState.IDLE, [said("q", Kind.USER)], new_turn=True)
        for count in range(15):
            await database.chats.append(chat_id, ME, [piece(f"{count} ")])
        whole = [said("whole", part="step-1"), NewChatEvent(Kind.END, {"why": "done"})]
        await database.chats.append(chat_id, ME, whole, next_state=TurnState.IDLE)

    async def page(chat_id: str) -> list[str]:
        shown: list[str] = []
        after = 0
        while True:
            for event in await database.chats.wait_for_events(chat_id, after, 30):
                assert event.seq > after
                after = event.seq
                if event.kind is Kind.TEXT:
                    shown.append(str(event.body["delta"]))
                if event.kind is Kind.END:
                    return shown

    async with asyncio.timeout(120):
        pages = [asyncio.create_task(page(chat_id)) for chat_id in chats]
        await asyncio.gather(*(turn(chat_id) for chat_id in chats))
        for shown in await asyncio.gather(*pages):
            # What came before a page looked is gone with the whole; what it saw, it saw in order.
            assert shown == sorted(shown, key=int)
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
    for what, who, how in steps:
        if what == "claim":
            doing.append(database.chats.claim(chat_id, who, how, [said("c")], new_turn=True))
            allowed = state is how
            if allowed:
                state, runner = TurnState.RUNNING, who
        elif what == "append":
            doing.append(database.chats.append(chat_id, who, [said("a"), said("b")], next_state=how))
            allowed = state is TurnState.RUNNING and runner == who
            if allowed and how is not TurnState.RUNNING:
                state, runner = how, None
        else:
            doing.append(database.chats.append_without_claim(chat_id, [said("r")]))
            allowed = True
        length = 2 if what == "append" else 1
        expected.append(list(range(count + 1, count + 1 + length)) if allowed else None)
        count += length if allowed else 0
    if at_once:
        done = await asyncio.gather(*doing, return_exceptions=True)
    else:
        done = [(await asyncio.gather(each, return_exceptions=True))[0] for each in doing]
    found = [None if one is None or isinstance(one, NotHeld) else numbers(one) for one in done]  # type: ignore[arg-type]
    assert found == expected
    stored = await database.chats.get("local", chat_id)
    assert stored is not None
    assert (stored.state, stored.last) == (state, count)
    assert await database.chats.get_runner(chat_id) == runner


# Runners that are gone.


async def test_runners_are_told_apart_by_their_last_beat(database: Database) -> None:
    await begin_chat(database, chat(1))
    await database.chats.create(chat(2))
    await database.chats.claim("chat-2", OTHER, TurnState.IDLE, [said("x", Kind.USER)], new_turn=True)
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
    took = await asyncio.gather(*taking)
    assert sum(took) == 1
    assert await database.chats.get_runner("chat-1") == f"r{took.index(True)}"
    with pytest.raises(NotHeld):
        await database.chats.append("chat-1", ME, [said("late")])
    await database.chats.append("chat-1", f"r{took.index(True)}", [said("mine")], next_state=TurnState.IDLE)
    assert not await database.chats.take_over("chat-1", OTHER, f"r{took.index(True)}")
    assert not await database.chats.take_over("chat-9\0", OTHER, ME)


# Closing.


async def test_what_was_put_before_closing_is_written(database: Database, reopen: Callable[..., Any]) -> None:
    for number in range(30):
        await begin_chat(database, chat(number))
    appending = [asyncio.create_task(database.chats.append(f"chat-{n}", ME, [said("x")])) for n in range(30)]
    await asyncio.sleep(0)
    await database.close()
    assert [numbers(events) for events in await asyncio.gather(*appending)] == [[2]] * 30
    with pytest.raises(StoreClosed):
        await database.chats.append("chat-1", ME, [said("y")])
    again = await reopen()
    assert numbers(await again.chats.list_events("chat-1")) == [1, 2]
