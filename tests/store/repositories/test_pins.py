"""Locks of registry servers and instances: replaced by whoever read them last, gone with what they are of."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from toolyard.catalog.lock.storage import PinEntry, PinKey
from toolyard.store import Database
from toolyard.store.change_feed.signals import REGISTRY_CHANNEL
from toolyard.types.account import User
from toolyard.types.registry import Instance, RegistryServer

SERVER, INSTANCE_KEY = PinKey("server-1"), PinKey("server-1", "instance-1")


async def test_saved_pins_are_read_by_every_process(
    database: Database, instance: Instance, reopen: Callable[..., Awaitable[Database]]
) -> None:
    pins = database.pins
    assert await pins.read((SERVER, INSTANCE_KEY)) == (PinEntry(), PinEntry())
    assert await pins.save(SERVER, PinEntry(0, b"\x00all", None))
    assert await pins.save(INSTANCE_KEY, PinEntry(0, b"mine", b"seen"))
    other = (await reopen()).pins
    assert await other.revisions((INSTANCE_KEY, SERVER, PinKey("none"))) == (1, 1, 0)
    assert await other.read((INSTANCE_KEY, SERVER)) == (
        PinEntry(1, b"mine", b"seen"),
        PinEntry(1, b"\x00all"),
    )
    assert await other.list_unaccepted("server-1") == [b"seen"]
    assert await other.save(INSTANCE_KEY, PinEntry(1, b"mine", None))
    assert await pins.list_unaccepted("server-1") == []
    assert await pins.revisions((INSTANCE_KEY,)) == (2,)


async def test_of_many_simultaneous_saves_one_succeeds(database: Database, instance: Instance) -> None:
    for revision in range(3):
        entries = [PinEntry(revision, b"%d" % number) for number in range(8)]
        results = await asyncio.gather(*(database.pins.save(SERVER, each) for each in entries))
        assert results.count(True) == 1
        (stored_pins,) = await database.pins.read((SERVER,))
        assert (stored_pins.revision, stored_pins.pins) == (revision + 1, entries[results.index(True)].pins)


async def test_equal_listings_are_seen_once(
    database: Database, ann: User, instance: Instance, server: RegistryServer
) -> None:
    more = Instance(server.id, "c-public", "Other", "Other", id="instance-2", user_id=ann.id)
    await database.registry.add_instance(more)
    for place in (SERVER, INSTANCE_KEY, PinKey(server.id, more.id)):
        assert await database.pins.save(place, PinEntry(0, b"x", b"the same"))
    assert await database.pins.list_unaccepted(server.id) == [b"the same"]
    assert await database.pins.list_unaccepted("another") == []


async def test_locks_go_with_their_instance_their_owner_and_their_server(
    database: Database, ann: User, instance: Instance, server: RegistryServer
) -> None:
    pins, both = database.pins, (SERVER, INSTANCE_KEY)

    async def save_both() -> tuple[int, ...]:
        for place in both:
            await pins.save(place, PinEntry(0, b"x"))
        return await pins.revisions(both)

    assert await save_both() == (1, 1)
    await database.registry.delete_instance(ann.id, instance.id)
    assert await pins.revisions(both) == (1, 0)
    await database.registry.add_instance(instance)
    assert await save_both() == (1, 1)
    await database.accounts.delete_user(ann.id)
    assert await pins.revisions(both) == (1, 0)
    # Nothing is kept of what is not there.
    assert not await pins.save(INSTANCE_KEY, PinEntry(0, b"x"))
    await database.registry.delete_server(server.id)
    assert await save_both() == (0, 0)


async def test_an_acceptance_is_published(database: Database, instance: Instance) -> None:
    async with aclosing(database.signals.listen(REGISTRY_CHANNEL)) as listening:
        assert (payload := await anext(listening)) == ""
        for revision in range(100):
            # A word may be lost before the ear is open; the next one is not.
            await database.pins.save(INSTANCE_KEY, PinEntry(revision, b"x"), notify=True)
            payload = await asyncio.wait_for(anext(listening), 30)
            if payload:
                break
        assert payload == "instance-1"


async def test_pins_of_configured_servers_need_no_registry_row_and_keep_their_time(
    database: Database, reopen: Callable[..., Awaitable[Database]]
) -> None:
    place, pins = PinKey("files", "0" * 64), database.config_pins
    assert await pins.save(place, PinEntry(0, b"first", None, 12.5))
    assert not await pins.save(place, PinEntry(0, b"second", None, 13.5))
    other = (await reopen()).config_pins
    assert await other.read((place,)) == (PinEntry(1, b"first", None, 12.5),)
    assert await other.save(place, PinEntry(1, b"first", b"seen", 12.5))
    assert await pins.list_unaccepted("files") == [b"seen"]
