"""Listings in the store, in both databases: the same promises as the file of the command line."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from toolyard.catalog.listing_storage import ListingKey, StoredListing
from toolyard.store import Database

NOW_SECONDS = 1_800_000_000.0
KEY = ListingKey("files", "entry", "principal:ann")
STORED_LISTING = StoredListing(KEY, "hash", NOW_SECONDS, 60.0, b"\0body\xff")


async def test_a_listing_comes_back_as_it_was_saved(database: Database) -> None:
    catalogues = database.catalogues
    await catalogues.save(STORED_LISTING)
    assert await catalogues.load([KEY]) == STORED_LISTING
    assert await catalogues.load([KEY], newer_than=NOW_SECONDS) is None
    assert await catalogues.load([KEY._replace(scope="public")]) is None
    assert await catalogues.load([KEY._replace(entry_hash="other")]) is None
    assert await catalogues.load([]) is None


async def test_of_several_keys_the_newest_counts(database: Database) -> None:
    public = replace(STORED_LISTING, key=KEY._replace(scope="public"), fetched_at=NOW_SECONDS + 1)
    await database.catalogues.save(STORED_LISTING)
    await database.catalogues.save(public)
    assert await database.catalogues.load([KEY, public.key]) == public
    assert await database.catalogues.load([KEY]) == STORED_LISTING


async def test_an_older_listing_does_not_replace_a_newer(database: Database) -> None:
    newer = replace(STORED_LISTING, fetched_at=NOW_SECONDS + 1, body=b"newer")
    await database.catalogues.save(newer)
    await database.catalogues.save(STORED_LISTING)
    assert await database.catalogues.load([KEY]) == newer


async def test_listings_expire_and_are_forgotten(database: Database) -> None:
    catalogues = database.catalogues
    bob = replace(STORED_LISTING, key=KEY._replace(scope="principal:bob"))
    other = replace(STORED_LISTING, key=KEY._replace(server_id="Files"))
    for listing in (STORED_LISTING, bob, other):
        await catalogues.save(listing)
    await catalogues.expire("files")
    assert await catalogues.load([KEY]) == replace(STORED_LISTING, ttl=0.0)
    await catalogues.forget("files", "principal:bob")
    assert await catalogues.load([bob.key]) is None
    assert await catalogues.load([KEY]) is not None
    await catalogues.forget("files")
    assert await catalogues.load([KEY]) is None
    assert await catalogues.load([other.key]) == other


async def test_listings_of_a_season_ago_are_dropped(database: Database) -> None:
    await database.catalogues.save(STORED_LISTING)
    later = replace(STORED_LISTING, key=KEY._replace(server_id="new"), fetched_at=NOW_SECONDS + 91 * 86_400)
    await database.catalogues.save(later)
    assert await database.catalogues.load([KEY]) is None


async def test_a_listing_of_a_clock_that_was_ahead_makes_room(database: Database) -> None:
    await database.catalogues.save(replace(STORED_LISTING, fetched_at=NOW_SECONDS + 3_000 * 86_400))
    await database.catalogues.save(STORED_LISTING)
    assert await database.catalogues.load([KEY]) == STORED_LISTING


async def test_a_large_listing_is_kept(database: Database) -> None:
    large = replace(STORED_LISTING, body=b"x" * 30_000_000)
    await database.catalogues.save(large)
    assert await database.catalogues.load([KEY]) == large


async def test_a_fault_is_logged_and_counts_as_nothing(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    catalogues = database.catalogues
    await catalogues.save(replace(STORED_LISTING, key=KEY._replace(server_id="a\0b")))
    await database.close()
    with caplog.at_level(logging.WARNING):
        assert await catalogues.load([KEY]) is None
        await catalogues.save(STORED_LISTING)
        await catalogues.expire("files")
        await catalogues.forget("files")
    assert caplog.text.count("the store was closed") == 4
    assert "NUL" in caplog.text


async def test_a_deleted_user_takes_their_listings_along(database: Database) -> None:
    own_listing = replace(STORED_LISTING, key=KEY._replace(server_id="@ann/github"))
    other_listing = replace(
        STORED_LISTING, key=KEY._replace(server_id="@anna/github", scope="principal:anna")
    )
    for listing in (STORED_LISTING, own_listing, other_listing):
        await database.catalogues.save(listing)
    await database.accounts.delete_user("ann")
    assert await database.catalogues.load([KEY, own_listing.key]) is None
    assert await database.catalogues.load([other_listing.key]) == other_listing
