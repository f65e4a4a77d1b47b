"""Telling many what changes: one look for all who see the same, and nobody holds up the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

import pytest

from toolyard.errors import ToolyardError
from toolyard.web.servers.live_updates import LiveUpdate, LiveUpdates

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class LiveUpdateCounter:
    """What each person sees, and how often somebody looked."""

    def __init__(self) -> None:
        self.seen: dict[str, dict[str, int]] = {"ada": {"one": 1}, "bob": {"two": 2}}
        self.looks = 0
        self.broken = False

    async def look(self, key: str) -> dict[str, int]:
        self.looks += 1
        if self.broken:
            raise ToolyardError("the database is away")
        return dict(self.seen[key])


@pytest.fixture
async def counter() -> LiveUpdateCounter:
    return LiveUpdateCounter()


@pytest.fixture
async def live(counter: LiveUpdateCounter) -> AsyncGenerator[LiveUpdates[str, int]]:
    live = LiveUpdates(counter.look, interval_seconds=0.01)
    yield live
    live.close()


async def following(stream: AsyncGenerator[Any]) -> Any:
    return await asyncio.wait_for(anext(stream), 30)


async def test_each_hears_of_their_own_and_of_nothing_else(
    counter: LiveUpdateCounter, live: LiveUpdates[str, int]
) -> None:
    ada, bob = live.subscribe("ada", heartbeat_seconds=9), live.subscribe("bob", heartbeat_seconds=9)
    assert await following(ada) == LiveUpdate("one", 1)
    assert await following(bob) == LiveUpdate("two", 2)
    counter.seen["ada"] = {"one": 5, "three": 3}
    assert {await following(ada), await following(ada)} == {LiveUpdate("one", 5), LiveUpdate("three", 3)}
    del counter.seen["ada"]["one"]
    assert await following(ada) == LiveUpdate("one", None)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(bob), 0.1)
    await ada.aclose()
    await bob.aclose()


async def test_one_computation_serves_all_equal_viewers(counter: LiveUpdateCounter) -> None:
    live = LiveUpdates(counter.look, interval_seconds=0.2)
    streams = [live.subscribe("ada", heartbeat_seconds=9) for _ in range(50)]
    for stream in streams:
        await following(stream)
    before = counter.looks
    counter.seen["ada"] = {"one": 2}
    assert [await following(stream) for stream in streams] == [LiveUpdate("one", 2)] * 50
    assert counter.looks - before < 50
    for stream in streams:
        await stream.aclose()
    live.close()


async def test_a_late_subscriber_gets_the_complete_state_first(
    counter: LiveUpdateCounter, live: LiveUpdates[str, int]
) -> None:
    first = live.subscribe("ada", heartbeat_seconds=9)
    await following(first)
    counter.seen["ada"] = {"one": 7}
    second = live.subscribe("ada", heartbeat_seconds=9)
    assert await following(second) == LiveUpdate("one", 7)
    assert await following(first) == LiveUpdate("one", 7)
    await first.aclose()
    await second.aclose()


async def test_a_heartbeat_comes_when_nothing_else_does(live: LiveUpdates[str, int]) -> None:
    stream = live.subscribe("ada", heartbeat_seconds=0.02)
    await following(stream)
    assert await following(stream) is None
    await stream.aclose()


async def test_a_slow_subscriber_is_disconnected_and_the_others_are_not(
    counter: LiveUpdateCounter, live: LiveUpdates[str, int], wait_until: Callable[..., Awaitable[None]]
) -> None:
    slow, quick = live.subscribe("ada", heartbeat_seconds=9), live.subscribe("ada", heartbeat_seconds=9)
    await following(slow)
    heard_ids: dict[str, int | None] = {}

    async def listen() -> None:
        async for change in quick:
            if change is not None:
                heard_ids[change.id] = change.record

    listening = asyncio.create_task(listen())
    for number in range(6):
        counter.seen["ada"] = {str(each): number for each in range(100)}
        await wait_until(lambda now=number: heard_ids.get("99") == now)
    assert not listening.done()
    with pytest.raises(StopAsyncIteration):
        for _ in range(600):
            await following(slow)
    live.close()
    await asyncio.wait_for(listening, 30)


async def test_a_look_that_fails_is_tried_again(
    counter: LiveUpdateCounter, live: LiveUpdates[str, int], wait_until: Callable[..., Awaitable[None]]
) -> None:
    stream = live.subscribe("ada", heartbeat_seconds=9)
    await following(stream)
    counter.broken = True
    looks = counter.looks
    await wait_until(lambda: counter.looks > looks + 2)
    counter.broken, counter.seen["ada"] = False, {"one": 9}
    assert await following(stream) == LiveUpdate("one", 9)
    await stream.aclose()


async def test_closing_ends_every_stream(live: LiveUpdates[str, int]) -> None:
    streams = [live.subscribe("ada", heartbeat_seconds=9) for _ in range(3)]
    for stream in streams:
        await following(stream)
    live.close()
    for stream in streams:
        with pytest.raises(StopAsyncIteration):
            await following(stream)
    with pytest.raises(StopAsyncIteration):
        await following(live.subscribe("ada", heartbeat_seconds=9))
