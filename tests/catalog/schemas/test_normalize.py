from __future__ import annotations

import copy
from typing import Any

import pytest

from toolyard.catalog.schemas.normalize import normalize_schema


def plain(schema: dict[str, Any]) -> dict[str, Any]:
    before = copy.deepcopy(schema)
    result, _ = normalize_schema(schema)
    assert schema == before
    return result


def nest_list(levels: int) -> list[Any]:
    inner: list[Any] = []
    for _ in range(levels):
        inner = [inner]
    return inner


def notes(schema: dict[str, Any]) -> list[str]:
    return normalize_schema(schema)[1]


@pytest.mark.parametrize(
    ("reference", "definitions"),
    [
        ("#/$defs/point", {"$defs": {"point": {"type": "number"}}}),
        ("#/definitions/point", {"definitions": {"point": {"type": "number"}}}),
        ("#/$defs/a~1b~0c", {"$defs": {"a/b~c": {"type": "number"}}}),
        ("#/$defs/a%20b", {"$defs": {"a b": {"type": "number"}}}),
        ("#point", {"$defs": {"x": {"$anchor": "point", "type": "number"}}}),
        ("#/anyOf/1", {"anyOf": [{"type": "string"}, {"type": "number"}]}),
    ],
)
def test_a_reference_within_the_schema_is_replaced_by_its_target(
    reference: str, definitions: dict[str, Any]
) -> None:
    result = plain({"properties": {"x": {"$ref": reference}}, **definitions})
    assert result["properties"]["x"]["type"] == "number"
    assert "$defs" not in result
    assert "definitions" not in result


def test_keywords_beside_a_reference_win() -> None:
    result = plain(
        {
            "properties": {"x": {"$ref": "#/$defs/p", "description": "Mine."}},
            "$defs": {"p": {"type": "number", "description": "Theirs.", "minimum": 1}},
        }
    )
    assert result["properties"]["x"] == {"description": "Mine.", "type": "number", "minimum": 1}


def test_a_property_may_be_called_ref() -> None:
    schema = {"properties": {"$ref": {"type": "string"}, "anyOf": {"type": "number"}}}
    assert plain(schema) == schema


def test_data_that_looks_like_a_schema_is_left_alone() -> None:
    schema = {
        "properties": {"x": {"const": {"$ref": "#"}, "default": {"$ref": "#"}, "enum": [{"$ref": "#"}]}}
    }
    assert plain(schema) == schema


def test_a_recursive_schema_ends_in_any_object_and_says_so() -> None:
    tree = {
        "type": "object",
        "properties": {"value": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}},
    }
    assert plain(tree)["properties"]["children"]["items"] == {"type": "object"}
    assert notes(tree) == ["$ref '#' refers to itself; the recursion ends in any object"]


def test_a_mutual_recursion_ends_too() -> None:
    result = plain(
        {
            "$ref": "#/$defs/a",
            "$defs": {
                "a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/b"}}},
                "b": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}},
            },
        }
    )
    assert result["properties"]["b"]["properties"]["a"] == {"type": "object"}


@pytest.mark.parametrize(
    "reference", ["https://example.org/s.json", "file:///etc/passwd", "other.json#/x", "//host/x"]
)
def test_a_reference_to_elsewhere_is_never_fetched(reference: str) -> None:
    schema = {"properties": {"x": {"$ref": reference, "description": "Kept."}}}
    assert plain(schema)["properties"]["x"] == {"description": "Kept."}
    assert notes(schema) == [f"$ref '{reference}' is outside the schema and is never fetched"]


def test_a_reference_to_nothing_accepts_anything_and_says_so() -> None:
    assert notes({"properties": {"x": {"$ref": "#/$defs/none"}}}) == ["$ref '#/$defs/none' refers to nothing"]


@pytest.mark.parametrize("key", ["not", "if"])
def test_a_reference_to_elsewhere_never_turns_into_a_ban(key: str) -> None:
    result = plain({"properties": {"x": {"type": "string", key: {"$ref": "https://example.org/s"}}}})
    assert result["properties"]["x"] == {"type": "string"}


def test_exactly_one_of_several_becomes_any_where_one_was_widened() -> None:
    branches = [{"type": "string"}, {"$ref": "https://example.org/s"}]
    assert plain({"properties": {"x": {"oneOf": branches}}})["properties"]["x"] == {
        "anyOf": [{"type": "string"}, {}]
    }
    sound = [{"type": "string"}, {"type": "number"}]
    assert plain({"properties": {"x": {"oneOf": sound}}})["properties"]["x"] == {"oneOf": sound}


