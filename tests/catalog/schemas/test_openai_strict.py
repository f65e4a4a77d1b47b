from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolyard.catalog.schemas.provider_schema import ProviderApi, ProviderTool, build_provider_tool
from toolyard.types.tool import Definition

Rules = dict[str, Callable[[dict[str, Any]], None]]


def strict(schema: dict[str, Any]) -> ProviderTool:
    return build_provider_tool(
        Definition("repo", "search", input_schema=schema), "repo_search", ProviderApi.OPENAI_STRICT
    )


def parameters(schema: dict[str, Any]) -> dict[str, Any]:
    strict_tool = strict(schema)
    assert strict_tool.strict, strict_tool.notes
    assert strict_tool.tool["function"]["strict"] is True
    return strict_tool.tool["function"]["parameters"]


def test_every_object_is_closed_and_every_property_required(rules: Rules) -> None:
    result = parameters(
        {
            "type": "object",
            "properties": {
                "at": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
                "tags": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"t": {"type": "string"}}},
                },
            },
            "required": ["at"],
        }
    )
    rules["strict"](result)
    assert result["required"] == ["at", "tags"]
    assert result["properties"]["tags"]["type"] == ["array", "null"]
    assert result["properties"]["at"]["type"] == "object"
    assert result["properties"]["tags"]["items"]["properties"]["t"]["type"] == ["string", "null"]


@pytest.mark.parametrize(
    ("schema", "expected_schema"),
    [
        ({"type": "string"}, {"type": ["string", "null"]}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        ({"type": "string", "enum": ["a"]}, {"enum": ["a", None], "type": ["string", "null"]}),
        ({"enum": ["a", None]}, {"enum": ["a", None]}),
        ({"enum": ["a"]}, {"anyOf": [{"enum": ["a"]}, {"type": "null"}]}),
        ({"const": "a"}, {"anyOf": [{"const": "a"}, {"type": "null"}]}),
        (
            {"anyOf": [{"type": "string"}, {"type": "number"}], "description": "Either."},
            {
                "description": "Either.",
                "anyOf": [{"type": "string"}, {"type": "number"}, {"type": "null"}],
            },
        ),
        (
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
        ),
    ],
)
def test_an_optional_property_may_be_null(schema: dict[str, Any], expected_schema: dict[str, Any]) -> None:
    assert parameters({"properties": {"x": schema}})["properties"]["x"] == expected_schema


def test_keywords_that_strict_mode_does_not_know_are_dropped() -> None:
    x = {
        "type": "string",
        "minLength": 1,
        "pattern": "^(?=a)",
        "format": "uri",
        "default": "a",
        "examples": ["a"],
        "not": {"const": "b"},
    }
    y = {"type": "string", "pattern": "^a", "format": "date"}
    assert parameters({"properties": {"x": x, "y": y}, "required": ["x", "y"]})["properties"] == {
        "x": {"type": "string"},
        "y": {"type": "string", "pattern": "^a", "format": "date"},
    }


def test_a_tool_without_parameters_is_strict() -> None:
    for schema in ({}, {"type": "object"}, {"additionalProperties": False}, {"additionalProperties": True}):
        assert parameters(schema) == {
            "type": "object",
            "properties": {},
            "required": [],
            "additionalProperties": False,
        }


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"properties": {"m": {"type": "object"}}}, "m allows properties with any name"),
        (
            {"properties": {"m": {"type": "object", "additionalProperties": {"type": "string"}}}},
            "m allows properties with any name",
        ),
        (
            {"properties": {"a": {"type": "string"}}, "additionalProperties": True},
            "the root allows properties with any name",
        ),
        ({"properties": {"a": {}}}, "a accepts any value"),
        ({"properties": {"a": {"type": "array"}}}, "a does not define its items"),
        ({"properties": {"a": {"oneOf": [{"type": "string"}]}}}, "a uses oneOf"),
        ({"properties": {"a": {"type": "array", "items": {"oneOf": [{}]}}}}, "a.* uses oneOf"),
        (
            {"properties": {"a": {"type": "object", "patternProperties": {"^x": {}}}}},
            "a uses patternProperties",
        ),
        ({"properties": {"a": {"type": "string"}}, "required": ["b"]}, "the root requires a property"),
        ({"oneOf": [{"required": ["a"]}], "properties": {"a": {"type": "string"}}}, "the alternatives"),
        ({"properties": {"a": {"$ref": "#"}}}, "$ref '#' refers to itself"),
        ({"properties": {"a": {"$ref": "https://x.org/s"}}}, "$ref 'https://x.org/s' is outside"),
        (
            {
                "properties": {
                    "a": {
                        "type": "object",
                        "properties": {"b": {"type": "string"}},
                        "anyOf": [{"required": ["b"]}],
                    }
                }
            },
            "a has both anyOf and properties",
        ),
        ({"properties": {"a": {"enum": list(range(1001))}}}, "the schema has more than 1000 enum values"),
        (
            {"properties": {f"p{number}": {"type": "string"} for number in range(5001)}},
            "the schema has more than 5000 properties",
        ),
        (
            {"properties": {"x" * 120_001: {"type": "string"}}},
            "the schema's property names and enum values exceed",
        ),
    ],
)
def test_schemas_without_a_strict_form_fall_back_with_a_reason(
    schema: dict[str, Any], reason: str, rules: Rules
) -> None:
    strict_tool = strict(schema)
    assert not strict_tool.strict
    assert strict_tool.tool["function"]["strict"] is False
    assert strict_tool.notes[0].startswith(f"not strict: {reason}")
    rules["openai"](strict_tool.tool)


