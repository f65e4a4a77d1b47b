"""Sets of documents as the bits of a number, and sums over them, many documents at a time.

A document has one bit. What is summed stands in planes: the first holds each document's ones, the next its
twos, and so on. One operation on a plane is one on every document, so that the best of thousands are found
in some hundred operations.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

__all__ = ["add", "best", "bits", "members", "planes"]

_VERY_FEW = 4
"""Members up to which they are put in one by one."""
_FEW = 40
"""Members up to which they are taken out one by one; of more, those of a byte at once."""
_SOME = re.compile(rb"[^\0]")
_MEMBERS = [tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256)]


def bits(numbers: Collection[int]) -> int:
    """Some numbers as a set."""
    if len(numbers) <= _VERY_FEW:
        value = 0
        for number in numbers:
            value |= 1 << number
        return value
    held = bytearray((max(numbers) >> 3) + 1)
    for number in numbers:
        held[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(held, "little")


def planes(levels: Mapping[int, int]) -> list[int]:
    """The planes of levels and their sets; a document in several sets has the highest of their levels."""
    found = [0] * max(levels, default=0).bit_length()
    taken = 0
    for level, documents in sorted(levels.items(), reverse=True):
        new = documents & ~taken
        taken |= documents
        for at in range(level.bit_length()):
            if level >> at & 1:
                found[at] |= new
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
            highest = documents.bit_length() - 1
            found.append(highest)
            documents ^= 1 << highest
        return found[::-1]
    for byte in _SOME.finditer(documents.to_bytes((documents.bit_length() + 7) // 8, "little")):
        base = byte.start() * 8
        found += [base + bit for bit in _MEMBERS[byte[0][0]]]
    return found
