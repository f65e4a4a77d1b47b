"""Document sets and per-document counters, stored as the bits of Python integers.

Document ``n`` is bit ``n``. The counters are bit-sliced: plane 0 holds bit 0 of every document's sum, plane 1
holds bit 1, and so on. One integer operation on a plane therefore updates all documents at once, and the best
of several thousand documents are selected in about a hundred operations.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Sequence
from itertools import compress
from sys import byteorder

__all__ = ["add_to_counters", "bitset_members", "select_highest", "to_bitset"]

_MAX_SHIFTED_MEMBERS = 8
"""Size up to which a bitset is built by shifting; above it, filling a byte array is faster."""
_WORD_BITS = 64


def to_bitset(numbers: Collection[int]) -> int:
    """Return the integer whose set bits are ``numbers``."""
    if len(numbers) <= _MAX_SHIFTED_MEMBERS:
        value = 0
        for number in numbers:
            value |= 1 << number
        return value
    # Python integers are immutable: each ``|=`` above copies the whole integer, so that building a large set
    # that way takes quadratic time.
    buffer = bytearray((max(numbers) >> 3) + 1)
    for number in numbers:
        buffer[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(buffer, "little")


def add_to_counters(planes: list[int], steps: Iterable[tuple[int, int]]) -> None:
    """Add steps to the counters in place: ``(exponent, documents)`` adds ``2 ** exponent`` to each document.

    ``planes`` must be long enough for the largest sum; a carry out of the last plane raises IndexError.
    """
    # A binary ripple-carry adder, applied to all documents of a step in parallel: XOR is the sum bit and AND
    # is the carry into the next plane. Most steps end after one or two planes, when no document carries.
    for exponent, documents in steps:
        while documents:
            plane = planes[exponent]
            planes[exponent] = plane ^ documents
            documents &= plane
            exponent += 1


def select_highest(planes: Sequence[int], limit: int) -> tuple[int, int]:
    """Return two bitsets: the documents with the highest sums, and the documents tied at the cut-off.

    The first has at most ``limit`` members. The second has the documents with the next lower sum, which do
    not all fit. Documents with the sum 0 are in neither.
    """
    undecided = 0
    for plane in planes:
        undecided |= plane
    # A binary search for the cut-off sum, from the most significant plane down. Documents with the current
    # bit set are higher than the other undecided ones. If all of them fit, they are selected and the search
    # goes on among the others; if not, the cut-off lies among them and the others are out. After the last
    # plane the undecided documents agree in every bit, so they are equal.
    selected = selected_count = 0
    for plane in reversed(planes):
        if not plane:
            continue
        higher = undecided & plane
        count = higher.bit_count()
        if selected_count + count > limit:
            undecided = higher
        else:
            selected |= higher
            selected_count += count
            undecided ^= higher
    return selected, undecided


def bitset_members(documents: int) -> list[int]:
    """Return the positions of the set bits of ``documents``, in ascending order."""
    members: list[int] = []
    # Each operation on a large integer costs in proportion to its length. Splitting it into machine words
    # first keeps the loop below on small integers, and ``compress`` skips the empty words.
    words = array(
        "Q", documents.to_bytes(-(-documents.bit_length() // _WORD_BITS) * (_WORD_BITS // 8), byteorder)
    )
    if byteorder == "big":
        words.reverse()
    for position in compress(range(len(words)), words):
        word, offset = words[position], position * _WORD_BITS - 1
        while word:
            lowest_bit = word & -word
            members.append(offset + lowest_bit.bit_length())
            word ^= lowest_bit
    return members
