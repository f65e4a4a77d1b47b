"""Sets of documents as the bits of a number, and sums over them, many documents at a time.

A document has one bit. What is summed stands in planes: the first holds each document's ones, the next its
twos, and so on. One operation on a plane is one on every document, so that the best of thousands are found
in some hundred operations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["Bits", "add", "best", "members", "planes"]

_FEW = 40
"""Members up to which they are taken out one by one; of more, those of a byte at once."""
_SOME = re.compile(rb"[^\0]")
_MEMBERS = [tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256)]


class Bits:
    """A set of numbers that changes; ``value`` is the set as one number."""

    __slots__ = ("_bytes", "_value")

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._bytes = bytearray()
        self._value: int | None = 0
        for number in numbers:
            self.add(number)

    def add(self, number: int) -> None:
        """Put a number in."""
        held = self._bytes
        byte = number >> 3
        if byte >= len(held):
            held.extend(bytes(byte + 1 - len(held)))
        held[byte] |= 1 << (number & 7)
        self._value = None

    def discard(self, number: int) -> None:
        """Take a number out, where it is in."""
        if number >> 3 < len(self._bytes):
            self._bytes[number >> 3] &= ~(1 << (number & 7))
            self._value = None

    @property
    def value(self) -> int:
        if self._value is None:
            self._value = int.from_bytes(self._bytes, "little")
        return self._value


def planes(levels: Iterable[tuple[int, int]]) -> list[int]:
    """The planes of levels and their sets; a document in several sets has the highest of their levels."""
    found: list[int] = []
    taken = 0
    for level, documents in sorted(levels, reverse=True):
        new = (documents | taken) ^ taken
        taken |= documents
        plane = 0
        while level:
            if plane == len(found):
                found.append(0)
            if level & 1:
                found[plane] |= new
            level >>= 1
            plane += 1
    return found


def add(total: list[int], more: Sequence[int]) -> None:
    """Add the planes of ``more`` to those of ``total``, document by document."""
    carry = 0
    for at, other in enumerate(more):
        if at == len(total):
            total.append(0)
        one = total[at]
        differ = one ^ other
        total[at] = differ ^ carry
        carry = (one & other) | (carry & differ)
    at = len(more)
    while carry:
        if at == len(total):
            total.append(0)
        total[at], carry = total[at] ^ carry, total[at] & carry
        at += 1


def best(total: Sequence[int], most: int) -> tuple[int, int]:
    """The documents with the highest sums: at most so many, and those that are equal at the border.

    A document whose sum is 0 is in neither.
    """
    rest = 0
    for plane in total:
        rest |= plane
    sure = held = 0
    for plane in reversed(total):
        high = rest & plane
        count = high.bit_count()
        if held + count > most:
            rest = high
        else:
            sure |= high
            held += count
            rest ^= high
    return sure, rest


def members(documents: int) -> list[int]:
    """The numbers in a set, rising."""
    found: list[int] = []
    if documents.bit_count() <= _FEW:
        while documents:
            lowest = documents & -documents
            found.append(lowest.bit_length() - 1)
            documents ^= lowest
        return found
    for byte in _SOME.finditer(documents.to_bytes((documents.bit_length() + 7) // 8, "little")):
        base = byte.start() * 8
        found += [base + bit for bit in _MEMBERS[byte[0][0]]]
    return found
