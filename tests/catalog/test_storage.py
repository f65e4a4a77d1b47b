"""The contract of every storage, tested with the one in memory and the one in SQLite."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from toolyard.catalog.listing_storage import ListingKey, ListingStorage, MemoryListingStorage, StoredListing
from toolyard.catalog.sqlite_storage import CATALOGUE_FILE_NAME, SqliteListingStorage

KEY = ListingKey("repo", "entry", "principal:ann")
OTHER = ListingKey("repo", "entry", "public")
STORED_LISTING = StoredListing(KEY, "hash", 1000.0, 60.0, b"body")


@pytest.fixture(params=["memory", "sqlite"])
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ListingStorage]:
    if request.param == "memory":
        yield MemoryListingStorage()
        return
    sqlite = SqliteListingStorage(tmp_path / CATALOGUE_FILE_NAME)
    yield sqlite
    await sqlite.close()


async def test_saved_listings_are_loaded(storage: ListingStorage) -> None:
    await storage.save(STORED_LISTING)
    assert await storage.load([KEY]) == STORED_LISTING


async def test_nothing_is_loaded_for_another_server_entry_or_scope(storage: ListingStorage) -> None:
    await storage.save(STORED_LISTING)
    for other in (
        KEY._replace(server_id="x"),
        KEY._replace(entry_hash="x"),
        KEY._replace(scope="principal:bob"),
    ):
        assert await storage.load([other]) is None


async def test_the_newest_of_several_keys_is_loaded(storage: ListingStorage) -> None:
    newer = replace(STORED_LISTING, key=OTHER, fetched_at=2000.0)
    await storage.save(STORED_LISTING)
    await storage.save(newer)
    assert await storage.load([KEY, OTHER]) == newer
    assert await storage.load([OTHER, KEY]) == newer


async def test_only_newer_listings_are_loaded_on_request(storage: ListingStorage) -> None:
    await storage.save(STORED_LISTING)
    assert await storage.load([KEY], newer_than=999.0) == STORED_LISTING
    assert await storage.load([KEY], newer_than=1000.0) is None


async def test_a_later_fetch_replaces_an_earlier_one(storage: ListingStorage) -> None:
    later = replace(STORED_LISTING, content_hash="other", fetched_at=2000.0, ttl=5.0, body=b"new")
    await storage.save(STORED_LISTING)
    await storage.save(later)
    assert await storage.load([KEY]) == later


async def test_an_earlier_fetch_that_ends_late_replaces_nothing(storage: ListingStorage) -> None:
    late = replace(STORED_LISTING, content_hash="other", fetched_at=500.0, body=b"old")
    await storage.save(STORED_LISTING)
    await storage.save(late)
    await storage.save(replace(STORED_LISTING, fetched_at=400.0))
    assert await storage.load([KEY]) == STORED_LISTING


async def test_the_same_contents_fetched_again_are_as_fresh_as_the_last_fetch(
    storage: ListingStorage,
) -> None:
    again = replace(STORED_LISTING, fetched_at=2000.0, ttl=9.0)
    await storage.save(STORED_LISTING)
    await storage.save(again)
    assert await storage.load([KEY]) == again


async def test_expiring_a_server_touches_all_its_scopes_and_no_other_server(
    storage: ListingStorage,
) -> None:
    elsewhere = replace(STORED_LISTING, key=ListingKey("other", "entry", "public"))
    for listing in (STORED_LISTING, replace(STORED_LISTING, key=OTHER), elsewhere):
        await storage.save(listing)
    await storage.expire("repo")
    assert await storage.load([KEY]) == replace(STORED_LISTING, ttl=0.0)
    assert await storage.load([OTHER]) == replace(STORED_LISTING, key=OTHER, ttl=0.0)
    assert await storage.load([elsewhere.key]) == elsewhere


async def test_forgetting_one_scope_keeps_the_others(storage: ListingStorage) -> None:
    await storage.save(STORED_LISTING)
    await storage.save(replace(STORED_LISTING, key=OTHER))
    await storage.forget("repo", KEY.scope)
    assert await storage.load([KEY]) is None
    assert await storage.load([OTHER]) is not None
    await storage.forget("repo")
    assert await storage.load([OTHER]) is None
