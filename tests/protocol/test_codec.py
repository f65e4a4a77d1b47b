from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toolyard.protocol.codec import (
    decode,
    encode,
    encode_large_members,
    iter_encoded_pieces,
    may_contain_long_number,
)
from toolyard.protocol.framing import MessageBytes

numbers = (
    st.integers()
    | st.integers(min_value=-(2**200), max_value=2**200)
    | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)

# Just inside and just outside of what 64 bits hold, and of what a float holds exactly.
EDGES = [
    2**53 + 1,
    -(2**53) - 1,
    2**63 - 1,
    2**63,
    -(2**63),
    -(2**63) - 1,
    -9_999_999_999_999_999_999,
    2**64 - 1,
    2**64,
    2**64 + 1,
    10**18 + 1,
    10**19 + 1,
    10**40 + 7,
]


@given(values)
@example({"id": 2**64 + 1, "text": "\u2028 \x00 \U0001f600"})
@example([-0.0, 5e-324, 1.7976931348623157e308, 1e22, 0.1])
def test_values_round_trip_exactly(value: Any) -> None:
    again = decode(encode(value))
    assert again == value
    assert repr(again) == repr(value)


@given(values)
def test_output_is_json_on_one_line(value: Any) -> None:
    data = encode(value)
    assert b"\n" not in data
    assert b"\r" not in data
    assert json.loads(data) == value


@pytest.mark.parametrize(
    "value",
    [
        {"rows": [{"n": 2**70, "text": '\u00e9\n"\\'}] * 20_000},
        {"text": "a\ud800b\U0001f600\n\u2028" * 300_000},
        {"nested": json.loads("[" * 900 + "]" * 900), "rows": list(range(20_000))},
    ],
)
async def test_a_large_member_is_encoded_in_short_pieces_like_a_small_one(value: Any) -> None:
    large_members = await encode_large_members({"large": value, "small": {"a": 1}})
    assert large_members["small"] == {"a": 1}
    assert encode(large_members) == encode({"large": value, "small": {"a": 1}})
    assert max(map(len, iter_encoded_pieces(value))) <= 2 * 250_000


@pytest.mark.parametrize("number", EDGES)
def test_integers_stay_exact_in_both_directions(number: int) -> None:
    assert encode(number) == str(number).encode()
    for text in (f"{number}", f"[{number}]", f'{{"id":{number},"x":"\\u00e9"}}', f" [ {number} ] "):
        read = decode(text.encode())
        assert repr(number) in repr(read)
        assert read == json.loads(text)


def test_digits_inside_a_string_do_no_harm() -> None:
    text = '{"card":"12345678901234567890123","n":1}'
    assert decode(text.encode()) == {"card": "12345678901234567890123", "n": 1}


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_all_bytes_like_objects_are_read_alike(kind: Callable[[bytes], MessageBytes]) -> None:
    assert decode(kind(b'{"a":[1,18446744073709551616]}')) == {"a": [1, 2**64]}
    assert decode(kind(b'{"a":1}')) == {"a": 1}
    assert decode(kind(b'["\\ud800"]')) == ["\ufffd"]
    assert decode(kind(b'["%b"]' % (b"x" * 100_000))) == ["x" * 100_000]
    for text in (b"{", b'["\\u0041"', b'["\xff"]', b"[" * 100_000):
        with pytest.raises(ValueError):
            decode(kind(text))


@pytest.mark.parametrize("sign", ["", "-"])
def test_integers_have_at_most_640_digits(sign: str) -> None:
    """Writing one of 4,300 digits, which Python would read, takes more than a millisecond."""
    longest = sign + "9" * 640
    assert decode(f"[{longest}]".encode()) == [int(longest)]
    with pytest.raises(ValueError):
        decode(f"[{longest}9]".encode())


# Large messages are read first, and looked at afterwards.


decode_large = partial(decode, large_message_bytes=0)


@pytest.mark.parametrize("number", [*EDGES, -(10**400), 1e300, -1e19, 0.1])
@pytest.mark.parametrize("beside", [0, 999, 1000, 5000], ids="with {} others".format)
def test_numbers_in_a_large_message_stay_exact(number: float, beside: int) -> None:
    for value in (
        [number, *[1] * beside],
        [*[1] * beside, number],
        {"a": [{"b": [[1]] * beside}, {"c": {"d": number}}]},
    ):
        read = decode_large(json.dumps(value).encode())
        assert read == value
        assert repr(read) == repr(value)


@settings(deadline=None, max_examples=300)
@given(values, st.integers(0, 6))
@example({"a": [], "b": {}, "c": 2**64, "d": -(2**63) - 1}, 4)
def test_a_large_message_is_read_like_a_small_one(value: Any, few: int) -> None:
    data = encode(value)
    for kind in (bytes, memoryview):
        assert repr(decode_large(kind(data), max_inspected_values=few)) == repr(value)


@pytest.mark.parametrize(
    "text", [b"{", b'["\xff"]', b'["\\u0041"', b"[1e400]", b"[NaN]", b"9" * 5000, b"[" * 99_999]
)
def test_a_large_message_that_is_not_json_raises_value_error(text: bytes) -> None:
    with pytest.raises(ValueError):
        decode_large(text)


def test_a_lone_surrogate_in_a_large_message_is_replaced() -> None:
    assert decode_large(b'["\\ud800", 18446744073709551617]') == ["\ufffd", 2**64 + 1]


