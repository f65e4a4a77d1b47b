from __future__ import annotations

import asyncio

import pytest

from toolyard.catalog.single_flight import SingleFlight


class Work:
    """Counts how often it was begun, and ends when it is let go."""

    def __init__(self) -> None:
        self.begun = 0
        self.cancelled = 0
        self.release = asyncio.Event()
        self.running = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> int:
        self.begun += 1
        number = self.begun
        self.running.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        return number


async def waiters(flights: SingleFlight[str, int], work: Work, count: int) -> list[asyncio.Task[int]]:
    tasks = [asyncio.create_task(flights.run("key", work)) for _ in range(count)]
    async with asyncio.timeout(30):
        await work.running.wait()
    await asyncio.sleep(0)
    return tasks


async def test_all_who_ask_at_once_share_one_piece_of_work() -> None:
    flights, work = SingleFlight[str, int](), Work()
    tasks = await waiters(flights, work, 5)
    work.release.set()
    assert await asyncio.gather(*tasks) == [1] * 5


async def test_other_keys_are_other_work() -> None:
    flights, work = SingleFlight[str, int](), Work()
    work.release.set()
    assert sorted(await asyncio.gather(flights.run("a", work), flights.run("b", work))) == [1, 2]


async def test_nothing_is_remembered_afterwards() -> None:
    flights, work = SingleFlight[str, int](), Work()
    work.release.set()
    assert await flights.run("key", work) == 1
    assert await flights.run("key", work) == 2


async def test_a_failure_reaches_all_and_is_not_remembered() -> None:
    flights, work = SingleFlight[str, int](), Work()
    tasks = await waiters(flights, work, 3)
    work.error = ValueError("no")
    work.release.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ValueError] * 3
    work.error = None
    assert await flights.run("key", work) == 2


async def test_a_waiter_that_is_cancelled_leaves_the_others_alone() -> None:
    flights, work = SingleFlight[str, int](), Work()
    first, second = await waiters(flights, work, 2)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    work.release.set()
    assert await second == 1
    assert work.cancelled == 0


async def test_work_that_nobody_waits_for_any_more_is_cancelled() -> None:
    flights, work = SingleFlight[str, int](), Work()
    tasks = await waiters(flights, work, 2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0)
    assert work.cancelled == 1


async def test_who_asks_after_all_left_begins_anew() -> None:
    flights, work = SingleFlight[str, int](), Work()
    (task,) = await waiters(flights, work, 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    work.release.set()
    assert await flights.run("key", work) == 2


async def test_closing_cancels_the_work_and_waits_for_its_end() -> None:
    flights, work = SingleFlight[str, int](), Work()
    (task,) = await waiters(flights, work, 1)
    await flights.close()
    assert work.cancelled == 1
    with pytest.raises(asyncio.CancelledError):
        await task
