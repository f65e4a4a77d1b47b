from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.reachable import find_keys

from toolyard.catalog.cache import CatalogueCache
from toolyard.catalog.listing_storage import ListingKey, ListingStorage, MemoryListingStorage, StoredListing
from toolyard.catalog.sqlite_storage import CATALOGUE_FILE_NAME, SqliteListingStorage
from toolyard.errors import SignInNeeded, Unreachable
from toolyard.types.account import LOCAL_PRINCIPAL, Principal
from toolyard.types.server import HttpSpec, Server, StdioSpec, Trust
from toolyard.types.tool import CacheScope, Catalogue, RawListing

if TYPE_CHECKING:
    from tests.catalog.conftest import Source
    from tests.manual_clock import ManualClock

ANN, BOB = Principal("ann"), Principal("bob")
DAY_SECONDS = 86_400.0


@pytest.fixture
def storage() -> MemoryListingStorage:
    return MemoryListingStorage()


@pytest.fixture
async def catalogues(
    source: Source, storage: MemoryListingStorage, clock: ManualClock
) -> AsyncIterator[CatalogueCache]:
    catalogues = CatalogueCache(source, storage, clock=clock)
    yield catalogues
    await catalogues.close()


@pytest.fixture
def repo(server: Callable[..., Server]) -> Server:
    return server()


def names(catalogue: Catalogue) -> list[str]:
    return [definition.name for definition in catalogue.definitions]


async def wait_for_start(source: Any) -> None:
    async with asyncio.timeout(30):
        await source.started.wait()
    source.started.clear()


async def test_the_first_to_ask_fetches(
    catalogues: CatalogueCache, source: Source, repo: Server, listing: Callable[..., RawListing]
) -> None:
    source.listing = listing("b", "a", instructions="Be kind.", protocol_version="2026-07-28")
    catalogue = await catalogues.get(repo, LOCAL_PRINCIPAL)
    assert names(catalogue) == ["a", "b"]
    assert catalogue.find("a") is catalogue.definitions[0]
    assert catalogue.find("c") is None
    assert catalogue.listing.instructions == "Be kind."
    assert (catalogue.age, catalogue.stale, catalogue.failure) == (0.0, False, None)
    assert source.calls == [("repo", "local")]


async def test_within_its_ttl_it_is_answered_from_memory(
    catalogues: CatalogueCache, source: Source, repo: Server, clock: ManualClock
) -> None:
    first = await catalogues.get(repo, LOCAL_PRINCIPAL)
    clock.forward(59.9)
    again = await catalogues.get(repo, LOCAL_PRINCIPAL, connected=True)
    assert len(source.calls) == 1
    assert again.age == pytest.approx(59.9)
    assert not again.stale
    assert again.contents is first.contents


async def test_past_its_ttl_it_is_fetched_from_a_connected_server(
    catalogues: CatalogueCache,
    source: Source,
    repo: Server,
    clock: ManualClock,
    listing: Callable[..., RawListing],
) -> None:
    await catalogues.get(repo, LOCAL_PRINCIPAL)
    clock.forward(60.0)
    source.listing = listing("new")
    assert names(await catalogues.get(repo, LOCAL_PRINCIPAL, connected=True)) == ["new"]
    assert len(source.calls) == 2


async def test_past_its_ttl_it_still_serves_with_its_age_while_not_connected(
    catalogues: CatalogueCache, source: Source, repo: Server, clock: ManualClock
) -> None:
    await catalogues.get(repo, LOCAL_PRINCIPAL)
    clock.forward(3600)
    catalogue = await catalogues.get(repo, LOCAL_PRINCIPAL)
    assert (catalogue.age, catalogue.stale) == (3600.0, True)
    assert len(source.calls) == 1


async def test_fresh_fetches_though_it_is_within_its_ttl_and_not_connected(
    catalogues: CatalogueCache, source: Source, repo: Server, listing: Callable[..., RawListing]
) -> None:
    await catalogues.get(repo, LOCAL_PRINCIPAL)
    source.listing = listing("new")
    assert names(await catalogues.get(repo, LOCAL_PRINCIPAL, fresh=True)) == ["new"]


