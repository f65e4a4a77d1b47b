from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolyard.config.sources.server_variables import expand_variables, find_variable_names

ENV = {"HOST": "example.com", "EMPTY": "", "TOKEN": "a${HOST}b"}


@pytest.mark.parametrize(
    ("text", "expected_text"),
    [
        ("plain", "plain"),
        ("https://${HOST}/mcp", "https://example.com/mcp"),
        ("${env:HOST}", "example.com"),
        ("${HOST:-other}", "example.com"),
        ("${NOBODY:-other}", "other"),
        ("${env:NOBODY:-other}", "other"),
        ("${NOBODY:-}", ""),
        ("${EMPTY}", ""),
        ("${EMPTY:-other}", "other"),
        ("${NOBODY:-a b:c-d$}", "a b:c-d$"),
        ("$${HOST}", "${HOST}"),
        ("$HOST and $ and $$", "$HOST and $ and $$"),
        ("${HOST}${HOST}", "example.comexample.com"),
        ("${#array} ${x%.*} ${X:0:3} ${}", "${#array} ${x%.*} ${X:0:3} ${}"),
    ],
)
def test_a_text_expands(text: str, expected_text: str) -> None:
    result = expand_variables(text, ENV)
    assert (result.text, result.faults) == (expected_text, ())


def test_values_of_variables_are_not_expanded_again() -> None:
    assert expand_variables("${TOKEN}", ENV).text == "a${HOST}b"


def test_every_missing_variable_is_named() -> None:
    result = expand_variables("${ONE}/${TWO}/${HOST}", ENV)
    assert [("ONE" in fault, "TWO" in fault) for fault in result.faults] == [(True, False), (False, True)]


def test_variables_of_other_clients_are_errors() -> None:
    assert "${input:token}" in expand_variables("Bearer ${input:token}", ENV).faults[0]


def test_a_default_with_braces_is_a_fault_and_no_garbage() -> None:
    assert expand_variables("${A:-${HOST}}", ENV).faults


def test_the_names_are_those_that_would_be_looked_up() -> None:
    assert find_variable_names("${A} ${B:-x} ${env:C} $${D} ${#e}") == ("A", "B", "C")


@settings(deadline=None)
@given(st.text())
def test_a_text_without_references_stays_as_it_is(text: str) -> None:
    if "${" not in text:
        assert expand_variables(text, ENV).text == text


@settings(deadline=None)
@given(st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,5}", fullmatch=True), st.text(), min_size=1))
def test_a_variable_gives_exactly_its_value(env: dict[str, str]) -> None:
    for name, value in env.items():
        assert expand_variables(f"<${{{name}}}>", env).text == f"<{value}>"
        assert expand_variables(f"<${{env:{name}}}>", env).text == f"<{value}>"
