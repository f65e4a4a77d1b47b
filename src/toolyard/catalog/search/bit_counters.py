"""Sets of documents as the bits of a number, and sums over them, many documents at a time.

A document has one bit. What is summed stands in planes: the first holds each document's ones, the next its
twos, and so on. One operation on a plane is one on every document, so that the best of thousands are found
in some hundred operations.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Sequence
from itertools import compress
from sys import byteorder

__all__ = ["add_to_counters", "bitset_members", "select_highest", "to_bitset"]

_MAX_SHIFTED_MEMBERS = 8
"""Members up to which they are put in one by one."""
_WORD_BITS = 64


def to_bitset(numbers: Collection[int]) -> int:
    """Some numbers as a set."""
    if len(numbers) <= _MAX_SHIFTED_MEMBERS:
        value = 0
        for number in numbers:
            value |= 1 << number
        return value
    held = bytearray((max(numbers) >> 3) + 1)
    for number in numbers:
        held[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(held, "little")


def add_to_counters(planes: list[int], steps: Iterable[tuple[int, int]]) -> None:
    """Add to the sums of some documents, for each of the steps two to the power of its first number."""
    for at, documents in steps:
        while documents:
            one = planes[at]
            planes[at] = one ^ documents
            documents &= one
            at += 1


def select_highest(planes: Sequence[int], limit: int) -> tuple[int, int]:
    """The documents with the highest sums: at most so many, and those that are equal at the border.

    A document whose sum is 0 is in neither.
    """
    rest = 0
    for plane in planes:
        rest |= plane
    sure = held = 0
    for plane in reversed(planes):
        if not plane:
            continue
        high = rest & plane
        count = high.bit_count()
        if held + count > limit:
            rest = high
        else:
            sure |= high
            held += count
            rest ^= high
    return sure, rest


def bitset_members(documents: int) -> list[int]:
    """The numbers in a set, rising."""
    found: list[int] = []
    words = array(
        "Q", documents.to_bytes(-(-documents.bit_length() // _WORD_BITS) * (_WORD_BITS // 8), byteorder)
    )
    if byteorder == "big":
        words.reverse()
    for place in compress(range(len(words)), words):
        word, first = words[place], place * _WORD_BITS - 1
        while word:
            lowest = word & -word
            found.append(first + lowest.bit_length())
            word ^= lowest
    return found