async def test_peeking_never_asks_the_server(
    catalogues: CatalogueCache, source: Source, repo: Server
) -> None:
    assert await catalogues.peek(repo, LOCAL_PRINCIPAL) is None
    assert source.calls == []
    await catalogues.get(repo, LOCAL_PRINCIPAL)
    assert await catalogues.peek(repo, LOCAL_PRINCIPAL) is not None
    assert len(source.calls) == 1


@pytest.mark.parametrize(("hint", "lasts"), [(300.0, 300.0), (5.0, 5.0), (1e9, DAY_SECONDS)])
async def test_the_servers_own_hint_decides_how_long(
    catalogues: CatalogueCache, source: Source, repo: Server, clock: ManualClock, hint: float, lasts: float
) -> None:
    source.listing = RawListing(ttl=hint)
    await catalogues.get(repo, LOCAL_PRINCIPAL)
    clock.forward(lasts - 0.5)
    await catalogues.get(repo, LOCAL_PRINCIPAL, connected=True)
    assert len(source.calls) == 1
    clock.forward(0.5)
    await catalogues.get(repo, LOCAL_PRINCIPAL, connected=True)
    assert len(source.calls) == 2


async def test_a_hint_of_zero_is_stale_at_once_but_serves_while_not_connected(
    catalogues: CatalogueCache, source: Source, repo: Server
) -> None:
    source.listing = RawListing(ttl=0.0)
    assert not (await catalogues.get(repo, LOCAL_PRINCIPAL)).stale
    assert (await catalogues.get(repo, LOCAL_PRINCIPAL)).stale
    assert len(source.calls) == 1
    await catalogues.get(repo, LOCAL_PRINCIPAL, connected=True)
    assert len(source.calls) == 2


async def test_a_server_with_ttl_zero_is_asked_each_time_and_nothing_is_kept(
    catalogues: CatalogueCache, source: Source, server: Callable[..., Server], storage: MemoryListingStorage
) -> None:
    instance = server("@ann/github", cache_ttl=0.0)
    source.listing = RawListing(ttl=300.0)
    await catalogues.get(instance, ANN)
    await catalogues.get(instance, ANN)
    assert len(source.calls) == 2
    assert await catalogues.peek(instance, ANN) is None
    source.error = Unreachable("gone")
    with pytest.raises(Unreachable):
        await catalogues.get(instance, ANN)
    assert storage.listings == {}


async def test_a_copy_from_before_a_zero_ttl_is_not_shown(
    catalogues: CatalogueCache, source: Source, server: Callable[..., Server]
) -> None:
    await catalogues.get(server(), LOCAL_PRINCIPAL)
    strict = server(cache_ttl=0.0)
    assert await catalogues.peek(strict, LOCAL_PRINCIPAL) is None
    await catalogues.get(strict, LOCAL_PRINCIPAL)
    assert len(source.calls) == 2


async def test_a_failed_fetch_is_raised_where_nothing_is_kept_and_not_remembered(
    catalogues: CatalogueCache, source: Source, repo: Server
) -> None:
    source.error = Unreachable("refused")
    for _ in range(2):
        with pytest.raises(Unreachable):
            await catalogues.get(repo, LOCAL_PRINCIPAL)
    assert len(source.calls) == 2
    source.error = None
    assert names(await catalogues.get(repo, LOCAL_PRINCIPAL)) == []


async def test_a_failed_fetch_leaves_the_kept_copy_with_its_age_and_the_cause(
    catalogues: CatalogueCache,
    source: Source,
    repo: Server,
    clock: ManualClock,
    listing: Callable[..., RawListing],
) -> None:
    source.listing = listing("a")
    await catalogues.get(repo, LOCAL_PRINCIPAL)
    clock.forward(90)
    source.error = SignInNeeded("the token has expired")
    catalogue = await catalogues.get(repo, LOCAL_PRINCIPAL, connected=True)
    assert names(catalogue) == ["a"]
    assert (catalogue.age, catalogue.stale, catalogue.failure) == (90.0, True, "the token has expired")
    source.error = None
    assert (await catalogues.get(repo, LOCAL_PRINCIPAL, connected=True)).failure is None


async def test_a_failed_fresh_fetch_is_raised_though_a_copy_is_kept(
    catalogues: CatalogueCache, source: Source, repo: Server
) -> None:
    await catalogues.get(repo, LOCAL_PRINCIPAL)
    source.error = Unreachable("refused")
    with pytest.raises(Unreachable):
        await catalogues.get(repo, LOCAL_PRINCIPAL, fresh=True)


