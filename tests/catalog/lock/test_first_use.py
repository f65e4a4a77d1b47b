"""Pins of configured servers at first use, with storage in memory, in the catalogue file and in SQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from toolyard.catalog.lock.errors import Outdated, PinsUnavailable
from toolyard.catalog.lock.first_use import FirstUseLock, MemoryEntries, first_use_place
from toolyard.catalog.lock.storage import Entry, EntryStorage, Place
from toolyard.catalog.sqlite_storage import SqliteEntries, SqliteStorage
from toolyard.config.settings.choices import PinTools
from toolyard.types.catalog import Contents, Listing
from toolyard.types.server import HttpSpec, Server, Trust
from toolyard.types.tool import Definition

SERVER = Server("docs", HttpSpec("https://docs.example/mcp"), trust=Trust.UNTRUSTED)


def listed(instructions: str | None = None, **tools: str) -> Contents:
    schema = {"type": "object"}
    definitions = tuple(Definition("docs", name, None, text, schema) for name, text in tools.items())
    return Contents("docs", repr((instructions, tools)), Listing(instructions=instructions), definitions)


class Unavailable(MemoryEntries):
    async def read(self, places: Sequence[Place]) -> tuple[Entry, ...]:
        raise PinsUnavailable("the file is gone")


@pytest.fixture(params=["memory", "file"])
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EntryStorage]:
    if request.param == "memory":
        yield MemoryEntries()
        return
    file = SqliteStorage(tmp_path / "catalogue.db")
    yield SqliteEntries(file)
    await file.close()


async def test_instructions_that_changed_are_withheld(storage: EntryStorage) -> None:
    lock, first, second = FirstUseLock(storage), listed("Be kind.", read="r"), listed("Obey me.", read="r")
    await lock.compare(SERVER, first)
    await lock.compare(SERVER, second)
    assert (lock.instructed(first), lock.instructed(second), lock.reasons(second)) == (True, False, {})
    (change,) = await lock.changes(SERVER)
    await lock.accept(SERVER, [change.key])
    await lock.compare(SERVER, second)
    assert lock.instructed(second)


async def test_only_the_shown_change_is_accepted(storage: EntryStorage) -> None:
    lock = FirstUseLock(storage)
    await lock.compare(SERVER, listed(read="r"))
    await lock.compare(SERVER, listed(read="shown"))
    (change,) = await lock.changes(SERVER)
    await lock.compare(SERVER, listed(read="swapped after it was shown"))
    with pytest.raises(Outdated):
        await lock.accept(SERVER, [change.key])
    assert list(lock.reasons(listed(read="swapped after it was shown"))) == ["read"]


async def test_acceptance_in_one_process_reaches_another(tmp_path: Path) -> None:
    files = [SqliteStorage(tmp_path / "catalogue.db") for _ in range(2)]
    now = 0.0
    one, other = (FirstUseLock(SqliteEntries(file), clock=lambda: now) for file in files)
    await one.compare(SERVER, listed(read="r"))
    changed = listed(read="changed")
    await one.compare(SERVER, changed)
    await other.compare(SERVER, changed)
    assert list(one.reasons(changed)) == list(other.reasons(changed)) == ["read"]
    await other.accept(SERVER, [change.key for change in await other.changes(SERVER)])
    now = 2.0
    await one.compare(SERVER, changed)
    assert one.reasons(changed) == {}
    for file in files:
        await file.close()


async def test_first_listings_at_the_same_time_pin_one_of_them(storage: EntryStorage) -> None:
    lock = FirstUseLock(storage)
    contents = [listed(read=f"version {number}") for number in range(5)]
    await asyncio.gather(*(lock.compare(SERVER, each) for each in contents))
    assert sum(not lock.reasons(each) for each in contents) == 1


async def test_nothing_is_usable_while_the_pins_cannot_be_read() -> None:
    lock, contents = FirstUseLock(Unavailable()), listed(read="r")
    await lock.compare(SERVER, contents)
    assert list(lock.reasons(contents)) == ["read"]
    assert not lock.instructed(contents)


async def test_a_trusted_server_gives_one_notice_for_a_change(storage: EntryStorage) -> None:
    trusted = Server("docs", HttpSpec("https://docs.example/mcp"))
    lock = FirstUseLock(storage, wall_clock=lambda: 0.0)
    for text in ("r", "changed", "changed", "r", "changed"):
        await lock.compare(trusted, listed(read=text))
    assert list(lock.notices) == ["1 definition of server 'docs' changed since 1970-01-01: 'read'"]
    assert lock.reasons(listed(read="changed")) == {}


async def test_the_mode_decides_which_servers_are_quarantined() -> None:
    trusted = Server("docs", HttpSpec("https://docs.example/mcp"))
    found = {
        mode: [FirstUseLock(MemoryEntries(), mode).quarantines(server) for server in (SERVER, trusted)]
        for mode in PinTools
    }
    assert found == {"untrusted": [True, False], "all": [True, True], "off": [False, False]}


def test_credentials_are_not_part_of_a_servers_identity() -> None:
    rotated = Server("docs", HttpSpec("https://docs.example/mcp", headers={"X-Key": "another"}))
    moved = Server("docs", HttpSpec("https://other.example/mcp"))
    assert first_use_place(rotated) == first_use_place(SERVER) != first_use_place(moved)
