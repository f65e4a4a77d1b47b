"""Writes that share a transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from tests.tasks import cancel

from toolyard.store.errors import DatabaseUnavailable, StoreClosed, Unstorable
from toolyard.store.sql.write_batcher import WriteBatcher

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Disk:
    """Notes each batch; ``hold`` keeps the next from being written until it is cleared."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.fault: Exception | None = None
        self.poison: int | None = None

    async def write(self, items: Sequence[int]) -> list[str]:
        self.batches.append(list(items))
        await self.go_on.wait()
        if self.poison in items:
            raise Unstorable("poison")
        if self.fault is not None:
            raise self.fault
        return [f"wrote {item}" for item in items]


@pytest.fixture
async def disk() -> Disk:
    return Disk()


@pytest.fixture
async def batcher(disk: Disk) -> WriteBatcher[int, str]:
    return WriteBatcher(disk.write, lambda item: item)


def put(shared: WriteBatcher[int, str], *items: int) -> list[asyncio.Task[str]]:
    return [asyncio.create_task(shared.put(item)) for item in items]


async def start_write(disk: Disk, shared: WriteBatcher[int, str], wait_until: Any) -> asyncio.Task[str]:
    """One that is being written, and is not done."""
    disk.go_on.clear()
    (first,) = put(shared, 0)
    await wait_until(lambda: disk.batches == [[0]])
    return first


async def test_items_put_during_a_write_form_the_next_batch(
    disk: Disk, batcher: WriteBatcher[int, str], wait_until: Callable[..., Awaitable[None]]
) -> None:
    first = await start_write(disk, batcher, wait_until)
    later = put(batcher, 3, 1, 2)
    await asyncio.sleep(0)
    disk.go_on.set()
    assert await asyncio.gather(first, *later) == ["wrote 0", "wrote 3", "wrote 1", "wrote 2"]
    assert disk.batches == [[0], [3, 1, 2]]
    # Nothing waits, nothing runs, and the next goes at once.
    me = asyncio.current_task()
    assert await batcher.put(5) == "wrote 5"
    await wait_until(lambda: asyncio.all_tasks() == {me})


@pytest.mark.parametrize("limits", [{"max_items": 2}, {"max_bytes": 15}], ids=["items", "bytes"])
async def test_a_batch_has_bounds(
    disk: Disk, wait_until: Callable[..., Awaitable[None]], limits: dict[str, int]
) -> None:
    write_batcher: WriteBatcher[int, str] = WriteBatcher(disk.write, lambda item: item, **limits)
    first = await start_write(disk, write_batcher, wait_until)
    later = put(write_batcher, 10, 11, 12, 13, 14)
    await asyncio.sleep(0)
    disk.go_on.set()
    await asyncio.gather(first, *later)
    assert [len(batch) for batch in disk.batches] == [1, 2, 2, 1]


async def test_a_cancelled_item_is_not_written(
    disk: Disk, batcher: WriteBatcher[int, str], wait_until: Callable[..., Awaitable[None]]
) -> None:
    first = await start_write(disk, batcher, wait_until)
    second, third = put(batcher, 1, 2)
    await asyncio.sleep(0)
    await cancel(first, second)
    disk.go_on.set()
    assert await third == "wrote 2"
    assert disk.batches == [[0], [2]]


async def test_an_unstorable_item_fails_alone(
    disk: Disk, batcher: WriteBatcher[int, str], wait_until: Callable[..., Awaitable[None]]
) -> None:
    disk.poison = 7
    first = await start_write(disk, batcher, wait_until)
    later = put(batcher, 6, 7, 8)
    await asyncio.sleep(0)
    disk.go_on.set()
    outcomes = await asyncio.gather(first, *later, return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["wrote 0", "wrote 6", "poison", "wrote 8"]


@pytest.mark.parametrize(
    "fault", [DatabaseUnavailable("away"), ZeroDivisionError("a bug")], ids=["away", "bug"]
)
async def test_a_fault_is_told_to_all_of_the_batch_and_nothing_is_written_twice(
    disk: Disk, batcher: WriteBatcher[int, str], wait_until: Callable[..., Awaitable[None]], fault: Exception
) -> None:
    """Whether something was kept may be unknown; to write it again might keep it twice."""
    first = await start_write(disk, batcher, wait_until)
    later = put(batcher, 1, 2)
    await asyncio.sleep(0)
    disk.fault = fault
    disk.go_on.set()
    assert await asyncio.gather(first, *later, return_exceptions=True) == [fault] * 3
    assert disk.batches == [[0], [1, 2]]
    disk.fault = None
    assert await batcher.put(3) == "wrote 3"


async def test_closing_waits_for_pending_items_for_a_limited_time(
    disk: Disk,
    batcher: WriteBatcher[int, str],
    wait_until: Callable[..., Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = await start_write(disk, batcher, wait_until)
    (second,) = put(batcher, 1)
    await asyncio.sleep(0)
    closing = asyncio.create_task(batcher.close())
    await asyncio.sleep(0)
    disk.go_on.set()
    await closing
    assert await asyncio.gather(first, second) == ["wrote 0", "wrote 1"]
    with pytest.raises(StoreClosed):
        await batcher.put(2)

    other: WriteBatcher[int, str] = WriteBatcher(disk.write, lambda item: item, close_timeout=0.01)
    disk.batches.clear()
    third = await start_write(disk, other, wait_until)
    (fourth,) = put(other, 1)
    await asyncio.sleep(0)
    await other.close()
    with pytest.raises(StoreClosed):
        await fourth
    disk.go_on.set()
    assert await third == "wrote 0"