# A long message is searched for long numbers in pieces.


@settings(deadline=None, max_examples=300)
@given(
    before=st.text(alphabet="1a,. ", max_size=60),
    digits=st.integers(17, 24),
    after=st.text(alphabet="1a,. ", max_size=60),
    piece=st.integers(1, 60),
)
def test_no_long_number_is_missed_wherever_it_stands(
    before: str, digits: int, after: str, piece: int
) -> None:
    text = f"{before}{'7' * digits}{after}".encode()
    assert may_contain_long_number(text, piece) == (re.search(rb"[0-9]{19}", text) is not None)


def test_the_order_of_keys_is_kept() -> None:
    keys = [f"k{(n * 7919) % 1000}" for n in range(1000)]
    value = dict.fromkeys(keys, 2**70)
    assert list(decode(encode(value))) == keys
    assert list(decode(encode(dict.fromkeys(keys, 1)))) == keys


@pytest.mark.parametrize("digits", ["", ', "n": 12345678901234567890'], ids=["quick way", "exact way"])
@pytest.mark.parametrize(
    ("escape", "read"),
    [
        (r"\ud800", "\ufffd"),
        (r"\udc00", "\ufffd"),
        (r"a\uD83Dz", "a\ufffdz"),
        (r"\udc00\ud800", "\ufffd\ufffd"),
        (r"\ud83d\ude00", "\U0001f600"),
        (r"\ud83d\ude00\ud83d", "\U0001f600\ufffd"),
        (r"\\ud800", r"\ud800"),
    ],
)
def test_only_lone_surrogates_are_replaced(escape: str, read: str, digits: str) -> None:
    value = decode(f'{{"{escape}": "{escape}"{digits}}}'.encode())
    assert value[read] == read
    assert decode(encode(value)) == value


def test_a_lone_surrogate_can_be_written() -> None:
    data = encode({"text": "a\ud800b"})
    assert decode(data) == {"text": "a?b"}


@pytest.mark.parametrize(
    "text",
    [
        b'"\xff"',
        b'"\xff \\u0041"',
        b'["\xff", 12345678901234567890]',
        b'"\xed\xa0\x80"',
        b'["\xed\xa0\x80", 12345678901234567890]',
        b'{"a":"\xc3"}',
        '["a"]'.encode("utf-16"),
    ],
)
def test_invalid_utf_8_is_invalid_json(text: bytes) -> None:
    with pytest.raises(ValueError):
        decode(text)


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400"])
@pytest.mark.parametrize("rest", ["", ', "\\u0041"', ', "\\ud800"', ", 12345678901234567890"])
def test_numbers_that_json_does_not_have_are_refused_on_every_way(constant: str, rest: str) -> None:
    with pytest.raises(ValueError):
        decode(f"[{constant}{rest}]".encode())


@pytest.mark.parametrize(
    "text", [b"", b" ", b"{", b"{]", b"[1,]", b"{'a':1}", b"1 2", b"\\u0041", b"nul", b'{"a":\\u0041}']
)
def test_invalid_json_raises_value_error(text: bytes) -> None:
    with pytest.raises(ValueError):
        decode(text)


@pytest.mark.parametrize("inside", [b"", b'"\\ud800"', b"12345678901234567890"])
@pytest.mark.parametrize("depth", [100_000, 1_000_000])
def test_nesting_without_end_raises_value_error(inside: bytes, depth: int) -> None:
    with pytest.raises(ValueError):
        decode(b"[" * depth + inside + b"]" * depth)
    with pytest.raises(ValueError):
        decode(b'{"a":' * depth + inside)


@pytest.mark.parametrize("inside", [b"1", b'"\\ud800"', b"12345678901234567890"])
def test_reasonable_nesting_is_read(inside: bytes) -> None:
    value = decode(b"[" * 200 + inside + b"]" * 200)
    for _ in range(200):
        (value,) = value
    assert value in (1, "\ufffd", 12345678901234567890)


def test_a_number_of_absurd_length_raises_value_error() -> None:
    with pytest.raises(ValueError):
        decode(b"9" * 5000)


@given(st.binary(max_size=60))
@example(b'"\\ud800')
@example(b"\xef\xbb\xbf[]")
@example(b"-" + b"1" * 30)
@example(b"1" * 19 + b"\x00")
def test_any_bytes_are_read_or_refused_with_value_error(data: bytes) -> None:
    try:
        value = decode(data)
    except ValueError:
        return
    assert decode(encode(value)) == value


@given(st.text(alphabet='[]{}",:\\udD8900a1 \t-.eE', max_size=40))
def test_any_almost_json_is_read_like_the_standard_library_or_refused(text: str) -> None:
    try:
        value = decode(text.encode())
    except ValueError:
        return
    expected = json.dumps(json.loads(text)).encode().decode("ascii")
    plain = json.dumps(value)
    assert plain == expected or "\\ufffd" in plain


@pytest.mark.parametrize(
    "value", [object(), {"a": object()}, {1, 2}, b"bytes", [10**5000], {"n": 2**70, "x": math.nan}]
)
def test_values_beyond_json_cannot_be_written(value: object) -> None:
    with pytest.raises(TypeError):
        encode(value)


def test_cyclic_values_cannot_be_written() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(TypeError):
        encode(loop)


def test_not_a_number_is_written_as_null() -> None:
    assert encode({"x": math.nan, "y": math.inf}) == b'{"x":null,"y":null}'
