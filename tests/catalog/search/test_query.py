from __future__ import annotations

import pytest

from toolyard.catalog.search.query import parse_query
from toolyard.catalog.search.stemmer import stem


def test_a_request_with_several_things_to_do_has_several_clauses() -> None:
    query = parse_query(
        "Convert the spreadsheet into PDF, then translate the document and send the message to Ann"
    )
    assert len(query.clauses) == 3
    assert stem("translate") in query.clauses[1]


def test_connecting_words_do_not_form_a_clause() -> None:
    assert parse_query("buy and sell").clauses == []
    assert parse_query("weather").clauses == []


def test_courtesies_values_and_numbers_count_for_less() -> None:
    weights = parse_query('please help me rename "holiday" 2024').weights
    assert weights[stem("rename")] == 1.0
    assert all(weights[stem(word)] < 1.0 for word in ("help", "holiday", "2024"))


def test_a_word_said_twice_counts_a_little_more() -> None:
    assert 1.0 < parse_query("weather, weather").weights[stem("weather")] < 1.5


@pytest.mark.parametrize(
    "value", ["'Blue Sky'", '"Blue Sky"', "https://blue.example/sky", "/blue/sky", "sky@blue.io"]
)
def test_no_misspelling_is_supposed_in_a_value(value: str) -> None:
    assert {"blu", "sky"} & set(parse_query(f"open {value}").values)


def test_a_long_query_is_read_up_to_a_bound() -> None:
    query = parse_query(" ".join(f"word{letter}{number}. next" for number in range(9000) for letter in "abc"))
    assert len(query.weights) <= 64
    assert len(query.clauses) <= 12


def test_neighbours_are_also_looked_for_as_one_word() -> None:
    assert "hackernews" in parse_query("hacker news").pairs
