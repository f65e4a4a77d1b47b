"""Waiting for more events of a chat, in one process and across several, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from tests.tasks import cancel

from toolyard.agents.chat.errors import NoSuchChat
from toolyard.store import Database
from toolyard.store.change_feed import chat_event_waiters
from toolyard.store.change_feed.chat_event_waiters import RecentEventBuffers, RecentEvents
from toolyard.store.errors import StoreClosed
from toolyard.types.chat import Chat, ChatEvent, Kind, NewChatEvent, TurnState

ME = "runner-1"
Open = Callable[..., Awaitable[Database]]


def build_model_event(text: str, **values: Any) -> NewChatEvent:
    return NewChatEvent(Kind.MODEL_MESSAGE, {"text": text}, **values)


def piece(text: str) -> NewChatEvent:
    return NewChatEvent(Kind.TEXT, {"delta": text}, "step-1")


def numbers(events: Sequence[ChatEvent]) -> list[int]:
    return [event.seq for event in events]


async def begin_turn(database: Database, chat_id: str = "chat-1") -> None:
    await database.chats.create(Chat(chat_id, "local", "", 1.0, 1.0))
    await database.chats.claim(
        chat_id, ME, TurnState.IDLE, [NewChatEvent(Kind.USER, {"text": "q"})], new_turn=True
    )


async def follow_turn(database: Database, chat_id: str = "chat-1") -> list[ChatEvent]:
    """All events up to the end of the turn, as a page gets them."""
    events: list[ChatEvent] = []
    while not (events and events[-1].kind is Kind.END):
        events += await database.chats.wait_for_events(chat_id, events[-1].seq if events else 0, 30)
    return events


def waiting_for(
    database: Database, after: int, seconds: float = 30, chat_id: str = "chat-1"
) -> asyncio.Task[Any]:
    return asyncio.create_task(database.chats.wait_for_events(chat_id, after, seconds))


def rings_of(database: Database) -> RecentEventBuffers:
    return database.chats.event_waiters.tails


async def wait_for_waiters(
    database: Database, wait_until: Any, count: int = 1, chat_id: str = "chat-1"
) -> RecentEvents:
    """The ring of a chat, once so many wait for what it does not know yet."""

    def has_settled() -> bool:
        ring = rings_of(database).get(chat_id)
        return ring is not None and ring.waiter_count == count

    await wait_until(has_settled)
    ring = rings_of(database).get(chat_id)
    assert ring is not None
    return ring


async def test_existing_events_are_returned_at_once(database: Database) -> None:
    await begin_turn(database)
    await database.chats.append("chat-1", ME, [build_model_event("a"), build_model_event("b")])
    assert numbers(await database.chats.wait_for_events("chat-1", 0, 30)) == [1, 2, 3]
    assert numbers(await database.chats.wait_for_events("chat-1", 2, 30)) == [3]


async def test_waiters_learn_at_once_that_a_chat_was_deleted(
    database: Database, reopen: Open, wait_until: Callable[..., Awaitable[None]]
) -> None:
    await begin_turn(database)
    other = await reopen()
    here, waiter = waiting_for(database, 1), waiting_for(other, 1)
    await wait_for_waiters(database, wait_until)
    await wait_for_waiters(other, wait_until)
    # Long before the time is over.
    assert await database.chats.delete("local", "chat-1")
    async with asyncio.timeout(15):
        for each in (here, waiter):
            with pytest.raises(NoSuchChat):
                await each
    for name in ("chat-1", "no such\0"):
        with pytest.raises(NoSuchChat):
            await database.chats.wait_for_events(name, 1, 30)


async def test_nothing_comes_when_the_time_is_over(database: Database) -> None:
    await begin_turn(database)
    for after in (1, 2**80):
        assert await database.chats.wait_for_events("chat-1", after, 0.01) == []
    assert (
        await database.chats.wait_for_events("chat-1", 1, 0)
        == await database.chats.wait_for_events("chat-1", 1, -1)
        == []
    )


async def test_all_waiters_get_events_of_this_process(
    database: Database, wait_until: Callable[..., Awaitable[None]]
) -> None:
    await begin_turn(database)
    waiters = [waiting_for(database, 1) for _ in range(20)]
    await wait_for_waiters(database, wait_until, 20)
    (event,) = await database.chats.append("chat-1", ME, [build_model_event("a")])
    async with asyncio.timeout(30):
        assert await asyncio.gather(*waiters) == [[event]] * 20


async def test_own_events_are_not_read_again(
    database: Database, wait_until: Callable[..., Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin_turn(database)
    first = waiting_for(database, 1)
    await wait_for_waiters(database, wait_until)
    # SQLite's other connections, or PostgreSQL, have been asked once more by now.
    await wait_until(lambda: "toolyard-signals" in {task.get_name() for task in asyncio.all_tasks()})
    await database.chats.append("chat-1", ME, [build_model_event("a")])
    assert numbers(await first) == [2]
    reads = 0
    read = chat_event_waiters.read_events

    def count_reads(*words: Any) -> Any:
        nonlocal reads
        reads += 1
        return read(*words)

    monkeypatch.setattr(chat_event_waiters, "read_events", count_reads)
    for number in range(3, 30):
        waiter = waiting_for(database, number - 1)
        await asyncio.sleep(0)
        await database.chats.append("chat-1", ME, [build_model_event(str(number))])
        assert numbers(await waiter) == [number]
    # Whoever hears others begins by looking once at everything.
    assert reads <= 2


async def test_pieces_that_were_replaced_are_not_told(database: Database) -> None:
    await begin_turn(database)
    assert numbers(await database.chats.wait_for_events("chat-1", 0, 30)) == [1]
    await database.chats.append("chat-1", ME, [piece("a"), piece("b")])
    assert numbers(await database.chats.wait_for_events("chat-1", 1, 30)) == [2, 3]
    await database.chats.append("chat-1", ME, [piece("c")])
    await database.chats.append("chat-1", ME, [build_model_event("abc", part="step-1")])
    assert numbers(await database.chats.wait_for_events("chat-1", 3, 30)) == [5]
    assert numbers(await database.chats.wait_for_events("chat-1", 0, 30)) == [1, 5]


async def test_a_cancelled_waiter_leaves_nothing(
    database: Database, wait_until: Callable[..., Awaitable[None]]
) -> None:
    await begin_turn(database)
    for _ in range(50):
        waiter = waiting_for(database, 1)
        await asyncio.sleep(0)
        await cancel(waiter)
    stays = waiting_for(database, 1)
    ring = await wait_for_waiters(database, wait_until)
    closed_waiter = waiting_for(database, 1)
    await wait_for_waiters(database, wait_until, 2)
    await cancel(closed_waiter)
    assert (ring.viewer_count, ring.waiter_count) == (1, 1)
    await database.chats.append("chat-1", ME, [build_model_event("a")])
    assert numbers(await stays) == [2]
    assert (ring.viewer_count, ring.waiter_count) == (0, 0)


def test_only_the_tails_of_the_last_viewed_chats_are_kept() -> None:
    tails = RecentEventBuffers(max_idle=5)
    with tails.hold("viewed"):
        for number in range(30):
            with tails.hold(f"chat-{number}"):
                pass
    assert list(tails) == [*(f"chat-{number}" for number in range(26, 30)), "viewed"]


async def test_closing_ends_every_waiting(
    database: Database, wait_until: Callable[..., Awaitable[None]]
) -> None:
    await begin_turn(database)
    waiters = [waiting_for(database, 1) for _ in range(5)]
    await wait_for_waiters(database, wait_until, 5)
    async with asyncio.timeout(30):
        await database.close()
        outcomes = await asyncio.gather(*waiters, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreClosed] * 5
    with pytest.raises(StoreClosed):
        await database.chats.wait_for_events("chat-1", 1, 5)


# Others.


async def test_events_of_another_process_arrive_soon(
    database: Database, reopen: Open, wait_until: Callable[..., Awaitable[None]]
) -> None:
    await begin_turn(database)
    other = await reopen()
    waiters = [waiting_for(other, 1) for _ in range(3)]
    await wait_for_waiters(other, wait_until, 3)
    (event,) = await database.chats.append("chat-1", ME, [build_model_event("a")])
    async with asyncio.timeout(30):
        assert await asyncio.gather(*waiters) == [[event]] * 3


async def test_a_page_follows_a_turn_that_runs_elsewhere(database: Database, reopen: Open) -> None:
    for number in range(5):
        await begin_turn(database, f"chat-{number}")
    other = await reopen()
    pages = [
        asyncio.create_task(follow_turn(where, f"chat-{n}")) for n in range(5) for where in (database, other)
    ]

    async def turn(number: int) -> None:
        for count in range(40):
            await database.chats.append(f"chat-{number}", ME, [build_model_event(str(count))])
            if count % 10 == 5:
                # A person answers, and reached the other process.
                await other.chats.append_without_claim(
                    f"chat-{number}", [NewChatEvent(Kind.APPROVAL_ANSWER, {"n": count})]
                )
        await database.chats.append(
            f"chat-{number}", ME, [NewChatEvent(Kind.END, {})], next_state=TurnState.IDLE
        )

    async with asyncio.timeout(60):
        await asyncio.gather(*(turn(number) for number in range(5)))
        results = await asyncio.gather(*pages)
    for number in range(5):
        here, event = results[2 * number], results[2 * number + 1]
        assert here == event == await database.chats.list_events(f"chat-{number}")
        assert numbers(here) == list(range(1, 47))


async def test_a_process_of_its_own_is_heard(
    database: Database, process: Callable[[str], Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    await begin_turn(database)
    waiter = waiting_for(database, 1)
    await wait_for_waiters(database, wait_until)
    code = """
