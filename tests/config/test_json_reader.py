from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toolyard.config.sources.json_document import MAX_JSON_DEPTH, format_path, read_json
from toolyard.errors import ConfigError

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(10**300), max_value=10**300)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=30,
)


def error_of(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as exc_info:
        read_json(text, file="some.json")
    return exc_info.value


@settings(deadline=None)
@given(values, st.sampled_from([None, 0, 2]), st.booleans())
def test_output_of_the_standard_library_is_read_alike(
    value: Any, indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert read_json(text).root == json.loads(text)


@settings(deadline=None)
@given(values)
def test_comments_and_trailing_commas_change_nothing(value: Any) -> None:
    text = json.dumps({"first": [value, 1], "second": {"third": value}}, indent=1)
    commented_text = text.replace("\n", ' // a comment, with "quotes" and }\n/* [another * one */\n')
    trailing = commented_text.rstrip()
    assert read_json(f"// at the top\n{trailing}\n// at the end").root == json.loads(text)
    assert read_json(f'{{"a": [{json.dumps(value)}, /* x */ ], }}').root == {"a": [value]}


@settings(deadline=None)
@given(st.text())
@example("{" * 5000)
@example("[" * 100_000)
@example('{"a":' * 5000)
@example('"\\ud800"')
@example("\ud800")
@example("/*")
@example("1" * 10_000)
@example("1e" + "9" * 400)
@example('"' + "\\u0000" * 100)
def test_arbitrary_text_is_read_or_refused_with_a_config_error(text: str) -> None:
    try:
        reply_text = json.dumps(read_json(text).root)
    except ConfigError as error:
        reply_text = str(error)
    assert reply_text


@settings(deadline=None)
@given(st.text(alphabet='{}[]",:01truefalsn/*\\ \n', max_size=40))
def test_text_that_looks_like_json_is_accepted_only_if_it_is_json_with_our_extras(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        return
    assert read_json(text).root == expected


def test_every_key_and_value_keeps_its_line_and_column() -> None:
    document = read_json('{\n  "servers": {\n    "repo":\n      {"args": ["a",\n "b"]}\n  }\n}')
    assert document.find_position(("servers",), at_key=True) == (2, 3)
    assert document.find_position(("servers",)) == (2, 14)
    assert document.find_position(("servers", "repo"), at_key=True) == (3, 5)
    assert document.find_position(("servers", "repo")) == (4, 7)
    assert document.find_position(("servers", "repo", "args", 1)) == (5, 2)
    assert document.find_position(("servers", "nobody")) is None
    assert document.find_position(("servers", "repo", "args", 7)) is None


def test_a_windows_line_ending_counts_once() -> None:
    document = read_json('{\r\n"a": 1,\r\n"b": 2\r\n}')
    assert document.find_position(("b",), at_key=True) == (3, 1)


def test_a_key_that_stands_twice_is_reported_with_both_lines() -> None:
    document = read_json('{\n"a": {"x": 1},\n"b": {\n"c": 1,\n"c": 2}}', file="some.json")
    (duplicate,) = document.duplicate_keys
    assert (duplicate.path, duplicate.line, duplicate.file) == ("b.c", 5, "some.json")
    assert "line 4" in duplicate.message


def test_two_spellings_of_one_key_are_one_key() -> None:
    assert read_json(r'{"a": 1, "\u0061": 2}').duplicate_keys


def test_many_duplicates_are_told_in_part_and_in_time() -> None:
    document = read_json("{" + '"a":1,' * 200_000 + "}")
    assert len(document.duplicate_keys) == 100


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('{\n"a": 1\n"b": 2}', 3, "expected a comma or '}', found a string"),
        ("[1,\n2", 2, "expected a comma or ']', found the end of the file"),
        ('{"a" 1}', 1, "expected ':' after the key, found a number"),
        ("{1: 2}", 1, "expected a key in double quotes or '}', found a number"),
        ("[1,,2]", 1, "expected a value, found ','"),
        ("[,]", 1, "expected a value, found ','"),
        ("{,}", 1, "found ','"),
        ('{"a": }', 1, "expected a value, found '}'"),
        ("{}\n{}", 2, "expected the end of the file, found '{'"),
        ("", 1, "expected a value, found the end of the file"),
        ("\n// nothing else", 2, "expected a value, found the end of the file"),
        ("{'a': 1}", 1, "single quotes"),
        ("{a: 1}", 1, "without quotes"),
        ('{"a": True}', 1, "without quotes"),
        ('{"a": NaN}', 1, "without quotes"),
        ('{"a": "b}', 1, "a string that is not terminated"),
        ('{"a": "b\n"}', 1, "raw line break"),
        ('{"a": "\\x41"}', 1, "without a valid JSON escape"),
        ('{"a": "\\u00g0"}', 1, "without a valid JSON escape"),
        ('{"a": "\\ud83d"}', 1, "surrogate"),
        ("{} /* never closed", 1, "an unterminated comment"),
        ("[1] #", 1, "unexpected character '#'"),
        ("[01]", 1, "expected a comma or ']', found a number"),
        ("[truely]", 1, "without quotes"),
    ],
)
def test_invalid_json_is_reported_with_its_line(text: str, line: int, words: str) -> None:
    (problem,) = error_of(text).problems
    assert problem.file == "some.json"
    assert problem.line == line
    assert words in problem.message


def test_the_column_is_told_too() -> None:
    assert "column 9" in error_of('{"a": 1 "b": 2}').problems[0].message


def test_nesting_is_limited_and_never_a_recursion_error() -> None:
    assert read_json("[" * MAX_JSON_DEPTH + "]" * MAX_JSON_DEPTH).root
    for opening in ("[", '{"a":', '[{"a":'):
        (problem,) = error_of(opening * 50_000).problems
        assert f"more than {MAX_JSON_DEPTH}" in problem.message


def test_a_syntax_error_shows_nothing_of_the_text_around_it() -> None:
    for text in (
        '{"key": "sk-secret" "x"}',
        '{"key": sk-secret}',
        '{"key": "sk-secret',
        "{\"sk-secret\": 'sk-secret'}",
    ):
        assert "sk-secret" not in str(error_of(text))


def test_paths_are_written_the_way_people_write_them() -> None:
    assert format_path(("servers", "repo", "allowTools", 0)) == "servers.repo.allowTools[0]"
    assert format_path(("servers", "my server", "url")) == "servers['my server'].url"
    assert "\x1b" not in format_path(("servers", "\x1b[2J"))
    assert len(format_path(("x" * 100_000,))) < 200
