"""Arguments as people type them."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolyard.cli.input.arguments import coerce_key_values, needs_schema, read_json_arguments
from toolyard.cli.invocation import Usage

SCHEMA: dict[str, Any] = {
    "type": "object",
    "$defs": {"size": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}},
    "properties": {
        "text": {"type": "string"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"type": ["integer", "string"]},
        "size": {"$ref": "#/$defs/size"},
        "loop": {"$ref": "#/$defs/loop"},
        "elsewhere": {"$ref": "https://example.com/schema.json"},
        "level": {"enum": [1, 2, "many"]},
        "list": {"type": "array", "items": {"type": "number"}},
        "maybe_list": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
        "box": {"allOf": [{"properties": {"a": {"type": "integer"}, "b.c": {"type": "boolean"}}}]},
        "a.b": {"type": "integer"},
        "any": {},
        "free": {"type": "object", "additionalProperties": {"type": "integer"}},
        "odd": True,
    },
}


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["text=1"], {"text": "1"}),
        (["text="], {"text": ""}),
        (["text=a=b"], {"text": "a=b"}),
        (["maybe=3"], {"maybe": 3}),
        (["maybe=null"], {"maybe": None}),
        (["either=3"], {"either": 3}),
        (["either=three"], {"either": "three"}),
        (["size=-4"], {"size": -4}),
        (["loop=x"], {"loop": "x"}),
        (["elsewhere=7"], {"elsewhere": "7"}),
        (["level=2"], {"level": 2}),
        (["level=many"], {"level": "many"}),
        (["level=few"], {"level": "few"}),
        (["list=1", "list=2.5"], {"list": [1, 2.5]}),
        (["list=[3]"], {"list": [3]}),
        (["maybe_list=null"], {"maybe_list": None}),
        (["maybe_list=a"], {"maybe_list": ["a"]}),
        (["box.a=1", "box.b.c=yes"], {"box": {"a": 1, "b.c": True}}),
        (['box={"a": 1}'], {"box": {"a": 1}}),
        (["a.b=5"], {"a.b": 5}),
        (["any=5"], {"any": "5"}),
        (["odd=5"], {"odd": "5"}),
        (["free.x=5"], {"free": {"x": 5}}),
        (["unknown.deep.er=5"], {"unknown": {"deep": {"er": "5"}}}),
        (["text:=1"], {"text": 1}),
        (['box.a:={"x": [1]}'], {"box": {"a": {"x": [1]}}}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_word_is_converted_by_the_schema(words: list[str], arguments: dict[str, Any]) -> None:
    assert coerce_key_values(words, SCHEMA) == arguments


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["word"], "expected key=value, found 'word'"),
        (["=1"], "expected key=value, found '=1'"),
        (["size=big"], "size: expected a whole number, found 'big'"),
        (["size=1.5"], "size: expected a whole number, found '1.5'"),
        (["list=x"], "list: expected a number, found 'x'"),
        (["list=nan"], "list: expected a number, found 'nan'"),
        (["list=[1"], "list: expected a JSON list, found '[1'"),
        (["free=x"], "free: expected a JSON object, found 'x'"),
        (["size:=x"], "size: not valid JSON: Expecting value: line 1 column 1 (char 0)"),
        (["any:=NaN"], "any: not valid JSON: NaN is not a valid JSON number"),
        (["any:=[1e999]"], "any: not valid JSON: 1e999 is not a valid JSON number"),
        (["size=1", "size=2"], "size was given more than once"),
        (["list:=1", "list=2"], "list was given more than once"),
        (["text=1", "text.a=2"], "text.a: 'text' already has a value, so it cannot contain other keys"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_invalid_value_is_reported_with_its_key(words: list[str], message: str) -> None:
    with pytest.raises(Usage) as exc_info:
        coerce_key_values(words, SCHEMA)
    assert exc_info.value.cause == message


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_raw_json_arrives_as_it_is(value: Any) -> None:
    assert coerce_key_values([f"x:={json.dumps(value)}"], SCHEMA) == {"x": value}


@given(st.text())
def test_any_text_reaches_a_text_unaltered(text: str) -> None:
    assert coerce_key_values([f"text={text}"], SCHEMA) == {"text": text}


@given(st.integers())
def test_any_whole_number_is_read(number: int) -> None:
    assert coerce_key_values([f"size={number}"], SCHEMA) == {"size": number}


KEYWORDS = ["type", "enum", "const", "items", "properties", "anyOf", "allOf", "$ref", "additionalProperties"]
JUNK = st.none() | st.booleans() | st.sampled_from(["object", "array", "#/properties/x", "#", "x"])


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from(KEYWORDS),
        st.recursive(JUNK, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(KEYWORDS), inner)),
    )
)
def test_no_schema_however_odd_breaks_the_reading(schema: dict[str, Any]) -> None:
    odd = {"properties": {"x": schema, "y": {"anyOf": [schema, {"$ref": "#/properties/x"}]}}}
    for key in ("x", "y", "x.y", "x.type.y"):
        assert list(coerce_key_values([f"{key}:=1"], odd)) == [key[0]]
        with suppress(Usage):
            coerce_key_values([f"{key}=1"], odd)


def test_an_object_is_read_from_the_word_or_from_standard_input() -> None:
    assert read_json_arguments([], io.StringIO()) == {}
    assert read_json_arguments(['{"a": 1}'], io.StringIO()) == {"a": 1}
    assert read_json_arguments(["-"], io.StringIO('{"a": 1}')) == {"a": 1}
    assert not needs_schema(["-"])
    assert not needs_schema([' {"a": 1}'])
    assert needs_schema(["a=1"])


@pytest.mark.parametrize("text", ["[1]", "7", '"a"', "null", "true", "", "{", "[" * 100_000])
def test_arguments_that_are_not_an_object_are_refused(text: str) -> None:
    with pytest.raises(Usage, match="standard input: "):
        read_json_arguments(["-"], io.StringIO(text))