from toolyard.types.chat import Kind, NewChatEvent
await database.chats.append_without_claim("chat-1", [NewChatEvent(Kind.APPROVAL_ANSWER, {"yes": True})])
say("done")
await told()
"""
    async with process(code) as other:
        assert await other.line() == "done"
        async with asyncio.timeout(30):
            assert [event.body for event in await waiter] == [{"yes": True}]


async def test_a_word_that_was_lost_is_made_good_when_the_time_is_over(
    database: Database,
    reopen: Open,
    wait_until: Callable[..., Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await begin_turn(database)
    other = await reopen()
    waiter = waiting_for(other, 1, 1.0)
    ring = await wait_for_waiters(other, wait_until)
    monkeypatch.setattr(other.signals, "_deliver", lambda said: None)
    await database.chats.append("chat-1", ME, [build_model_event("a")])
    assert numbers(await waiter) == [2]
    assert ring.last_seq == 1


# Stopping.


async def test_listeners_learn_which_chats_to_stop(
    database: Database, reopen: Open, wait_until: Callable[..., Awaitable[None]]
) -> None:
    for number in range(3):
        await begin_turn(database, f"chat-{number}")
    other = await reopen()
    here, other_listener = Stops(database), Stops(other)
    await other.chats.request_stop("chat-1")
    await other.chats.request_stop("no such\0")
    await wait_until(lambda: here.heard == other_listener.heard == {"chat-1"})
    await database.chats.request_stop("chat-2")
    await wait_until(lambda: here.heard == other_listener.heard == {"chat-1", "chat-2"})
    await here.end()
    await other_listener.end()
    assert not database.signals.has_listeners


class Stops:
    """Hears which chats shall stop, of some twice."""

    def __init__(self, database: Database) -> None:
        self.heard: set[str] = set()
        self._task = asyncio.create_task(self._hear(database))

    async def _hear(self, database: Database) -> None:
        async for chat_id in database.chats.listen_for_stop_requests():
            self.heard.add(chat_id)

    async def end(self) -> None:
        await cancel(self._task)


async def test_an_unheard_stop_request_is_kept_until_the_chat_is_released(
    database: Database, wait_until: Callable[..., Awaitable[None]]
) -> None:
    await begin_turn(database, "chat-1")
    await begin_turn(database, "chat-2")
    await database.chats.request_stop("chat-1")
    await database.chats.request_stop("chat-2")
    await database.chats.append("chat-2", ME, [], next_state=TurnState.IDLE)
    # It is idle: there is nobody to tell, and the next turn is another.
    await database.chats.request_stop("chat-2")
    await database.chats.claim("chat-2", ME, TurnState.IDLE, [], new_turn=False)
    stops = Stops(database)
    await wait_until(lambda: stops.heard == {"chat-1"})
    await database.chats.request_stop("chat-2")
    await wait_until(lambda: stops.heard == {"chat-1", "chat-2"})
    await stops.end()


async def test_closing_ends_the_listening_for_stops(database: Database) -> None:
    listening = asyncio.create_task(_all(database.chats.listen_for_stop_requests()))
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await database.close()
        assert await listening == []


async def _all(stops: Any) -> list[str]:
    return [chat_id async for chat_id in stops]


# Rings.


def events(*seqs: int, weight: int = 1, **values: Any) -> list[tuple[ChatEvent, int]]:
    event_values = {"turn": 1, "kind": Kind.MODEL_MESSAGE, "at": 1.0, "body": {}, **values}
    return [(ChatEvent("c", seq, **event_values), weight) for seq in seqs]


async def test_a_ring_knows_its_gaps() -> None:
    ring = RecentEvents()
    assert ring.events_after(0) is None
    ring.push(4, events(5, 6))
    assert ring.events_after(3) is None
    assert numbers(ring.events_after(4) or []) == [5, 6]
    assert numbers(ring.events_after(5) or []) == [6]
    assert ring.events_after(6) == ring.events_after(99) == []
    # Somebody else wrote the seventh.
    ring.push(7, events(8))
    assert ring.events_after(6) is None
    assert numbers(ring.events_after(7) or []) == [8]
    # The same once more changes nothing, nor does what is older than what was read meanwhile.
    ring.push(8, events(7, 8))
    ring.push(7, events(8))
    ring.push(8, events(9, 10))
    ring.push(8, events(9))
    assert numbers(ring.events_after(7) or []) == [8, 9, 10]
    ring.push(8, events(9, 10, 11))
    assert numbers(ring.events_after(9) or []) == [10, 11]
    ring.invalidate()
    assert ring.events_after(11) is None


async def test_a_read_does_not_undo_newer_events() -> None:
    ring = RecentEvents()
    changes = ring.change_count
    ring.push(1, events(2))
    ring.fill_if_unchanged(0, events(1), changes)
    assert ring.last_seq == 2
    ring.fill_if_unchanged(0, events(1, 2), ring.change_count)
    assert numbers(ring.events_after(0) or []) == [1, 2]


@pytest.mark.parametrize("weight", [1, 400_000])
async def test_a_ring_keeps_the_newest_within_bounds(weight: int) -> None:
    ring = RecentEvents()
    for seq in range(1, 2_001):
        ring.push(seq - 1, events(seq, weight=weight))
    kept_count = 256 if weight == 1 else 2
    assert ring.events_after(2_000 - kept_count - 1) is None
    assert numbers(ring.events_after(2_000 - kept_count) or []) == list(range(2_001 - kept_count, 2_001))
    ring.push(2_000, events(2_001, weight=10_000_000))
    assert ring.events_after(2_000) is None
    assert ring.events_after(2_001) == []
