"""Names that a person would take for the same one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolyard.store.sql.stored_values import fold_case


@given(st.text(max_size=30))
def test_folding_twice_changes_nothing(name: str) -> None:
    assert fold_case(fold_case(name)) == fold_case(name)


@given(st.text(alphabet=st.characters(max_codepoint=0x24F), max_size=30))
def test_case_makes_no_difference(name: str) -> None:
    assert fold_case(name.upper()) == fold_case(name.upper().lower())


@given(st.text(alphabet=st.characters(max_codepoint=127), max_size=30))
def test_the_short_way_for_plain_names_gives_the_same(name: str) -> None:
    assert fold_case(name) == fold_case(name + "é").removesuffix(fold_case("é"))


def test_different_names_stay_different() -> None:
    names = ["ann", "ann ", "an-n", "anna", "änn", "аnn", "1", "2", ""]
    assert len({fold_case(name) for name in names}) == len(names)