async def test_our_own_failures_are_not_hidden_behind_a_cached_copy(
    catalogues: CatalogueCache, source: Source, repo: Server, clock: ManualClock
) -> None:
    await catalogues.get(repo, LOCAL_PRINCIPAL)
    clock.forward(90)
    source.error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        await catalogues.get(repo, LOCAL_PRINCIPAL, connected=True)


async def test_concurrent_callers_share_one_fetch(
    catalogues: CatalogueCache, source: Source, repo: Server
) -> None:
    source.gate.clear()
    catalogue_tasks = [asyncio.create_task(catalogues.get(repo, LOCAL_PRINCIPAL)) for _ in range(10)]
    await wait_for_start(source)
    source.gate.set()
    results = await asyncio.gather(*catalogue_tasks)
    assert len(source.calls) == 1
    assert len({id(catalogue.contents) for catalogue in results}) == 1


async def test_a_caller_that_is_cancelled_does_not_take_the_fetch_with_it(
    catalogues: CatalogueCache, source: Source, repo: Server
) -> None:
    source.gate.clear()
    first, second = (asyncio.create_task(catalogues.get(repo, LOCAL_PRINCIPAL)) for _ in range(2))
    await wait_for_start(source)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    source.gate.set()
    await second
    assert source.cancelled == 0


async def test_list_changed_makes_everything_kept_stale_at_once(
    catalogues: CatalogueCache,
    source: Source,
    repo: Server,
    listing: Callable[..., RawListing],
    storage: MemoryListingStorage,
    clock: ManualClock,
) -> None:
    await catalogues.get(repo, ANN)
    await catalogues.get(repo, BOB)
    source.listing = listing("new")
    await catalogues.list_changed("repo")
    assert (await catalogues.get(repo, ANN)).stale
    assert names(await catalogues.get(repo, ANN, connected=True)) == ["new"]
    assert names(await catalogues.get(repo, BOB, connected=True)) == ["new"]
    await catalogues.list_changed("repo")
    elsewhere = CatalogueCache(source, storage, clock=clock)
    catalogue = await elsewhere.peek(repo, ANN)
    assert catalogue is not None
    assert catalogue.stale


async def test_list_changed_of_another_server_changes_nothing(
    catalogues: CatalogueCache, source: Source, repo: Server
) -> None:
    await catalogues.get(repo, LOCAL_PRINCIPAL)
    await catalogues.list_changed("other")
    assert not (await catalogues.get(repo, LOCAL_PRINCIPAL, connected=True)).stale
    assert len(source.calls) == 1


async def test_a_fetch_that_list_changed_overtook_does_not_count_as_fresh(
    catalogues: CatalogueCache, source: Source, repo: Server, listing: Callable[..., RawListing]
) -> None:
    source.gate.clear()
    source.listing = listing("old")
    catalogue_task = asyncio.create_task(catalogues.get(repo, LOCAL_PRINCIPAL))
    await wait_for_start(source)
    await catalogues.list_changed("repo")
    source.gate.set()
    assert names(await catalogue_task) == ["old"]
    source.listing = listing("new")
    assert names(await catalogues.get(repo, LOCAL_PRINCIPAL, connected=True)) == ["new"]


async def test_a_fetch_that_list_changed_overtook_still_replaces_an_older_copy(
    catalogues: CatalogueCache, source: Source, repo: Server, listing: Callable[..., RawListing]
) -> None:
    source.listing = listing("oldest")
    await catalogues.get(repo, LOCAL_PRINCIPAL)
    source.started.clear()
    source.gate.clear()
    source.listing = listing("newer")
    catalogue_task = asyncio.create_task(catalogues.get(repo, LOCAL_PRINCIPAL, fresh=True))
    await wait_for_start(source)
    await catalogues.list_changed("repo")
    source.gate.set()
    await catalogue_task
    catalogue = await catalogues.peek(repo, LOCAL_PRINCIPAL)
    assert catalogue is not None
    assert names(catalogue) == ["newer"]
    assert catalogue.stale