def test_references_that_double_each_other_do_not_fill_the_memory() -> None:
    bomb: dict[str, Any] = {"d0": {"type": "string"}}
    for level in range(1, 60):
        pair = {"$ref": f"#/$defs/d{level - 1}"}
        bomb[f"d{level}"] = {"type": "object", "properties": {"l": pair, "r": pair}}
    result, notes = normalize_schema({"properties": {"x": {"$ref": "#/$defs/d59"}}, "$defs": bomb})
    assert "the schema is too large with its references expanded; it was truncated" in notes
    assert len(repr(result)) < 5_000_000


@pytest.mark.parametrize("heavy", [{"enum": list(range(9000))}, {"description": "x" * 500_000}])
def test_references_to_something_heavy_do_not_fill_the_memory(heavy: dict[str, Any]) -> None:
    properties = {f"p{number}": {"$ref": "#/$defs/heavy"} for number in range(500)}
    result, notes = normalize_schema({"properties": properties, "$defs": {"heavy": heavy}})
    assert notes
    assert len(repr(result)) < 5_000_000


@pytest.mark.parametrize("data", [list(range(20_000)), nest_list(40), {"a": nest_list(200)}])
def test_data_that_is_too_large_or_too_deep_is_left_out_alone(data: Any) -> None:
    result, notes = normalize_schema(
        {"properties": {"x": {"type": "string", "default": data}, "y": {"type": "number"}}}
    )
    assert result["properties"] == {"x": {"type": "string"}, "y": {"type": "number"}}
    assert len(notes) == 1


def test_a_long_chain_of_references_does_not_exhaust_the_stack() -> None:
    chain = {f"d{number}": {"$ref": f"#/$defs/d{number + 1}"} for number in range(5000)}
    assert notes({"$ref": "#/$defs/d0", "$defs": chain})


def test_all_of_becomes_one() -> None:
    result = plain(
        {
            "allOf": [
                {"properties": {"a": {"type": "string"}}, "required": ["a"]},
                {"properties": {"b": {"minimum": 1}}, "required": ["b", "a"]},
            ],
            "properties": {"b": {"type": "number", "minimum": 0}},
        }
    )
    assert result["properties"] == {"b": {"type": "number", "minimum": 1}, "a": {"type": "string"}}
    assert result["required"] == ["a", "b"]
    assert "allOf" not in result


def test_all_of_keeps_the_intersection() -> None:
    both = plain(
        {"allOf": [{"type": ["string", "number"], "enum": [1, 2, 3]}, {"type": "integer", "enum": [2, 3, 4]}]}
    )
    assert both == {"type": "integer", "enum": [2, 3]}


def test_older_drafts_are_brought_up_to_date() -> None:
    result = plain(
        {
            "properties": {
                "pair": {"items": [{"type": "string"}, {"type": "number"}], "additionalItems": False},
                "maybe": {"type": "string", "nullable": True, "enum": ["a"]},
                "least": {"minimum": 3, "exclusiveMinimum": True},
                "own": {"type": "string", "required": True},
            },
            "dependencies": {"a": ["b"], "c": {"required": ["d"]}},
        }
    )
    assert result["properties"] == {
        "pair": {"prefixItems": [{"type": "string"}, {"type": "number"}], "items": {"not": {}}},
        "maybe": {"type": ["string", "null"], "enum": ["a", None]},
        "least": {"minimum": 3},
        "own": {"type": "string"},
    }
    assert result["dependentRequired"] == {"a": ["b"]}
    assert result["dependentSchemas"] == {"c": {"required": ["d"]}}


def test_true_and_false_as_schemas_are_understood() -> None:
    result = plain({"properties": {"any": True, "never": False}, "additionalProperties": False})
    assert result == {"properties": {"any": {}}, "additionalProperties": False}


@pytest.mark.parametrize(
    "broken",
    [
        {"type": {"a": 1}},
        {"type": ["wat", 5, "string"]},
        {"required": [1, {}, "a"]},
        {"properties": {"a": "string"}},
        {"enum": "abc"},
        {"anyOf": {}},
        {"anyOf": []},
        {"items": 5},
        {"description": 5},
        {"minimum": "1"},
        {"dependencies": []},
        {"$ref": 5},
        {"allOf": [5]},
        {"$ref": "#/allOf/99999999999999999999"},
    ],
)
def test_a_keyword_of_the_wrong_shape_breaks_nothing(broken: dict[str, Any]) -> None:
    result, _ = normalize_schema(broken)
    assert isinstance(result, dict)
    assert "wat" not in repr(result)


def test_nothing_of_the_result_belongs_to_the_server() -> None:
    schema: dict[str, Any] = {
        "properties": {"x": {"enum": [["a"]], "default": {"k": []}, "type": ["string", "null"]}},
        "required": ["x"],
    }
    before = copy.deepcopy(schema)
    result, _ = normalize_schema(schema)
    result["required"].append("y")
    result["properties"]["x"]["enum"][0].append("b")
    result["properties"]["x"]["default"]["k"].append(1)
    result["properties"]["x"]["type"].append("number")
    assert schema == before
