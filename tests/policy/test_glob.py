"""Globs: ``*`` stands for any characters and nothing else is special."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolyard.policy.glob import compile_globs, matches_glob, unused_globs

# Few letters, so that generated globs and names meet often; or what other matchers treat as special.
names = st.text(alphabet="ab", max_size=8) | st.text(alphabet="a_?[].\\\n", max_size=8)
globs = st.text(alphabet="ab*", max_size=8) | st.text(alphabet="a_?[].\\\n***", max_size=8)


def reference(glob: str, name: str) -> bool:
    """The definition itself, slow and obvious."""
    if not glob:
        return not name
    if glob[0] == "*":
        return any(reference(glob[1:], name[at:]) for at in range(len(name) + 1))
    return bool(name) and name[0] == glob[0] and reference(glob[1:], name[1:])


@given(glob=globs, name=names)
def test_a_glob_matches_by_its_definition(glob: str, name: str) -> None:
    assert matches_glob(glob, name) is reference(glob, name)


@given(several=st.lists(globs, max_size=4), name=names)
def test_several_globs_match_the_union(several: list[str], name: str) -> None:
    assert bool(compile_globs(tuple(several))(name)) is any(reference(glob, name) for glob in several)


@given(name=names)
def test_a_bare_star_fits_every_name(name: str) -> None:
    assert matches_glob("*", name)
    assert matches_glob("**", name)


@pytest.mark.parametrize("glob", ["?", "[a]", "a.", "\\a", "a|b", "(a)", "^a", "a$"])
def test_nothing_but_the_star_is_special(glob: str) -> None:
    assert matches_glob(glob, glob)
    assert not matches_glob(glob, "a")


def test_case_counts() -> None:
    assert not matches_glob("Read*", "readFile")


def test_a_star_stands_for_no_character_too() -> None:
    assert matches_glob("web_*", "web_")


def test_the_ends_of_a_glob_do_not_share_characters() -> None:
    assert not matches_glob("aba*aba", "aba")
    assert matches_glob("aba*aba", "abaaba")


@pytest.mark.parametrize("glob", ["*a*a", "a*a*", "*a*a*", "*ab*b"])
def test_a_piece_is_looked_for_from_the_left(glob: str) -> None:
    assert matches_glob(glob, glob.replace("*", ""))
    assert not matches_glob(glob, "ab")


def test_no_globs_fit_nothing() -> None:
    assert not compile_globs(())("")


def test_a_hostile_name_costs_no_more_than_its_length() -> None:
    glob = "*a" * 30 + "*b"
    start = time.process_time()
    assert not matches_glob(glob, "a" * 20_000)
    assert time.process_time() - start < 1.0


def test_globs_that_fit_nothing_are_reported_in_their_order() -> None:
    assert unused_globs(["write*", "read*", "gone"], ["readFile", "search"]) == ("write*", "gone")
