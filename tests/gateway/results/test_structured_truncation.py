"""Structured content that is too much: weighed, and shortened without another shape."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toolyard.gateway.surface.result_limits import is_text_equivalent, truncate_structured
from toolyard.results.json_size import estimate_characters

texts = st.builds(lambda piece, times: piece * times, st.text(max_size=5), st.integers(0, 2_000))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
)


def shape(value: Any) -> Any:
    """The value without its texts."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value]
    return "" if isinstance(value, str) else value


@given(values.filter(lambda value: value is not None), st.integers(2_000, 20_000))
def test_a_truncated_value_fits_and_has_the_same_shape(value: Any, room: int) -> None:
    truncated = truncate_structured(value, room, "there")
    if truncated is not None:
        assert estimate_characters(truncated, 10**9) <= 2 * room
        assert shape(truncated) == shape(value)
    else:
        assert estimate_characters(value, 10**9) > room


@given(values)
def test_a_weight_is_about_the_length_of_its_texts(value: Any) -> None:
    text_length = sum(map(len, _texts(value)))
    assert estimate_characters(value, 10**9) >= text_length


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(text for each in value.values() for text in _texts(each))]
    if isinstance(value, list):
        return [text for each in value for text in _texts(each)]
    return [value] if isinstance(value, str) else []


def test_endlessly_nested_values_are_kept() -> None:
    deep: Any = "x" * 9_000
    for _ in range(900):
        deep = [deep]
    assert estimate_characters(deep, 10**9) >= 9_000
    assert truncate_structured(deep, 1_000, "there") is None
    assert not is_text_equivalent("[" * 100_000, deep)


def test_a_text_names_its_json_value_or_is_the_only_value() -> None:
    assert is_text_equivalent("a", {"result": "a"})
    assert is_text_equivalent(json.dumps({"a": [1, 2]}, indent=4), {"a": [1, 2]})
    assert not is_text_equivalent("a", {"result": "a", "more": 1})
    assert not is_text_equivalent("found two", {"a": [1, 2]})