async def test_a_request_after_list_changed_starts_a_new_fetch_and_uses_it(
    catalogues: CatalogueCache, source: Source, repo: Server, listing: Callable[..., RawListing]
) -> None:
    gate = asyncio.Event()
    source.gate = gate
    source.listing = listing("old")
    older = asyncio.create_task(catalogues.get(repo, LOCAL_PRINCIPAL))
    await wait_for_start(source)
    await catalogues.list_changed("repo")
    source.gate = asyncio.Event()
    source.gate.set()
    source.listing = listing("new")
    assert names(await catalogues.get(repo, LOCAL_PRINCIPAL)) == ["new"]
    gate.set()
    assert names(await older) == ["old"]
    catalogue = await catalogues.get(repo, LOCAL_PRINCIPAL, connected=True)
    assert names(catalogue) == ["new"]
    assert not catalogue.stale
    assert len(source.calls) == 2


async def test_a_private_listing_serves_only_its_principal(
    catalogues: CatalogueCache, source: Source, repo: Server, listing: Callable[..., RawListing]
) -> None:
    source.listing = listing("of_ann", scope=CacheScope.PRIVATE)
    await catalogues.get(repo, ANN)
    assert await catalogues.peek(repo, BOB) is None
    source.listing = listing("of_bob")
    assert names(await catalogues.get(repo, BOB)) == ["of_bob"]
    assert names(await catalogues.get(repo, ANN)) == ["of_ann"]


async def test_a_listing_without_a_scope_is_private(catalogues: CatalogueCache, repo: Server) -> None:
    await catalogues.get(repo, ANN)
    assert await catalogues.peek(repo, BOB) is None


async def test_a_public_listing_serves_everyone(
    catalogues: CatalogueCache, source: Source, repo: Server, listing: Callable[..., RawListing]
) -> None:
    source.listing = listing("a", scope=CacheScope.PUBLIC)
    await catalogues.get(repo, ANN)
    assert names(await catalogues.get(repo, BOB)) == ["a"]
    assert source.calls == [("repo", "ann")]


async def test_an_untrusted_server_cannot_declare_its_listing_public(
    catalogues: CatalogueCache,
    source: Source,
    server: Callable[..., Server],
    listing: Callable[..., RawListing],
) -> None:
    untrusted_server = server(trust=Trust.UNTRUSTED)
    source.listing = listing("a", scope=CacheScope.PUBLIC)
    await catalogues.get(untrusted_server, ANN)
    assert await catalogues.peek(untrusted_server, BOB) is None
    assert await catalogues.peek(untrusted_server, ANN) is not None


async def test_a_server_that_lost_trust_no_longer_shows_its_public_copy(
    catalogues: CatalogueCache,
    source: Source,
    server: Callable[..., Server],
    listing: Callable[..., RawListing],
) -> None:
    source.listing = listing("a", scope=CacheScope.PUBLIC)
    await catalogues.get(server(), ANN)
    assert await catalogues.peek(server(trust=Trust.UNTRUSTED), BOB) is None


async def test_a_shared_connection_has_one_listing_for_all(
    catalogues: CatalogueCache,
    source: Source,
    server: Callable[..., Server],
    listing: Callable[..., RawListing],
) -> None:
    source.listing = listing("a", scope=CacheScope.PRIVATE)
    shared_server = server(shared=True)
    await catalogues.get(shared_server, ANN)
    assert await catalogues.peek(shared_server, BOB) is not None
    assert await catalogues.peek(server(), BOB) is None


async def test_the_newer_of_a_private_and_a_public_copy_is_shown(
    catalogues: CatalogueCache,
    source: Source,
    repo: Server,
    listing: Callable[..., RawListing],
    clock: ManualClock,
) -> None:
    source.listing = listing("old")
    await catalogues.get(repo, ANN)
    clock.forward(1)
    source.listing = listing("new", scope=CacheScope.PUBLIC)
    await catalogues.get(repo, BOB)
    assert names(await catalogues.get(repo, ANN)) == ["new"]


async def test_a_changed_entry_is_another_server(
    catalogues: CatalogueCache, source: Source, repo: Server
) -> None:
    await catalogues.get(repo, LOCAL_PRINCIPAL)
    moved_server = replace(repo, transport=HttpSpec("http://localhost:4011/mcp"))
    assert await catalogues.peek(moved_server, LOCAL_PRINCIPAL) is None
    assert await catalogues.peek(replace(repo, label="new label"), LOCAL_PRINCIPAL) is not None


