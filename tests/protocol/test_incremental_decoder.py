"""Large messages are decoded in steps: the same values as at once, while other tasks run, within limits."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolyard.protocol.codec import decode
from toolyard.protocol.incremental_decoder import (
    MAX_ONE_STEP_BYTES,
    MessageLimitExceeded,
    decode_in_steps,
    decode_message,
)

TEXTS = st.text(st.characters(codec="utf-8") | st.sampled_from('"\\\n😀é中 '), max_size=60)
NUMBERS = st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(TEXTS, inner, max_size=6),
    max_leaves=40,
)


def in_steps(data: bytes, **limits: int) -> tuple[Any, int]:
    """The decoded value and the number of steps."""
    steps, count = decode_in_steps(data, **limits), 0
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value, count
        count += 1


@given(VALUES, st.booleans(), st.sampled_from([None, 1]), st.integers(64, 300), st.integers(16, 200))
def test_steps_of_any_size_give_the_same_value(
    value: Any, ascii_only: bool, indent: int | None, window: int, text_window: int
) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    decoded, _ = in_steps(data, window=window, text_window=text_window)
    assert repr(decoded) == repr(json.loads(data))


PIECES = st.sampled_from(
    [
        *'[]{},:"\\ \n\t\x01é',
        *("1", "-", "0", ".5", "e9", "true", "null", "nul", '"a"', '"a":'),
        *("\\u12", "\\ud83d", "\\ude00", "a" * 70),
    ]
)


@given(st.lists(PIECES, max_size=12).map("".join), st.integers(64, 80), st.integers(16, 30))
@example('{"a":1,}', 64, 16)
@example("[1 2]", 64, 16)
@example('{"a" 1}', 64, 16)
@example("[01]", 64, 16)
@example('"' + "a" * 65 + "\\\\ud83d" + "b" * 30 + '"', 64, 16)
@example('"' + "a" * 65 + "\\ud83d\\ude00" * 9 + '"', 64, 16)
def test_json_rejected_at_once_is_rejected_in_steps(text: str, window: int, text_window: int) -> None:
    data = text.encode()
    try:
        expected_value = decode(data)
    except ValueError:
        with pytest.raises(ValueError):
            in_steps(data, window=window, text_window=text_window)
    else:
        assert repr(in_steps(data, window=window, text_window=text_window)[0]) == repr(expected_value)


def test_values_are_counted_and_more_than_the_limit_are_refused_by_name() -> None:
    ten = b'{"a": [1, 2, {"b": []}], "c": {"d": "e"}}'
    assert in_steps(ten, max_values=12)[0] == {"a": [1, 2, {"b": []}], "c": {"d": "e"}}
    with pytest.raises(MessageLimitExceeded, match="has more than 11 values"):
        in_steps(ten, max_values=11)


def test_a_text_that_needs_too_much_memory_is_refused_by_name() -> None:
    text = "a" * 1000
    assert in_steps(json.dumps(text).encode(), max_text_bytes=1001, window=64)[0] == text
    with pytest.raises(MessageLimitExceeded, match="string that would take more than 1,001 bytes"):
        in_steps(json.dumps(text + "😀", ensure_ascii=False).encode(), max_text_bytes=1001, window=64)


async def turns_while(data: bytes) -> tuple[Any, int]:
    """What decoding gives, or raises, and how often another task ran meanwhile."""
    turns, done = 0, asyncio.Event()

    async def count() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await asyncio.sleep(0)
    try:
        return await decode_message(data), turns
    except ValueError as error:
        return error, turns
    finally:
        done.set()
        await counting


BOMBS = {
    "empty lists": b"[" + b"[]," * 12_000_000 + b"1]",
    "members": b'[{"a":' + b'[],"a":' * 4_000_000 + b"1}]",
    "records": b"[" + b'{"a":1},' * 4_000_000 + b"1]",
    "less than two megabytes": b"[" + b"[]," * 600_000 + b"1]",
}


@pytest.mark.parametrize("kind", BOMBS)
async def test_millions_of_values_are_refused_while_other_tasks_run(kind: str) -> None:
    decoded, turns = await turns_while(BOMBS[kind])
    assert isinstance(decoded, MessageLimitExceeded)
    assert str(decoded) == "has more than 200,000 values"
    assert turns > 20


TEXT_BYTES = 20_000_000
LONG_TEXTS = {
    "plain": ("a" * TEXT_BYTES, b'"' + b"a" * TEXT_BYTES + b'"'),
    "a table": ("1,2,3\n" * 1_000_000, b'"' + b"1,2,3\\n" * 1_000_000 + b'"'),
    "lone surrogates": ("\ufffd" * 1_000_000, b'"' + b"\\ud800" * 1_000_000 + b'"'),
    "outside of ASCII": ("中😀" * 1_000_000, b'"' + "中😀".encode() * 1_000_000 + b'"'),
}


@pytest.mark.parametrize("kind", LONG_TEXTS)
async def test_a_long_text_is_decoded_while_other_tasks_run(kind: str) -> None:
    text, data = LONG_TEXTS[kind]
    decoded, turns = await turns_while(b'{"text": ' + data + b"}")
    assert decoded == {"text": text}
    assert turns > len(data) // 1_000_000


async def test_a_message_below_the_threshold_is_decoded_at_once() -> None:
    data = b'"' + b"a" * (MAX_ONE_STEP_BYTES - 2) + b'"'
    decoded, turns = await turns_while(data)
    assert (len(decoded), turns) == (MAX_ONE_STEP_BYTES - 2, 1)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 3_000_000,
        b"[" + b"1" * 3_000_000 + b"]",
        b"[" + b" " * 3_000_000 + b"[1]," + b"1" * 641 + b"]",
        b"[1e999999," + b" " * 3_000_000 + b"1]",
    ],
    ids=["nested", "digits", "many-digits", "exponent"],
)
async def test_nesting_and_numbers_without_bound_are_refused(data: bytes) -> None:
    decoded, _ = await turns_while(data)
    assert isinstance(decoded, ValueError)