def test_ten_levels_are_strict_and_eleven_are_not() -> None:
    def levels(count: int) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "string"}
        for _ in range(count):
            schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
        return schema

    assert strict(levels(10)).strict
    assert strict(levels(11)).notes == ("not strict: the schema has more than 10 levels of objects",)


def test_a_null_that_only_the_strict_form_allows_is_taken_out_of_the_arguments() -> None:
    strict_tool = strict(
        {
            "properties": {
                "city": {"type": "string"},
                "note": {"type": ["string", "null"]},
                "at": {"type": "object", "properties": {"x": {"type": "number"}}},
                "list": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"y": {"type": "number"}}},
                },
            }
        }
    )
    assert strict_tool.arguments(
        {"city": None, "note": None, "at": {"x": None}, "list": [{"y": None}, {"y": 1}]}
    ) == {"note": None, "at": {}, "list": [{}, {"y": 1}]}
    assert strict_tool.arguments({"city": "Bonn", "at": None, "list": None}) == {"city": "Bonn"}


def test_arguments_for_another_view_stay_as_they_are() -> None:
    other = build_provider_tool(
        Definition("s", "t", input_schema={"properties": {"a": {}}}), "s_t", ProviderApi.ANTHROPIC
    )
    assert other.arguments({"a": None}) == {"a": None}


# A property: arguments accepted by the strict form are, without the nulls that we added, valid for the
# server.
leaves = st.sampled_from(
    [
        {"type": "string"},
        {"type": "integer"},
        {"type": ["string", "null"]},
        {"type": "string", "enum": ["a", "b"]},
        {"const": 1},
        {"enum": ["x", None, 2]},
        {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    ]
)


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda properties, required_names: {
            "type": "object",
            "properties": properties,
            "required": [name for name in properties if name in required_names],
        },
        st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=4),
        st.sets(st.sampled_from("abcd")),
    )


sound = st.recursive(
    leaves,
    lambda inner: objects(inner) | st.builds(lambda items: {"type": "array", "items": items}, inner),
    max_leaves=8,
)


def instances(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """A strategy for values that a strict schema of the kinds above accepts."""
    if "anyOf" in schema:
        return st.one_of([instances(branch) for branch in schema["anyOf"]])
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return st.one_of([_of_kind(kind, schema) for kind in kinds])


def _of_kind(kind: str, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if kind == "object":
        return st.fixed_dictionaries({key: instances(value) for key, value in schema["properties"].items()})
    if kind == "array":
        return st.lists(instances(schema["items"]), max_size=3)
    return {"string": st.text(max_size=3), "integer": st.integers(0, 5), "null": st.none()}[kind]


@settings(deadline=None)
@given(st.data())
def test_the_server_accepts_every_strict_call(data: st.DataObject) -> None:
    raw = data.draw(objects(sound))
    strict_tool = strict(raw)
    assert strict_tool.strict
    schema = strict_tool.tool["function"]["parameters"]
    arguments = data.draw(instances(schema))
    jsonschema_rs.validator_for(schema).validate(arguments)
    jsonschema_rs.validator_for(raw).validate(strict_tool.arguments(arguments))
