"""The lock of registry servers: an instance may use the tools accepted for it, or for everyone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolyard.catalog.lock import build_pins
from toolyard.catalog.lock.errors import Outdated
from toolyard.catalog.lock.registry_lock import RegistryLock
from toolyard.catalog.lock.storage import PinEntry, PinKey
from toolyard.types.server import HttpSpec, InstanceRef, Server
from toolyard.types.tool import Definition, RawListing, ValidatedListing

SERVER = "s1"


@dataclass
class MemoryPinStorage:
    """A PinStorage for one process."""

    kept: dict[PinKey, PinEntry] = field(default_factory=dict[PinKey, PinEntry])
    reads: int = 0
    gone: bool = False

    async def revisions(self, pin_keys: Sequence[PinKey]) -> tuple[int, ...]:
        return tuple(self.kept.get(each, PinEntry()).revision for each in pin_keys)

    async def read(self, pin_keys: Sequence[PinKey]) -> tuple[PinEntry, ...]:
        self.reads += 1
        return tuple(self.kept.get(each, PinEntry()) for each in pin_keys)

    async def list_unaccepted(self, server_id: str) -> Sequence[bytes]:
        return [each.seen for place, each in self.kept.items() if each.seen and place.server_id == server_id]

    async def save(self, pin_key: PinKey, entry: PinEntry, *, notify: bool = False) -> bool:
        if self.gone or self.kept.get(pin_key, PinEntry()).revision != entry.revision:
            return False
        self.kept[pin_key] = replace(entry, revision=entry.revision + 1)
        return True


def instance(user: str) -> Server:
    spec = InstanceRef(user, "words", None, f"i-{user}", SERVER)
    return Server(spec.server_id, HttpSpec("https://words.example/mcp"), instance=spec)


def build_listing(user: str, instructions: str | None = None, **tools: str) -> ValidatedListing:
    server_id = f"@{user}/words"
    definitions = tuple(
        Definition(server_id, name, None, digest, {"type": "object"})
        for name, digest in sorted(tools.items())
    )
    digest = sha256(repr((instructions, sorted(tools.items()))).encode()).hexdigest()
    return ValidatedListing(server_id, digest, RawListing(instructions=instructions), definitions)


async def usable(lock: RegistryLock, user: str, **tools: str) -> list[str]:
    """Return the tools that a user may use of those listed now."""
    contents = build_listing(user, **tools)
    await lock.check_listing(instance(user), contents)
    return [name for name in tools if name not in lock.quarantine_reasons(contents)]


async def test_until_a_listing_was_held_against_the_lock_nothing_of_it_is_used() -> None:
    lock = RegistryLock(MemoryPinStorage())
    assert set(lock.quarantine_reasons(build_listing("ann", a="x"))) == {"a"}
    assert await usable(lock, "ann", a="x") == ["a"]
    assert set(lock.quarantine_reasons(build_listing("ann", a="y"))) == {"a"}


async def test_instructions_are_passed_on_as_they_were_accepted_and_no_others() -> None:
    lock = RegistryLock(MemoryPinStorage())
    before, after = build_listing("ann", "Look first.", a="x"), build_listing("ann", "Obey.", a="x")
    assert not lock.has_accepted_instructions(before)
    for contents in (before, after):
        await lock.check_listing(instance("ann"), contents)
    assert (lock.has_accepted_instructions(before), lock.has_accepted_instructions(after)) == (True, False)
    place = PinKey(SERVER, "i-ann")
    await lock.accept(place, "x", [each.key for each in await lock.list_unaccepted_changes(place, "x")])
    await lock.check_listing(instance("ann"), after)
    assert lock.has_accepted_instructions(after)


async def test_a_verdict_is_not_reused_for_another_instance_under_the_same_name() -> None:
    """An instance may be deleted and made again under its old slug, of another server."""
    storage = MemoryPinStorage()
    here, elsewhere = RegistryLock(storage), RegistryLock(storage)
    old = instance("ann")
    new = replace(old, instance=InstanceRef("ann", "words", None, "i-new", "s2"))
    contents, accepted_listing = (
        build_listing("ann", say="says"),
        build_listing("ann", say="says something else"),
    )
    await here.check_listing(old, contents)
    assert not here.quarantine_reasons(contents)
    # Another replica sees the tools of the new instance, and then their change.
    await elsewhere.check_listing(new, accepted_listing)
    assert await storage.revisions((PinKey("s2"), PinKey("s2", "i-new"))) == (1, 1)
    await here.check_listing(new, contents)
    assert list(here.quarantine_reasons(contents)) == ["say"]


async def test_definitions_that_cannot_be_stored_are_not_trusted() -> None:
    lock = RegistryLock(MemoryPinStorage(gone=True))
    assert await usable(lock, "ann", a="x") == []


async def test_a_lock_that_cannot_be_believed_accepts_nothing() -> None:
    memory = MemoryPinStorage()
    assert await usable(RegistryLock(memory), "ann", a="x") == ["a"]
    memory.kept = {place: replace(each, pins=b"torn", revision=9) for place, each in memory.kept.items()}
    lock = RegistryLock(memory)
    assert await usable(lock, "ann", a="x") == []
    place = PinKey(SERVER, "i-ann")
    await lock.accept(place, "x", [each.key for each in await lock.list_unaccepted_changes(place, "x")])
    assert await usable(lock, "ann", a="x") == ["a"]


async def test_nothing_is_read_or_written_while_nothing_changes() -> None:
    memory = MemoryPinStorage()
    lock = RegistryLock(memory)
    await usable(lock, "ann", a="x")
    before, reads = dict(memory.kept), memory.reads
    for _ in range(3):
        assert await usable(lock, "ann", a="x") == ["a"]
    assert (memory.kept, memory.reads) == (before, reads)


async def test_of_many_first_users_at_once_one_is_trusted_and_the_others_are_held_against_it() -> None:
    lock = RegistryLock(MemoryPinStorage())
    people = [f"p{number}" for number in range(6)]
    results = await asyncio.gather(*(usable(lock, user, same="x", own=user) for user in people))
    assert all("same" in each for each in results)
    assert sum("own" in each for each in results) == 1


async def test_users_with_fewer_tools_do_not_remove_tools_of_others() -> None:
    lock = RegistryLock(MemoryPinStorage())
    assert await usable(lock, "ann", a="x", b="y") == ["a", "b"]
    assert await usable(lock, "bob", a="x") == ["a"]
    assert await lock.list_unaccepted_changes(PinKey(SERVER), "S") == []
    # One instance has a tool under another name: for the others nothing changes.
    assert await usable(lock, "cid", a="x", c="y") == ["a"]
    (unaccepted_change,) = await lock.list_unaccepted_changes(PinKey(SERVER), "S")
    assert (unaccepted_change.kind.value, unaccepted_change.was, unaccepted_change.tool) == (
        "renamed",
        "b",
        "c",
    )
    await lock.accept(PinKey(SERVER), "S", [unaccepted_change.key])
    assert await usable(lock, "cid", a="x", c="y") == ["a", "c"]
    for user in ("ann", "dan"):
        assert await usable(lock, user, a="x", b="y") == ["a", "b"]


async def test_viewing_trusts_nothing_and_reports_differences() -> None:
    memory = MemoryPinStorage()
    lock = RegistryLock(memory)
    assert await lock.compare_preview(SERVER, build_pins(build_listing("", a="x"))) == {}
    assert memory.kept == {}
    await usable(lock, "ann", a="x")
    assert set(await lock.compare_preview(SERVER, build_pins(build_listing("", a="y", b="z")))) == {"a", "b"}
    assert {each.tool for each in await lock.list_unaccepted_changes(PinKey(SERVER), "S")} == {"a", "b"}
    assert await lock.compare_preview(SERVER, build_pins(build_listing("", a="x"))) == {}
    assert await lock.list_unaccepted_changes(PinKey(SERVER), "S") == []


async def test_two_simultaneous_acceptances_both_count() -> None:
    lock = RegistryLock(MemoryPinStorage())
    await usable(lock, "ann", a="x")
    await usable(lock, "ann", a="x", b="y", c="z")
    place = PinKey(SERVER)
    keys = [each.key for each in await lock.list_unaccepted_changes(place, "S")]
    await asyncio.gather(*(lock.accept(place, "S", [key]) for key in keys))
    assert await usable(lock, "bob", a="x", b="y", c="z") == ["a", "b", "c"]
    with pytest.raises(Outdated):
        await lock.accept(place, "S", keys)


# A property of all actions in any order.

PEOPLE = st.sampled_from(["ann", "bob"])
HAS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["one", "two", "three"]), max_size=3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("list"), PEOPLE, HAS),
        st.tuples(st.just("accept"), st.sampled_from(["ann", "bob", "everyone"]), st.integers(0, 3)),
        st.tuples(st.just("restart"), st.none(), st.none()),
    ),
    max_size=12,
)


@given(STEPS)
def test_only_definitions_accepted_for_a_user_are_usable(steps: list[tuple[str, Any, Any]]) -> None:
    asyncio.run(_walk(steps))


async def _walk(steps: list[tuple[str, Any, Any]]) -> None:
    memory = MemoryPinStorage()
    lock = RegistryLock(memory)
    everyone: dict[str, str] | None = None
    """The tools that an admin has accepted for everyone."""
    own: dict[str, set[tuple[str, str]]] = {"ann": set(), "bob": set()}
    for step, user, operation in steps:
        if step == "restart":
            lock = RegistryLock(memory)
        elif step == "list":
            everyone = dict(operation) if everyone is None else everyone
            may = own[user] | set(everyone.items())
            usable_tools = await usable(lock, user, **operation)
            assert set(usable_tools) == {
                name for name, description in operation.items() if (name, description) in may
            }
            own[user] |= {(name, operation[name]) for name in usable_tools}
            # Of several definitions of one name, an instance uses the latest one that it received.
            own[user] = {
                each for each in own[user] if each[0] not in usable_tools or operation[each[0]] == each[1]
            }
        else:
            place = PinKey(SERVER) if user == "everyone" else PinKey(SERVER, f"i-{user}")
            changes = await lock.list_unaccepted_changes(place, "S")
            if not changes:
                continue
            change = changes[operation % len(changes)]
            await lock.accept(place, "S", [change.key])
            assert change.after is not None
            description = str(change.after.definition.get("description", ""))
            if user == "everyone":
                assert everyone is not None
                everyone[change.tool] = description
            else:
                tool_names = {change.tool, change.was}
                own[user] = {each for each in own[user] if each[0] not in tool_names} | {
                    (change.tool, description)
                }


async def test_a_listing_without_a_verdict_is_quarantined_until_it_is_compared_again() -> None:
    lock, ann, contents = (
        RegistryLock(MemoryPinStorage()),
        instance("ann"),
        build_listing("ann", "Be kind.", read="r"),
    )
    await lock.check_listing(ann, contents)
    assert lock.quarantine_reasons(contents) == {}
    # 4,096 other listings evict the verdict.
    for number in range(4096):
        await lock.check_listing(ann, build_listing("ann", read=f"version {number}"))
    assert list(lock.quarantine_reasons(contents)) == ["read"]
    assert not lock.has_accepted_instructions(contents)
    await lock.check_listing(ann, contents)
    assert lock.quarantine_reasons(contents) == {}
