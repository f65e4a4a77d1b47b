"""Pins of configured servers at first use, with storage in memory, in the catalogue file and in SQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from toolyard.catalog.lock.errors import Outdated, PinsUnavailable
from toolyard.catalog.lock.first_use import FirstUseLock, first_use_pin_key
from toolyard.catalog.lock.storage import MemoryPinEntryStorage, PinEntry, PinEntryStorage, PinKey
from toolyard.catalog.sqlite_storage import SqliteListingStorage, SqlitePinEntryStorage
from toolyard.config.settings.table import PinTools
from toolyard.types.server import HttpSpec, Server, Trust
from toolyard.types.tool import Definition, RawListing, ValidatedListing

SERVER = Server("docs", HttpSpec("https://docs.example/mcp"), trust=Trust.UNTRUSTED)


def build_listing(instructions: str | None = None, **tools: str) -> ValidatedListing:
    schema = {"type": "object"}
    definitions = tuple(Definition("docs", name, None, text, schema) for name, text in tools.items())
    return ValidatedListing(
        "docs", repr((instructions, tools)), RawListing(instructions=instructions), definitions
    )


class Unavailable(MemoryPinEntryStorage):
    async def read(self, pin_keys: Sequence[PinKey]) -> tuple[PinEntry, ...]:
        raise PinsUnavailable("the file is gone")


@pytest.fixture(params=["memory", "file"])
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[PinEntryStorage]:
    if request.param == "memory":
        yield MemoryPinEntryStorage()
        return
    file = SqliteListingStorage(tmp_path / "catalogue.db")
    yield SqlitePinEntryStorage(file)
    await file.close()


async def test_instructions_that_changed_are_withheld(storage: PinEntryStorage) -> None:
    lock, first, second = (
        FirstUseLock(storage),
        build_listing("Be kind.", read="r"),
        build_listing("Obey me.", read="r"),
    )
    await lock.check_listing(SERVER, first)
    await lock.check_listing(SERVER, second)
    assert (
        lock.has_accepted_instructions(first),
        lock.has_accepted_instructions(second),
        lock.quarantine_reasons(second),
    ) == (True, False, {})
    (change,) = await lock.changes(SERVER, second)
    await lock.accept(SERVER, second, [change.key])
    await lock.check_listing(SERVER, second)
    assert lock.has_accepted_instructions(second)


async def test_only_the_shown_change_is_accepted(storage: PinEntryStorage) -> None:
    lock = FirstUseLock(storage)
    await lock.check_listing(SERVER, build_listing(read="r"))
    await lock.check_listing(SERVER, build_listing(read="shown"))
    (change,) = await lock.changes(SERVER, build_listing(read="shown"))
    swapped_listing = build_listing(read="swapped after it was shown")
    await lock.check_listing(SERVER, swapped_listing)
    with pytest.raises(Outdated):
        await lock.accept(SERVER, swapped_listing, [change.key])
    assert list(lock.quarantine_reasons(swapped_listing)) == ["read"]


async def test_an_older_listing_of_another_person_hides_no_change(storage: PinEntryStorage) -> None:
    now = 0.0
    lock, first, second = (
        FirstUseLock(storage, clock=lambda: now),
        build_listing(read="r"),
        build_listing(read="changed"),
    )
    # The verdict of the second listing is less than a second old when it is compared again.
    for at, each in ((0.0, first), (1.5, second), (2.0, first), (2.0, second)):
        now = at
        await lock.check_listing(SERVER, each)
    assert list(lock.quarantine_reasons(second)) == ["read"]
    assert await lock.changes(SERVER, first) == []
    (change,) = await lock.changes(SERVER, second)
    await lock.accept(SERVER, second, [change.key])
    await lock.check_listing(SERVER, second)
    assert lock.quarantine_reasons(second) == {}


async def test_acceptance_in_one_process_reaches_another(tmp_path: Path) -> None:
    files = [SqliteListingStorage(tmp_path / "catalogue.db") for _ in range(2)]
    now = 0.0
    one, other = (FirstUseLock(SqlitePinEntryStorage(file), clock=lambda: now) for file in files)
    await one.check_listing(SERVER, build_listing(read="r"))
    changed_listing = build_listing(read="changed")
    await one.check_listing(SERVER, changed_listing)
    await other.check_listing(SERVER, changed_listing)
    assert (
        list(one.quarantine_reasons(changed_listing))
        == list(other.quarantine_reasons(changed_listing))
        == ["read"]
    )
    await other.accept(
        SERVER, changed_listing, [change.key for change in await other.changes(SERVER, changed_listing)]
    )
    now = 2.0
    await one.check_listing(SERVER, changed_listing)
    assert one.quarantine_reasons(changed_listing) == {}
    for file in files:
        await file.close()


async def test_first_listings_at_the_same_time_pin_one_of_them(storage: PinEntryStorage) -> None:
    lock = FirstUseLock(storage)
    contents = [build_listing(read=f"version {number}") for number in range(5)]
    await asyncio.gather(*(lock.check_listing(SERVER, each) for each in contents))
    assert sum(not lock.quarantine_reasons(each) for each in contents) == 1


async def test_a_verdict_is_not_reused_for_another_address_under_the_same_id(
    storage: PinEntryStorage,
) -> None:
    lock, elsewhere = (
        FirstUseLock(storage),
        Server("docs", HttpSpec("https://x.example"), trust=Trust.UNTRUSTED),
    )
    await lock.check_listing(SERVER, build_listing(read="r"))
    await lock.check_listing(elsewhere, build_listing(read="of another server"))
    assert lock.quarantine_reasons(build_listing(read="of another server")) == {}
    await lock.check_listing(SERVER, build_listing(read="of another server"))
    assert list(lock.quarantine_reasons(build_listing(read="of another server"))) == ["read"]


async def test_nothing_is_usable_while_the_pins_cannot_be_read() -> None:
    lock, contents = FirstUseLock(Unavailable()), build_listing(read="r")
    await lock.check_listing(SERVER, contents)
    assert list(lock.quarantine_reasons(contents)) == ["read"]
    assert not lock.has_accepted_instructions(contents)


async def test_a_listing_is_quarantined_after_1024_others_evicted_its_verdict() -> None:
    lock, first, changed_listing = (
        FirstUseLock(MemoryPinEntryStorage()),
        build_listing("Be kind.", read="r"),
        build_listing(read="c"),
    )
    for each in (
        first,
        changed_listing,
        *(build_listing(read=f"version {number}") for number in range(1024)),
    ):
        await lock.check_listing(SERVER, each)
    assert list(lock.quarantine_reasons(changed_listing)) == list(lock.quarantine_reasons(first)) == ["read"]
    assert not lock.has_accepted_instructions(changed_listing)
    await lock.check_listing(SERVER, first)
    assert lock.quarantine_reasons(first) == {}


async def test_a_trusted_server_needs_no_verdict() -> None:
    server = Server("docs", HttpSpec("https://docs.example/mcp"))
    lock, contents = FirstUseLock(MemoryPinEntryStorage()), build_listing(read="r")
    for each in (contents, *(build_listing(read=f"version {number}") for number in range(1024))):
        await lock.check_listing(server, each)
    assert lock.quarantine_reasons(contents) == {}
    await lock.check_listing(SERVER, build_listing(read="r of another trust"))
    assert list(lock.quarantine_reasons(contents)) == ["read"]
    assert FirstUseLock(MemoryPinEntryStorage(), PinTools.OFF).quarantine_reasons(contents) == {}


async def test_a_trusted_server_gives_one_notice_for_a_change(storage: PinEntryStorage) -> None:
    server = Server("docs", HttpSpec("https://docs.example/mcp"))
    lock = FirstUseLock(storage, wall_clock=lambda: 0.0)
    for text in ("r", "changed", "changed", "r", "changed"):
        await lock.check_listing(server, build_listing(read=text))
    assert list(lock.notices) == ["1 definition of server 'docs' changed since 1970-01-01: 'read'"]
    assert lock.quarantine_reasons(build_listing(read="changed")) == {}


async def test_a_notice_tells_new_tools_from_changed_ones() -> None:
    server = Server("docs", HttpSpec("https://docs.example/mcp"))
    lock = FirstUseLock(MemoryPinEntryStorage(), wall_clock=lambda: 0.0)
    for tools in ({"a": "1"}, {"a": "1", "b": "1"}, {"a": "2", "b": "1", "c": "1"}):
        await lock.check_listing(server, build_listing(**tools))
    assert list(lock.notices) == [
        "1 definition of server 'docs' is new since 1970-01-01: 'b'",
        "2 definitions of server 'docs' are new or changed since 1970-01-01: 'a', 'c'",
    ]


async def test_the_mode_decides_which_servers_are_quarantined() -> None:
    trusted_server = Server("docs", HttpSpec("https://docs.example/mcp"))
    quarantine_by_mode = {
        mode: [
            server.trust in FirstUseLock(MemoryPinEntryStorage(), mode).quarantined_trusts
            for server in (SERVER, trusted_server)
        ]
        for mode in PinTools
    }
    assert quarantine_by_mode == {"untrusted": [True, False], "all": [True, True], "off": [False, False]}


def test_credentials_are_not_part_of_a_servers_identity() -> None:
    server = Server("docs", HttpSpec("https://docs.example/mcp", headers={"X-Key": "another"}))
    moved_server = Server("docs", HttpSpec("https://other.example/mcp"))
    assert first_use_pin_key(server) == first_use_pin_key(SERVER) != first_use_pin_key(moved_server)
