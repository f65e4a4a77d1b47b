"""Sums over sets of bits are the sums that they stand for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolyard.catalog.search.bit_counters import add, best, bits, members

numbers = st.sets(st.integers(0, 200))
steps = st.lists(st.tuples(st.integers(0, 5), numbers), max_size=5)


@given(numbers)
def test_a_set_has_what_was_put_in(some: set[int]) -> None:
    assert bits(some) == sum(1 << number for number in some)
    assert members(bits(some)) == sorted(some)


@given(st.lists(steps, max_size=6), st.integers(0, 30))
def test_the_best_are_those_with_the_highest_sums(
    concepts: list[list[tuple[int, set[int]]]], most: int
) -> None:
    total = [0] * 12
    sums: dict[int, int] = {}
    for concept in concepts:
        add(total, [(step, bits(some)) for step, some in concept])
        for step, some in concept:
            for number in some:
                sums[number] = sums.get(number, 0) + 2**step
    for number, expected in sums.items():
        assert sum((plane >> number & 1) << at for at, plane in enumerate(total)) == expected
    sure, equal = best(total, most)
    certain, border = set(members(sure)), set(members(equal))
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
