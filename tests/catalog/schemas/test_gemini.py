from __future__ import annotations

from typing import Any

import pytest

from toolyard.catalog.schemas.provider_schema import ProviderApi, build_provider_tool
from toolyard.types.tool import Definition


def convert_property(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the converted form of a property with this schema."""
    definition = Definition("repo", "search", input_schema={"properties": {"x": schema}})
    return build_provider_tool(definition, "repo_search", ProviderApi.GEMINI).tool["parameters"][
        "properties"
    ]["x"]


@pytest.mark.parametrize(
    ("schema", "expected_schema"),
    [
        ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        (
            {"type": ["string", "integer"], "minLength": 2, "minimum": 3},
            {"anyOf": [{"type": "string", "minLength": 2}, {"type": "integer", "minimum": 3}]},
        ),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": "string", "nullable": True}),
        (
            {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "null"}]},
            {"anyOf": [{"type": "string", "nullable": True}, {"type": "number", "nullable": True}]},
        ),
        (
            {"oneOf": [{"type": "string"}, {"type": "number"}]},
            {"anyOf": [{"type": "string"}, {"type": "number"}]},
        ),
        ({"const": "a"}, {"type": "string", "enum": ["a"]}),
        ({"type": "string", "const": "a"}, {"type": "string", "enum": ["a"]}),
        ({"anyOf": [{"const": "a"}, {"const": "b"}]}, {"type": "string", "enum": ["a", "b"]}),
        ({"enum": ["a", "", None]}, {"type": "string", "enum": ["a"], "nullable": True}),
        ({"type": "string", "enum": [""]}, {"type": "string"}),
        ({"type": "integer", "enum": [1, 2]}, {"type": "integer", "description": "One of: 1, 2."}),
        (
            {"type": "integer", "enum": [1], "description": "How."},
            {"type": "integer", "description": "How. One of: 1."},
        ),
        ({"const": True}, {"type": "boolean", "description": "One of: true."}),
        ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time"}),
        ({"type": "string", "format": "uri"}, {"type": "string"}),
        (
            {"type": "integer", "format": "int32", "exclusiveMinimum": 0},
            {"type": "integer", "format": "int32"},
        ),
        (
            {"anyOf": [{"type": "string"}, {"type": "number"}], "description": "Either."},
            {"anyOf": [{"type": "string", "description": "Either."}, {"type": "number"}]},
        ),
        (
            {"properties": {"a": {"type": "string"}}},
            {"type": "object", "properties": {"a": {"type": "string"}}},
        ),
        ({"type": "string", "properties": {"a": {}}, "required": ["a"]}, {"type": "string"}),
        ({"type": "object", "required": ["ghost"]}, {"type": "object"}),
        ({"type": "object", "additionalProperties": {"type": "string"}}, {"type": "object"}),
        (
            {"type": "array", "prefixItems": [{"type": "string"}, {"type": "string"}]},
            {"type": "array", "items": {"type": "string"}},
        ),
        (
            {"type": ["object", "null"], "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "required": ["a"],
                "nullable": True,
            },
        ),
        ({"type": "null"}, {"type": "string", "nullable": True}),
        ({"items": {"type": "string"}}, {"type": "array", "items": {"type": "string"}}),
        ({"pattern": "^a"}, {"type": "string", "pattern": "^a"}),
    ],
)
def test_a_schema_is_said_in_the_words_that_gemini_knows(
    schema: dict[str, Any], expected_schema: dict[str, Any]
) -> None:
    assert convert_property(schema) == expected_schema


def test_anything_is_one_of_the_types_there_are() -> None:
    branches = convert_property({"description": "Any."})["anyOf"]
    assert [branch["type"] for branch in branches] == ["string", "number", "boolean", "object", "array"]
    assert branches[0]["description"] == "Any."
    assert branches[-1]["items"]["anyOf"]


def test_alternatives_that_only_require_are_folded_into_their_object() -> None:
    gemini_schema = convert_property(
        {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        }
    )
    assert set(gemini_schema["properties"]) == {"a", "b"}
    assert gemini_schema["description"] == "Give one of these: a; or b."
    assert "required" not in gemini_schema
