from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolyard.catalog.search import summarize_description


@pytest.mark.parametrize(
    ("description", "line"),
    [
        ("", ""),
        ("Read a file. Then more.", "Read a file"),
        ("  Read\n  a file\n\nArgs: path", "Read a file"),
        ("使用必应搜索。返回结果", "使用必应搜索"),
        ("Version 1.2 of it", "Version 1.2 of it"),
        ("one two three four five six", "one two three four…"),
        ("x" * 100, "x" * 19 + "…"),
    ],
)
def test_the_first_sentence_stands_on_one_line_of_bounded_length(description: str, line: str) -> None:
    assert summarize_description(description, 20) == line


@given(st.text(), st.integers(1, 80))
def test_a_brief_is_never_longer_than_asked_for(description: str, length: int) -> None:
    line = summarize_description(description, length)
    assert len(line) <= length
    assert "\n" not in line
