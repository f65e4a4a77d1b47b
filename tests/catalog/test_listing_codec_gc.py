from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from toolyard.catalog.listing_codec import encode_listing, parse_stored_listing
from toolyard.types.tool import RawListing

LARGE = encode_listing(
    RawListing(tools=tuple({"name": f"tool{n}", "inputSchema": {}, "x": "y" * 100} for n in range(9000)))
)


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    assert gc.isenabled()
    gc.unfreeze()
    yield
    gc.freeze()  # As in all other tests.
    gc.enable()


def test_reading_a_large_listing_leaves_the_collector_as_it_was() -> None:
    assert len(LARGE) > 1024 * 1024
    assert len(parse_stored_listing("s", LARGE, None).definitions) == 9000
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_failing_to_read_one_does_too() -> None:
    with pytest.raises(ValueError):
        parse_stored_listing("s", LARGE[:-1], None)
    assert gc.isenabled()


def test_objects_frozen_by_the_process_stay_frozen() -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    parse_stored_listing("s", LARGE, None)
    assert gc.get_freeze_count() >= frozen * 0.9 > 0


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    parse_stored_listing("s", LARGE, None)
    assert not gc.isenabled()