async def test_forgetting_a_principal_drops_listings_of_its_credentials(
    catalogues: CatalogueCache, repo: Server
) -> None:
    await catalogues.get(repo, ANN)
    await catalogues.get(repo, BOB)
    await catalogues.forget("repo", ANN)
    assert await catalogues.peek(repo, ANN) is None
    assert await catalogues.peek(repo, BOB) is not None
    await catalogues.forget("repo")
    assert await catalogues.peek(repo, BOB) is None


@pytest.mark.parametrize("whose", [ANN, None], ids=["one principal's", "all"])
async def test_a_fetch_that_was_under_way_when_it_was_forgotten_is_not_kept(
    catalogues: CatalogueCache, source: Source, repo: Server, whose: Principal | None
) -> None:
    source.gate.clear()
    catalogue_task = asyncio.create_task(catalogues.get(repo, ANN))
    await wait_for_start(source)
    await catalogues.forget("repo", whose)
    source.gate.set()
    await catalogue_task
    assert await catalogues.peek(repo, ANN) is None


async def test_a_server_that_was_forgotten_leaves_no_trace(
    catalogues: CatalogueCache, source: Source, repo: Server
) -> None:
    for number in range(10):
        for ttl in (60.0, 0.0):
            one = replace(repo, id=f"one{number}", cache_ttl=ttl)
            await catalogues.get(one, ANN)
            await catalogues.list_changed(one.id)
            assert find_keys(catalogues, "one") == {one.id}
            await catalogues.forget(one.id)
            source.calls.clear()
    assert find_keys(catalogues, "one") == set()


async def test_a_copy_from_the_future_is_stale_and_has_no_negative_age(
    catalogues: CatalogueCache, repo: Server, clock: ManualClock
) -> None:
    await catalogues.get(repo, LOCAL_PRINCIPAL)
    clock.forward(-3600)
    catalogue = await catalogues.peek(repo, LOCAL_PRINCIPAL)
    assert catalogue is not None
    assert (catalogue.age, catalogue.stale) == (0.0, True)


async def test_another_process_finds_it_in_storage(
    source: Source, clock: ManualClock, repo: Server, listing: Callable[..., RawListing], tmp_path: Path
) -> None:
    source.listing = listing("b", "a", server_info={"name": "Repo"}, instructions="Be kind.", ttl=100.0)
    writer = SqliteListingStorage(tmp_path / CATALOGUE_FILE_NAME)
    await CatalogueCache(source, writer, clock=clock).get(repo, LOCAL_PRINCIPAL)
    await writer.close()
    clock.forward(30)
    reader = SqliteListingStorage(tmp_path / CATALOGUE_FILE_NAME)
    catalogue = await CatalogueCache(source, reader, clock=clock).get(repo, LOCAL_PRINCIPAL, connected=True)
    await reader.close()
    assert len(source.calls) == 1
    assert names(catalogue) == ["a", "b"]
    assert catalogue.age == 30.0
    assert catalogue.ttl == 100.0
    assert catalogue.listing == replace(source.listing, ttl=None)


async def test_a_listing_of_another_process_replaces_a_stale_copy(
    source: Source,
    storage: MemoryListingStorage,
    clock: ManualClock,
    repo: Server,
    listing: Callable[..., RawListing],
) -> None:
    catalogue_cache, other_catalogue_cache = (
        CatalogueCache(source, storage, clock=clock),
        CatalogueCache(source, storage, clock=clock),
    )
    await catalogue_cache.get(repo, LOCAL_PRINCIPAL)
    clock.forward(100)
    source.listing = listing("new")
    await other_catalogue_cache.get(repo, LOCAL_PRINCIPAL, fresh=True)
    catalogue = await catalogue_cache.get(repo, LOCAL_PRINCIPAL)
    assert names(catalogue) == ["new"]
    assert not catalogue.stale
    assert len(source.calls) == 2


async def test_integers_beyond_64_bits_come_back_exact_from_storage(
    source: Source, storage: MemoryListingStorage, clock: ManualClock, repo: Server, tool: Any
) -> None:
    schema = {"type": "object", "properties": {"n": {"maximum": 2**64 + 1}}}
    source.listing = RawListing(tools=(tool("a", inputSchema=schema),))
    await CatalogueCache(source, storage, clock=clock).get(repo, LOCAL_PRINCIPAL)
    catalogue = await CatalogueCache(source, storage, clock=clock).peek(repo, LOCAL_PRINCIPAL)
    assert catalogue is not None
    assert catalogue.definitions[0].input_schema == schema


