from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolyard.catalog.listing_codec import (
    decode_listing,
    encode_listing,
    has_bounded_depth,
    parse_stored_listing,
    validate_listing,
)
from toolyard.types.tool import CacheScope, RawListing, ValidatedListing

numbers = (
    st.integers()
    | st.integers(min_value=2**63, max_value=2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)


@given(st.lists(values, max_size=4), st.dictionaries(st.text(), values, max_size=3), st.none() | st.text())
def test_values_round_trip_exactly(tools: list[Any], info: Any, instructions: str | None) -> None:
    listing = RawListing(tools=tuple(tools), server_info=info, instructions=instructions)
    again = decode_listing(encode_listing(listing))
    assert again == listing
    assert repr(again) == repr(listing)


def test_integers_beyond_64_bits_stay_exact() -> None:
    listing = RawListing(tools=({"maximum": 2**64 + 1},))
    body = encode_listing(listing)
    assert orjson.loads(body)["tools"][0]["maximum"] != 2**64 + 1
    assert decode_listing(body) == listing
    assert not has_bounded_depth(body)


def test_the_order_of_keys_survives() -> None:
    listing = RawListing(tools=({"b": 1, "a": 2},))
    assert list(decode_listing(encode_listing(listing)).tools[0]) == ["b", "a"]  # type: ignore[call-overload]


def validate_and_parse(*parameters: object) -> tuple[ValidatedListing, ValidatedListing]:
    """Return the listing of tools that have one parameter each, as fetched and as loaded."""
    tools = [{"name": f"t{n}", "inputSchema": {"properties": {"a": one}}} for n, one in enumerate(parameters)]
    body = encode_listing(RawListing(tools=tuple(tools)))
    decoded_listing, _ = validate_listing("s", decode_listing(body), None)
    stored_listing = parse_stored_listing("s", body, None)
    # Byte for byte: 1, 1.0 and true are equal in Python.
    assert encode_listing(decoded_listing.listing) == encode_listing(stored_listing.listing) == body
    return decoded_listing, stored_listing


def test_equal_parameters_of_several_tools_are_in_memory_once() -> None:
    repository = {"type": "string", "description": "Name of the repository", "maxLength": 100_000}
    for contents in validate_and_parse(repository, repository, {**repository, "maxLength": 5}):
        first, second, other = (each.input_schema["properties"]["a"] for each in contents.definitions)
        assert first is second
        assert other is not first


@given(st.lists(values, max_size=6))
@example([0, 0.0, -0.0, False, {"b": 1, "c": 2}, {"c": 2, "b": 1}])
def test_parameters_stay_as_their_tools_have_them(parameters: list[Any]) -> None:
    for contents in validate_and_parse(*parameters):
        assert len(contents.definitions) == len(parameters)


def test_cache_hints_are_not_part_of_the_contents() -> None:
    assert encode_listing(RawListing(ttl=5.0, scope=CacheScope.PUBLIC)) == encode_listing(RawListing())


def test_a_lone_surrogate_survives() -> None:
    listing = RawListing(instructions="\ud800")
    assert decode_listing(encode_listing(listing)) == listing


def test_unencodable_values_are_reported() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="not JSON serializable"):
        encode_listing(RawListing(tools=(deep,)))
    with pytest.raises(ValueError, match="not JSON serializable"):
        encode_listing(RawListing(tools=(object(),)))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b"null",
        b" ",
        b" " + b"[" * 100_000,
        encode_listing(RawListing()).replace(b'"tools":[]', b'"tools":{}'),
        encode_listing(RawListing()).replace(b'"serverInfo":{}', b'"serverInfo":[]'),
        encode_listing(RawListing()).replace(b'"instructions":null', b'"instructions":5'),
    ],
)
def test_other_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        decode_listing(body)
