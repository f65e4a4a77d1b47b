"""Sums over sets of bits equal the sums of their elements."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolyard.catalog.search.postings import add_to_counters, bitset_members, select_highest, to_bitset

numbers = st.sets(st.integers(0, 200))
steps = st.lists(st.tuples(st.integers(0, 5), numbers), max_size=5)


@given(numbers)
def test_a_set_contains_its_added_numbers(some: set[int]) -> None:
    assert to_bitset(some) == sum(1 << number for number in some)
    assert bitset_members(to_bitset(some)) == sorted(some)


@given(st.lists(steps, max_size=6), st.integers(0, 30))
def test_the_best_are_those_with_the_highest_sums(
    concepts: list[list[tuple[int, set[int]]]], most: int
) -> None:
    total = [0] * 12
    sums: dict[int, int] = {}
    for concept in concepts:
        add_to_counters(total, [(step, to_bitset(some)) for step, some in concept])
        for step, some in concept:
            for number in some:
                sums[number] = sums.get(number, 0) + 2**step
    for number, expected in sums.items():
        assert sum((plane >> number & 1) << at for at, plane in enumerate(total)) == expected
    sure, equal = select_highest(total, most)
    certain, border = set(bitset_members(sure)), set(bitset_members(equal))
    assert len(certain) <= most
    assert not certain & border
    assert certain | border <= sums.keys()
    rest = sums.keys() - certain - border
    assert len({sums[number] for number in border}) <= 1
    if len(sums) <= most:
        assert certain == sums.keys()
    elif certain or border:
        assert len(certain) + len(border) > most
        assert all(sums[one] > sums[other] for one in certain for other in border)
        assert all(sums[one] > sums[other] for one in border for other in rest)
