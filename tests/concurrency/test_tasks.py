from __future__ import annotations

import asyncio

import pytest
from tests.tasks import cancel

from toolyard.concurrency.tasks import BackgroundTasks, SingleFlight


class Work:
    """Counts its starts, and ends when released."""

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


async def test_concurrent_callers_share_one_task() -> None:
    flights, work = SingleFlight[str, int](cancel_when_abandoned=True), Work()
    tasks = await waiters(flights, work, 5)
    work.release.set()
    assert await asyncio.gather(*tasks) == [1] * 5


async def test_another_key_starts_another_task() -> None:
    flights, work = SingleFlight[str, int](cancel_when_abandoned=True), Work()
    work.release.set()
    assert sorted(await asyncio.gather(flights.run("a", work), flights.run("b", work))) == [1, 2]


async def test_a_result_is_not_cached() -> None:
    flights, work = SingleFlight[str, int](cancel_when_abandoned=True), Work()
    work.release.set()
    assert await flights.run("key", work) == 1
    assert await flights.run("key", work) == 2


async def test_an_exception_reaches_all_callers_and_is_not_cached() -> None:
    flights, work = SingleFlight[str, int](cancel_when_abandoned=True), Work()
    tasks = await waiters(flights, work, 3)
    work.error = ValueError("no")
    work.release.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ValueError] * 3
    work.error = None
    assert await flights.run("key", work) == 2


async def test_a_cancelled_caller_does_not_affect_the_others() -> None:
    flights, work = SingleFlight[str, int](cancel_when_abandoned=True), Work()
    first, second = await waiters(flights, work, 2)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    work.release.set()
    assert await second == 1
    assert work.cancelled == 0


async def test_a_task_is_cancelled_with_its_last_caller() -> None:
    flights, work = SingleFlight[str, int](cancel_when_abandoned=True), Work()
    tasks = await waiters(flights, work, 2)
    await cancel(*tasks)
    await asyncio.sleep(0)
    assert work.cancelled == 1


async def test_a_caller_after_the_last_was_cancelled_starts_a_new_task() -> None:
    flights, work = SingleFlight[str, int](cancel_when_abandoned=True), Work()
    (task,) = await waiters(flights, work, 1)
    await cancel(task)
    work.release.set()
    assert await flights.run("key", work) == 2


async def test_closing_cancels_the_task_and_waits_for_its_end() -> None:
    flights, work = SingleFlight[str, int](cancel_when_abandoned=True), Work()
    (task,) = await waiters(flights, work, 1)
    await flights.close()
    assert work.cancelled == 1
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_task_that_must_not_be_abandoned_continues_without_callers() -> None:
    flights, work = SingleFlight[str, int](cancel_when_abandoned=False), Work()
    (task,) = await waiters(flights, work, 1)
    await cancel(task)
    (next_task,) = await waiters(flights, work, 1)
    work.release.set()
    assert await next_task == 1
    assert work.cancelled == 0


async def test_closing_lets_a_task_complete_within_the_timeout() -> None:
    flights, work = SingleFlight[str, int](cancel_when_abandoned=False), Work()
    (task,) = await waiters(flights, work, 1)
    closing = asyncio.create_task(flights.close(30))
    await asyncio.sleep(0)
    work.release.set()
    await closing
    assert await task == 1


async def test_waiting_for_other_keys_ends_with_their_tasks_and_ignores_the_own_key() -> None:
    flights, work = SingleFlight[str, int](cancel_when_abandoned=False), Work()
    (task,) = await waiters(flights, work, 1)
    await flights.wait_for_other_keys("key")
    other = asyncio.create_task(flights.wait_for_other_keys("other"))
    await asyncio.sleep(0)
    assert not other.done()
    work.release.set()
    await other
    assert task.done() or not flights.has_pending(lambda _: True)


async def test_waiting_for_other_keys_raises_when_their_task_is_cancelled() -> None:
    flights, work = SingleFlight[str, int](cancel_when_abandoned=False), Work()
    (task,) = await waiters(flights, work, 1)
    other = asyncio.create_task(flights.wait_for_other_keys("other"))
    await asyncio.sleep(0)
    await flights.close()
    outcomes = await asyncio.gather(task, other, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError] * 2


async def test_closing_background_tasks_cancels_them_and_waits_for_their_end() -> None:
    tasks, work = BackgroundTasks(), Work()
    task = tasks.spawn(work(), name="work")
    await work.running.wait()
    await tasks.close()
    assert task.cancelled()
    assert (task.get_name(), work.cancelled) == ("work", 1)


async def test_waiting_for_background_tasks_includes_those_started_meanwhile() -> None:
    tasks, work = BackgroundTasks(), Work()

    async def spawn_another() -> None:
        tasks.add(asyncio.create_task(work()))

    work.release.set()
    tasks.spawn(spawn_another())
    await tasks.wait()
    assert work.begun == 1


async def test_a_failed_background_task_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    tasks, work = BackgroundTasks(), Work()
    work.error = ValueError("disk full")
    work.release.set()
    tasks.spawn(work(), name="work")
    await tasks.wait()
    assert "the background task work failed" in caplog.text
    assert "disk full" in caplog.text
