"""Time limits that share one timer of the event loop."""

from __future__ import annotations

import asyncio
import time

import pytest

from toolyard.concurrency.shared_timer import SharedTimer, TimeLimit

pytestmark = pytest.mark.both_loops


def limit_of(timer: SharedTimer, seconds: float) -> TimeLimit:
    return TimeLimit(timer, asyncio.get_running_loop().time() + seconds)


async def test_a_body_that_takes_too_long_is_cancelled_and_raises() -> None:
    timer, started = SharedTimer(), time.monotonic()
    with pytest.raises(TimeoutError), limit_of(timer, 0.1):
        await asyncio.sleep(30)
    assert 0.05 < time.monotonic() - started < 10
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_body_that_ends_in_time_is_not_cancelled_later() -> None:
    timer = SharedTimer()
    with limit_of(timer, 0.05):
        pass
    await asyncio.sleep(0.15)


async def test_the_earliest_limit_comes_first_whatever_the_order_in_which_they_began() -> None:
    timer = SharedTimer()
    ended: list[float] = []

    async def wait(seconds: float) -> None:
        with pytest.raises(TimeoutError), limit_of(timer, seconds):
            await asyncio.sleep(30)
        ended.append(seconds)

    await asyncio.wait_for(asyncio.gather(*(wait(each) for each in (0.3, 0.05, 0.6, 0.15))), 20)
    assert ended == [0.05, 0.15, 0.3, 0.6]


async def test_a_limit_can_be_moved_to_an_earlier_and_to_a_later_time() -> None:
    timer, loop = SharedTimer(), asyncio.get_running_loop()
    with pytest.raises(TimeoutError), limit_of(timer, 30) as limit:
        limit.reschedule(loop.time())
        await asyncio.sleep(20)
    with limit_of(timer, 0.05) as limit:
        limit.reschedule(loop.time() + 30)
        await asyncio.sleep(0.15)


async def test_a_cancellation_from_elsewhere_stays_one() -> None:
    timer = SharedTimer()

    async def wait() -> None:
        with limit_of(timer, 30):
            await asyncio.sleep(30)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_limit_and_a_cancellation_at_once_are_a_cancellation() -> None:
    timer = SharedTimer()

    async def wait() -> None:
        with limit_of(timer, 30) as limit:
            limit.expire()
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(30)

    task = asyncio.create_task(wait())
    with pytest.raises(asyncio.CancelledError):
        await task
