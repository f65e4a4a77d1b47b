"""Titles that the model writes."""

from __future__ import annotations

import pytest

from toolyard.agents.chat.title_writer import clean_title


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ("Weather in Rome", "Weather in Rome"),
        ('"Weather in Rome."', "Weather in Rome"),
        ("**Title: Weather in Rome**\nMore text", "Weather in Rome"),
        ("# Weather\u202e in Rome", "Weather\u202e in Rome"),
        ("\n\n  - Weather   in Rome\n", "Weather in Rome"),
        ("A" * 100, "A" * 59 + "…"),
        ("“…”", "…"),
        ("\0\0", "\ufffd\ufffd"),
        ("   ", ""),
    ],
)
def test_a_title_is_one_short_line_without_decoration(written: str, title: str) -> None:
    assert clean_title(written) == title
