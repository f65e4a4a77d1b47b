"""Names that a person would take for the same one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolyard.store.sql.casefold import folded


@given(st.text(max_size=30))
def test_folding_twice_changes_nothing(name: str) -> None:
    assert folded(folded(name)) == folded(name)


@given(st.text(alphabet=st.characters(max_codepoint=0x24F), max_size=30))
def test_case_makes_no_difference(name: str) -> None:
    assert folded(name.upper()) == folded(name.upper().lower())


@given(st.text(alphabet=st.characters(max_codepoint=127), max_size=30))
def test_the_short_way_for_plain_names_gives_the_same(name: str) -> None:
    assert folded(name) == folded(name + "é").removesuffix(folded("é"))


def test_different_names_stay_different() -> None:
    names = ["ann", "ann ", "an-n", "anna", "änn", "аnn", "1", "2", ""]
    assert len({folded(name) for name in names}) == len(names)