async def test_a_broken_tool_is_quarantined_after_loading_as_after_fetching(
    source: Source, storage: MemoryListingStorage, clock: ManualClock, repo: Server, tool: Any
) -> None:
    source.listing = RawListing(tools=(tool("b"), {"name": 5}, tool("b"), tool("c", title=5)))
    catalogue = await CatalogueCache(source, storage, clock=clock).get(repo, LOCAL_PRINCIPAL)
    loaded_catalogue = await CatalogueCache(source, storage, clock=clock).peek(repo, LOCAL_PRINCIPAL)
    assert loaded_catalogue is not None
    assert loaded_catalogue.contents == catalogue.contents
    assert len(loaded_catalogue.quarantined) == 2
    assert len(loaded_catalogue.contents.remarks) == 1


async def test_a_listing_that_cannot_be_written_is_used_but_not_stored(
    source: Source,
    storage: MemoryListingStorage,
    clock: ManualClock,
    repo: Server,
    tool: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    source.listing = RawListing(tools=(tool("a"), tool("b", _meta=deep)))
    catalogues = CatalogueCache(source, storage, clock=clock)
    catalogue = await catalogues.get(repo, LOCAL_PRINCIPAL)
    assert names(catalogue) == ["a"]
    assert [entry.name for entry in catalogue.quarantined] == ["b"]
    assert await catalogues.peek(repo, LOCAL_PRINCIPAL) is not None
    assert await CatalogueCache(source, storage, clock=clock).peek(repo, LOCAL_PRINCIPAL) is None
    assert "not stored" in caplog.text


async def test_bytes_that_were_tampered_with_are_dropped_and_fetched_again(
    source: Source,
    storage: MemoryListingStorage,
    clock: ManualClock,
    repo: Server,
    listing: Callable[..., RawListing],
    caplog: pytest.LogCaptureFixture,
) -> None:
    source.listing = listing("a")
    await CatalogueCache(source, storage, clock=clock).get(repo, LOCAL_PRINCIPAL)
    listings = storage.listings
    for key, entry in listings.items():
        listings[key] = replace(entry, body=entry.body.replace(b'"a"', b'"x"'))
    with caplog.at_level(logging.WARNING):
        assert names(await CatalogueCache(source, storage, clock=clock).get(repo, LOCAL_PRINCIPAL)) == ["a"]
    assert "dropped" in caplog.text
    assert len(source.calls) == 2


async def test_a_further_check_sees_the_server(
    source: Source, storage: MemoryListingStorage, clock: ManualClock, repo: Server, tool: Any
) -> None:
    source.listing = RawListing(tools=(tool("a", inputSchema={"x": 1}), tool("b")))

    def check(server: Server, input_schema: Any) -> str | None:
        over_http = isinstance(server.transport, HttpSpec)
        return "no x over HTTP" if over_http and "x" in input_schema else None

    catalogues = CatalogueCache(source, storage, clock=clock, schema_check=check)
    assert names(await catalogues.get(repo, LOCAL_PRINCIPAL)) == ["b"]
    local = replace(repo, transport=StdioSpec("server"))
    assert names(await catalogues.get(local, LOCAL_PRINCIPAL)) == ["a", "b"]


async def test_listings_evicted_from_memory_are_loaded_again(
    source: Source, storage: MemoryListingStorage, clock: ManualClock, server: Callable[..., Server]
) -> None:
    catalogues = CatalogueCache(source, storage, clock=clock, capacity=2)
    servers = [server(f"s{number}") for number in range(5)]
    for one in servers:
        await catalogues.get(one, LOCAL_PRINCIPAL)
    for one in servers:
        assert await catalogues.peek(one, LOCAL_PRINCIPAL) is not None
    assert len(source.calls) == 5


async def test_principals_with_equal_listings_share_one_copy_in_memory(
    catalogues: CatalogueCache, source: Source, repo: Server, tool: Any
) -> None:
    source.listing = RawListing(tools=(tool("a"),))
    ann = await catalogues.get(repo, ANN)
    source.listing = RawListing(tools=(tool("a"),))
    bob = await catalogues.get(repo, BOB)
    assert ann.contents is bob.contents
    assert len(source.calls) == 2


async def test_an_unreferenced_copy_is_freed(
    catalogues: CatalogueCache, source: Source, repo: Server, listing: Callable[..., RawListing]
) -> None:
    contents = weakref.ref((await catalogues.get(repo, ANN)).contents)
    assert contents() is not None
    await catalogues.forget("repo")
    await asyncio.sleep(0)
    gc.collect()
    assert contents() is None


class SlowStorage(MemoryListingStorage):
    """Loads only when the gate is open, and counts."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.loading = asyncio.Event()
        self.loads = 0

    async def load(self, keys: Any, *, newer_than: float = 0.0) -> StoredListing | None:
        self.loads += 1
        loaded_entries = await super().load(keys, newer_than=newer_than)
        self.loading.set()
        await self.gate.wait()
        return loaded_entries


@pytest.fixture
async def slow(
    source: Source, clock: ManualClock, repo: Server, listing: Callable[..., RawListing]
) -> SlowStorage:
    """A storage that holds a copy with the tool ``old``."""
    storage = SlowStorage()
    storage.gate.set()
    source.listing = listing("old")
    await CatalogueCache(source, storage, clock=clock).get(repo, LOCAL_PRINCIPAL)
    source.calls.clear()
    storage.gate.clear()
    storage.loading.clear()
    storage.loads = 0
    return storage


async def test_concurrent_callers_share_one_load(
    slow: SlowStorage, source: Source, clock: ManualClock, repo: Server
) -> None:
    catalogues = CatalogueCache(source, slow, clock=clock)
    catalogue_tasks = [asyncio.create_task(catalogues.get(repo, LOCAL_PRINCIPAL)) for _ in range(5)]
    await slow.loading.wait()
    slow.gate.set()
    for result in await asyncio.gather(*catalogue_tasks):
        assert names(result) == ["old"]
    assert slow.loads == 1
    assert source.calls == []


async def test_a_load_that_list_changed_overtook_is_stale(
    slow: SlowStorage, source: Source, clock: ManualClock, repo: Server
) -> None:
    catalogues = CatalogueCache(source, slow, clock=clock)
    catalogue_task = asyncio.create_task(catalogues.peek(repo, LOCAL_PRINCIPAL))
    await slow.loading.wait()
    await catalogues.list_changed("repo")
    slow.gate.set()
    catalogue = await catalogue_task
    assert catalogue is not None
    assert catalogue.stale


async def test_a_load_that_was_under_way_when_it_was_forgotten_is_not_shown(
    slow: SlowStorage, source: Source, clock: ManualClock, repo: Server
) -> None:
    catalogues = CatalogueCache(source, slow, clock=clock)
    catalogue_task = asyncio.create_task(catalogues.peek(repo, LOCAL_PRINCIPAL))
    await slow.loading.wait()
    await catalogues.forget("repo")
    slow.gate.set()
    assert await catalogue_task is None


async def test_a_load_does_not_replace_a_newer_fetch(
    source: Source, clock: ManualClock, repo: Server, listing: Callable[..., RawListing]
) -> None:
    slow, opened = SlowStorage(), asyncio.Event()
    held, slow.gate = slow.gate, opened
    opened.set()
    source.listing = listing("old", scope=CacheScope.PUBLIC)
    await CatalogueCache(source, slow, clock=clock).get(repo, ANN)
    catalogues = CatalogueCache(source, slow, clock=clock)
    clock.forward(1)
    slow.loading.clear()
    slow.gate = held
    peeking = asyncio.create_task(catalogues.peek(repo, ANN))
    await slow.loading.wait()
    slow.gate = opened
    source.listing = listing("new", scope=CacheScope.PUBLIC)
    await catalogues.get(repo, BOB, fresh=True)
    held.set()
    await peeking
    assert names(await catalogues.get(repo, ANN)) == ["new"]


def test_both_storages_fit_the_seam(tmp_path: Path) -> None:
    seams: list[ListingStorage] = [
        MemoryListingStorage(),
        SqliteListingStorage(tmp_path / CATALOGUE_FILE_NAME),
    ]
    assert len(seams) == 2
    assert ListingKey("a", "b", "c").scope == "c"
