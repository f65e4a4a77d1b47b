from __future__ import annotations

import sys
import weakref
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toolyard.protocol.framing import LARGE_MESSAGE_BYTES, ByteBuffer, MessageBytes

KB, MB = 1024, 1024 * 1024
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="huge pages are had on Linux")


def gather_bytes(pieces: list[bytes], most: int, expected: int = 0) -> MessageBytes:
    body = ByteBuffer(most, expected)
    for piece in pieces:
        body.add(piece)
    return body.take()


@settings(deadline=None)
@given(
    messages=st.lists(st.lists(st.binary(max_size=30), max_size=8), max_size=4),
    large=st.integers(0, 100),
    expected=st.integers(0, 300),
)
@example(messages=[[b"", b"a", b"", b"b"]], large=0, expected=0)
@example(messages=[[b"a", b"b"]], large=0, expected=300)
def test_pieces_are_joined_at_any_size(messages: list[list[bytes]], large: int, expected: int) -> None:
    body = ByteBuffer(240, expected, large)
    chunks = []
    for pieces in messages:
        for piece in pieces:
            body.add(piece)
        assert body.size == sum(map(len, pieces))
        chunks.append(body.take())
    # All are looked at last: none has become another's memory.
    assert chunks == [b"".join(pieces) for pieces in messages]


def test_a_single_piece_is_given_as_it_came() -> None:
    piece = b"x" * (LARGE_MESSAGE_BYTES + 1)
    assert gather_bytes([piece], 64 * MB) is piece


@on_linux
@pytest.mark.parametrize("expected", [0, LARGE_MESSAGE_BYTES + KB], ids=["unexpected", "expected"])
def test_the_memory_of_a_large_message_goes_with_the_last_look_at_it(expected: int) -> None:
    piece = b"x" * KB
    view = gather_bytes([piece] * (LARGE_MESSAGE_BYTES // KB + 1), 64 * MB, expected)
    assert isinstance(view, memoryview)
    assert len(view) == LARGE_MESSAGE_BYTES + KB
    memory = weakref.ref(view.obj)
    part = view[5:10]
    del view
    assert part == b"xxxxx"
    del part
    assert memory() is None


@on_linux
def test_memory_that_is_expected_but_never_comes_is_not_taken() -> None:
    before = _resident()
    bodies = [ByteBuffer(256 * MB, 256 * MB) for _ in range(8)]
    for body in bodies:
        body.add(b"a little")
    assert _resident() - before < 64 * MB
    assert [body.take() for body in bodies] == [b"a little"] * 8


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4 * KB


@pytest.mark.parametrize("most", [2**62, 2**70], ids=["no such memory", "no such number"])
@pytest.mark.parametrize("expected", [0, LARGE_MESSAGE_BYTES + 1])
def test_a_limit_beyond_all_memory_is_possible(most: int, expected: int) -> None:
    piece = bytes(range(256)) * 4 * KB
    pieces = [piece] * (LARGE_MESSAGE_BYTES // len(piece) + 1)
    assert gather_bytes(pieces, most, expected) == b"".join(pieces)
