"""Large results are shaped in a thread, in short steps, and give what small ones would."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolyard.gateway.surface.result_limits import is_text_equivalent
from toolyard.results import MemoryResultStore, ResultLimits, model_result, shape_and_store
from toolyard.results.content_blocks import decode_base64, normalize_base64
from toolyard.results.json_size import is_large
from toolyard.results.partial_read import ResultReadError, has_more_values, read_path
from toolyard.results.readable_json import to_readable_json
from toolyard.results.result_store import StoredResult
from toolyard.types.server import Trust

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


LONG_TEXT = "x" * 1_000_000


@given(VALUES)
def test_a_large_value_is_written_as_a_small_one(value: Any) -> None:
    large = [value, LONG_TEXT]
    assert is_large(large)
    assert to_readable_json(large) == json.dumps(large, ensure_ascii=False)


@given(VALUES, st.integers(1, 30))
def test_values_in_a_text_are_counted_outside_of_strings(value: Any, limit: int) -> None:
    def count(stored_values: Any) -> int:
        if isinstance(stored_values, dict):
            return 1 + sum(1 + count(each) for each in stored_values.values())
        return 1 + sum(map(count, stored_values)) if isinstance(stored_values, list) else 1

    total = count(value)
    text = json.dumps(value)
    if total > 2 * limit:
        assert has_more_values(text, limit)
    if total <= limit // 2:
        assert not has_more_values(text, limit)


async def test_a_large_result_is_read_in_a_thread_and_a_small_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[bool] = []
    real = model_result.parse_result

    def read(raw: object) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return real(raw)

    monkeypatch.setattr(model_result, "parse_result", read)
    for numbers in ([1.5] * 10, [1.5] * 100_000):
        raw = {"content": [], "structuredContent": {"a": numbers}}
        result = await shape_and_store(raw, ResultLimits(), Trust.TRUSTED, MemoryResultStore())
        assert result.text.startswith('{"a": [1.5, 1.5')
    assert threads == [True, False]


async def test_blocks_after_the_first_thousand_are_one_text() -> None:
    raw = {"content": [{"type": "text", "text": f"line {n}"} for n in range(5_000)]}
    result = await shape_and_store(raw, ResultLimits(10_000_000), Trust.TRUSTED, MemoryResultStore())
    assert len(result.blocks) == 1_001
    assert "line 999\n" in result.text
    assert '{"type": "text", "text": "line 4999"}' in result.text
    assert result.warnings == ("content has 5,000 blocks; those after the first 1,000 are shown as JSON",)


async def test_wrong_blocks_without_end_are_few_warnings() -> None:
    result = await shape_and_store(
        {"content": [1] * 100_000}, ResultLimits(), Trust.TRUSTED, MemoryResultStore()
    )
    assert len(result.warnings) <= 1_001


def test_a_path_is_not_looked_up_in_a_text_that_would_be_millions_of_values() -> None:
    bomb = "[" + "[]," * 400_000 + "1]"
    with pytest.raises(ResultReadError, match="more than 200,000 values"):
        read_path(StoredResult(bomb, Trust.TRUSTED), "$", 0, 100)
    with pytest.raises(ResultReadError, match="longer than 8,000,000 characters"):
        read_path(StoredResult(json.dumps("x" * 9_000_000), Trust.TRUSTED), "$", 0, 100)
    table = json.dumps({"csv": "1,2,3\n" * 500_000})
    assert read_path(StoredResult(table, Trust.TRUSTED), "$.csv", 0, 5).text == "1,2,3"


def test_a_long_text_is_not_decoded_to_compare_it_with_structured_content() -> None:
    value = {"a": list(range(100_000))}
    assert is_text_equivalent(json.dumps({"a": [1]}), {"a": [1]})
    assert not is_text_equivalent(json.dumps(value), value)


@pytest.mark.parametrize("size", [0, 1, 2, 749_999, 750_000, 750_001, 1_500_002])
def test_base64_in_pieces_is_the_same_as_at_once(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    text = base64.b64encode(data[:size]).decode()
    expected_text = None if size == 0 else (text, size)
    assert normalize_base64(text) == expected_text
    assert normalize_base64(text.replace("+", "-").replace("/", "_").rstrip("=")) == expected_text
    assert decode_base64(text) == data[:size]


def test_padding_in_the_middle_of_long_base64_is_refused() -> None:
    half = base64.b64encode(b"x" * 749_999).decode()
    assert half.endswith("=")
    assert normalize_base64(half + half) is None


def test_large_values_are_recognised_without_a_complete_walk() -> None:
    assert is_large([[]] * 1_000_000)
    assert is_large({"a": "x" * 1_000_000})
    assert not is_large({"a": [{"b": "x"}] * 100})


def test_few_long_integers_are_large() -> None:
    """Writing an integer of 4,200 digits takes about a millisecond."""
    assert is_large({"a": [10**4200] * 10})
    assert not is_large({"a": [2**64] * 10})


async def test_a_thread_that_writes_long_integers_lets_the_loop_run() -> None:
    writing = asyncio.create_task(asyncio.to_thread(to_readable_json, [10**4200] * 200))
    turns = 0
    while not writing.done():
        turns += 1
        await asyncio.sleep(0)
    assert len(await writing) > 800_000
    assert turns > 20


async def test_a_thread_that_writes_a_large_value_lets_the_loop_run() -> None:
    writing = asyncio.create_task(asyncio.to_thread(to_readable_json, {"a": [1.2345] * 150_000}))
    turns = 0
    while not writing.done():
        turns += 1
        await asyncio.sleep(0)
    assert len(await writing) > 1_000_000
    assert turns > 20
