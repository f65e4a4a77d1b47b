"""Whether a value fits a schema: what is said against it is true, and all of it is bounded."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolyard.results.schema_check import find_schema_mismatch

NESTED_SCHEMA = {
    "type": "object",
    "required": ["items", "total"],
    "properties": {
        "total": {"type": "integer", "minimum": 0},
        "items": {"type": "array", "maxItems": 2, "items": {"$ref": "#/$defs/item"}},
    },
    "$defs": {"item": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}},
}


@pytest.mark.parametrize(
    ("value", "schema", "words"),
    [
        ([], NESTED_SCHEMA, "$ is not of type object"),
        ({"total": 1}, NESTED_SCHEMA, "$ has no items"),
        ({}, NESTED_SCHEMA, "$ has no items, total"),
        ({"items": [], "total": -1}, NESTED_SCHEMA, "$.total is less than 0"),
        ({"items": [], "total": 1.5}, NESTED_SCHEMA, "$.total is not of type integer"),
        ({"items": [{}], "total": 1}, NESTED_SCHEMA, "$.items[0] has no name"),
        ({"items": [{"name": 3}], "total": 1}, NESTED_SCHEMA, "$.items[0].name is not of type string"),
        ({"items": [{"name": "a"}] * 3, "total": 1}, NESTED_SCHEMA, "$.items is too long"),
        ("c", {"enum": ["a", "b"]}, "$ is not one of the allowed values"),
        ("c", {"const": "a"}, "$ is not one of the allowed values"),
        ("c", {"anyOf": [{"type": "null"}, {"type": "integer"}]}, "$ matches no branch of anyOf"),
        ("c", {"type": ["null", "integer"]}, "$ is not of type null or integer"),
        ("c", {"allOf": [{"type": "string"}, {"minLength": 2}]}, "$ is too short"),
        ({"a": 1}, {"additionalProperties": False}, "$.a is not allowed"),
        ({"a": 1}, {"additionalProperties": {"type": "string"}}, "$.a is not of type string"),
        ([1, 2], {"prefixItems": [{"type": "integer"}], "items": False}, "$[1] is not allowed"),
        (True, {"type": "integer"}, "$ is not of type integer"),
        ({"x" * 100: 1}, {"additionalProperties": False}, f"$.{'x' * 60}… is not allowed"),
    ],
)
def test_invalid_values_are_reported_with_their_place(value: object, schema: Any, words: str) -> None:
    assert find_schema_mismatch(value, schema) == words


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ({"items": [{"name": "a"}], "total": 2.0}, NESTED_SCHEMA),
        ("c", True),
        ("c", "no schema"),
        ("c", {"type": "something else"}),
        ("c", {"type": 3, "enum": "c", "required": {}, "properties": [], "anyOf": {}, "minLength": "x"}),
        ("c", {"$ref": "https://elsewhere.example/schema"}),
        ("c", {"$ref": "#/nowhere"}),
        ("c", {"$ref": "#"}),
        ("c", {"anyOf": [{"$ref": "#"}, {"type": "integer"}]}),
        ({"a": 1}, {"patternProperties": {"^a": {}}, "additionalProperties": False}),
        ("c", {"enum": list(range(100_000))}),
        ([1] * 100_000, {"items": {"allOf": [{"type": "integer"}] * 200}}),
    ],
)
def test_values_not_known_to_be_invalid_are_valid(value: object, schema: object) -> None:
    assert find_schema_mismatch(value, schema) is None


def test_endlessly_nested_values_are_checked_up_to_a_limit() -> None:
    value: object = 1
    for _ in range(5_000):
        value = [value]
    assert find_schema_mismatch(value, {"type": ["array", "integer"], "items": {"$ref": "#"}}) is None


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.0, 1.5, 2.0])
    | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
KINDS = st.sampled_from(["null", "boolean", "object", "array", "string", "number", "integer"])
SIZES = st.integers(0, 3)


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": KINDS | st.lists(KINDS, min_size=1, max_size=3, unique=True),
            "enum": st.lists(VALUES, min_size=1, max_size=3),
            "const": VALUES,
            "minimum": SIZES,
            "exclusiveMaximum": SIZES,
            "minLength": SIZES,
            "maxItems": SIZES,
            "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
            "additionalProperties": inner,
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
            "$ref": st.sampled_from(["#", "#/properties/a", "#/items"]),
        },
    )


@settings(max_examples=300)
@given(VALUES, st.recursive(st.booleans(), _schemas, max_leaves=5))
def test_valid_values_have_no_problems(value: object, schema: Any) -> None:
    try:
        fits = jsonschema_rs.validator_for(schema).is_valid(value)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError):
        return
    if fits:
        assert find_schema_mismatch(value, schema) is None
