"""A denied and a missing tool give the same words."""

from __future__ import annotations

import time

from toolyard.errors import ToolRefused
from toolyard.policy.policy import build_refusal


def test_the_words_depend_on_the_name_and_on_what_the_caller_sees_alone() -> None:
    shown = ["repo_search", "repo_read"]
    denied, missing = build_refusal("repo_secret", shown), build_refusal("repo_secret", shown)
    assert isinstance(denied, ToolRefused)
    assert str(denied) == str(missing)


def test_only_names_that_the_caller_sees_are_suggested() -> None:
    assert build_refusal("repo_serach", ["repo_search"]).hint == "did you mean 'repo_search'?"
    hint = build_refusal("repo_serach").hint
    assert hint is not None
    assert "repo_search" not in hint


def test_among_thousands_of_names_only_the_nearest_are_compared() -> None:
    shown = [f"{word}_{number:05}" for word in ("list", "make", "read") for number in range(10_000)]
    began = time.process_time()
    hints = {build_refusal(f"make_{number:05}x", shown).hint for number in range(16)}
    assert time.process_time() - began < 10
    assert hints == {f"did you mean 'make_{number:05}'?" for number in range(16)}


def test_of_an_endless_name_its_beginning_is_told() -> None:
    told = build_refusal("x" * 100_000, ["x"]).cause
    assert told == f"no tool named '{'x' * 128}…' is available"


def test_a_name_is_not_suggested_for_itself() -> None:
    assert build_refusal("repo_search", ["repo_search"]).hint == build_refusal("repo_search").hint
