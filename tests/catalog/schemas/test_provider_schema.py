from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolyard.catalog.schemas.provider_schema import ProviderApi, build_provider_tool
from toolyard.types.tool import Definition

Define = Callable[..., Definition]
Rules = dict[str, Callable[[dict[str, Any]], None]]

CITY = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Where."},
        "days": {"type": "integer", "default": 3, "minimum": 1},
    },
    "required": ["city"],
}


def parameters(define: Define, schema: dict[str, Any], provider: ProviderApi) -> dict[str, Any]:
    tool = build_provider_tool(define(schema), "repo_search", provider).tool
    inner = tool.get("function", tool)
    return inner.get("parameters") or inner["input_schema"]


def test_openai_gets_a_function(define: Define) -> None:
    provider_tool = build_provider_tool(
        define(CITY, description="Forecast."), "repo_search", ProviderApi.OPENAI
    )
    assert provider_tool.tool == {
        "type": "function",
        "function": {
            "name": "repo_search",
            "description": "Forecast.",
            "parameters": {key: CITY[key] for key in ("type", "properties", "required")},
        },
    }
    assert provider_tool.notes == ()


def test_openai_responses_gets_a_flat_function_that_is_not_strict(define: Define) -> None:
    tool = build_provider_tool(define(CITY), "repo_search", ProviderApi.OPENAI_RESPONSES).tool
    assert set(tool) == {"type", "name", "description", "parameters", "strict"}
    assert tool["strict"] is False


def test_anthropic_gets_an_input_schema(define: Define) -> None:
    tool = build_provider_tool(define(CITY), "repo_search", ProviderApi.ANTHROPIC).tool
    assert set(tool) == {"name", "description", "input_schema"}
    assert tool["input_schema"]["properties"] == CITY["properties"]


def test_gemini_gets_a_declaration(define: Define) -> None:
    tool = build_provider_tool(define(CITY, description="Forecast."), "repo_search", ProviderApi.GEMINI).tool
    assert tool == {
        "name": "repo_search",
        "description": "Forecast.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Where."},
                "days": {"type": "integer", "minimum": 1},
            },
            "required": ["city"],
        },
    }


def test_a_title_stands_in_for_a_missing_description(define: Define) -> None:
    tool = build_provider_tool(define(CITY, title="Weather"), "repo_search", ProviderApi.ANTHROPIC).tool
    assert tool["description"] == "Weather"


@pytest.mark.parametrize("provider", ProviderApi)
def test_a_tool_without_parameters_has_an_empty_object(
    define: Define, provider: ProviderApi, rules: Rules
) -> None:
    for schema in ({}, {"type": "object"}, {"type": "object", "properties": {}}):
        provider_tool = build_provider_tool(define(schema), "repo_search", provider)
        rules[provider](provider_tool.tool)
        assert parameters(define, schema, provider)["properties"] == {}


@pytest.mark.parametrize("provider", [ProviderApi.OPENAI, ProviderApi.ANTHROPIC, ProviderApi.GEMINI])
def test_alternatives_at_the_root_become_one_object(
    define: Define, provider: ProviderApi, rules: Rules
) -> None:
    schema = {
        "type": "object",
        "properties": {"id": {"type": "string"}},
        "required": ["id"],
        "anyOf": [
            {"properties": {"content": {"type": "string"}}, "required": ["content"]},
            {"properties": {"url": {"type": "string"}}, "required": ["url"]},
        ],
    }
    provider_tool = build_provider_tool(define(schema), "repo_search", provider)
    rules[provider](provider_tool.tool)
    result = parameters(define, schema, provider)
    assert set(result["properties"]) == {"id", "content", "url"}
    assert result["required"] == ["id"]
    assert result["description"] == "Give one of these: content; or url."
    assert "additionalProperties" not in result
    assert provider_tool.notes == ("the alternatives at the root were merged into one object",)


def test_properties_required_by_every_alternative_stay_required_and_marks_become_an_enum(
    define: Define,
) -> None:
    schema = {
        "oneOf": [
            {
                "properties": {"kind": {"type": "string", "const": "a"}, "x": {"type": "string"}},
                "required": ["kind", "x"],
                "additionalProperties": False,
            },
            {
                "properties": {"kind": {"type": "string", "const": "b"}, "x": {"type": "number"}},
                "required": ["x", "kind"],
                "additionalProperties": False,
            },
        ]
    }
    result = parameters(define, schema, ProviderApi.OPENAI)
    assert result["properties"]["kind"] == {"type": "string", "enum": ["a", "b"]}
    assert result["properties"]["x"] == {"anyOf": [{"type": "string"}, {"type": "number"}]}
    assert result["required"] == ["kind", "x"]
    assert result["additionalProperties"] is False
    assert "description" not in result


def test_an_alternative_that_is_not_an_object_is_omitted(define: Define) -> None:
    schema = {"anyOf": [{"type": "string"}, {"properties": {"a": {}}, "required": ["a"]}]}
    result = parameters(define, schema, ProviderApi.OPENAI)
    assert set(result["properties"]) == {"a"}
    assert result["required"] == ["a"]


def test_nothing_is_said_where_an_alternative_requires_nothing(define: Define) -> None:
    schema = {"properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}, {}]}
    assert "description" not in parameters(define, schema, ProviderApi.OPENAI)


@pytest.mark.parametrize("provider", ProviderApi)
def test_a_note_repeats_nothing_that_deceives_a_terminal(define: Define, provider: ProviderApi) -> None:
    schema = {"properties": {"\x1b[2J": {"$ref": "\x1b[2J"}, "\u202e": {"oneOf": [{}]}}}
    provider_tool = build_provider_tool(define(schema), "repo_search", provider)
    assert provider_tool.notes
    assert all(note.isprintable() for note in provider_tool.notes)


def test_an_array_without_an_item_schema_may_hold_anything(define: Define) -> None:
    schema = {
        "properties": {
            "list": {"type": "array"},
            "pair": {"prefixItems": [{"type": "string"}, {"type": "number"}]},
        }
    }
    result = parameters(define, schema, ProviderApi.OPENAI)
    assert result["properties"]["list"] == {"type": "array", "items": {}}
    assert result["properties"]["pair"] == {"items": {"anyOf": [{"type": "string"}, {"type": "number"}]}}
    assert parameters(define, schema, ProviderApi.ANTHROPIC)["properties"] == schema["properties"]


def test_anthropic_does_not_get_arguments_with_invalid_names(define: Define) -> None:
    schema = {"properties": {"ok": {}, "not ok": {}, "x" * 65: {}}, "required": ["ok", "not ok"]}
    provider_tool = build_provider_tool(define(schema), "repo_search", ProviderApi.ANTHROPIC)
    assert provider_tool.tool["input_schema"]["properties"] == {"ok": {}}
    assert provider_tool.tool["input_schema"]["required"] == ["ok"]
    assert len(provider_tool.notes) == 2


scraps = st.sampled_from(
    [None, True, False, 0, -1.5, 2**70, "", "a", "object", [], {}, [1], ["a"], [{}], {"a": 1}, {"$ref": "#"}]
)
words = st.sampled_from(["a", "b", "c d", "$ref"])
refs = st.sampled_from(["#", "#/$defs/a", "#/$defs/b", "#/properties/a", "https://x.org/s", "#none"])
types = st.sampled_from(["string", "number", "integer", "boolean", "object", "array", "null"])


def schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": types | st.lists(types, max_size=3) | scraps,
            "description": st.text(max_size=5),
            "properties": st.dictionaries(words, inner, max_size=3) | scraps,
            "required": st.lists(words, max_size=3) | scraps,
            "additionalProperties": inner | st.booleans(),
            "patternProperties": st.dictionaries(words, inner, max_size=1),
            "items": inner | st.lists(inner, max_size=2),
            "prefixItems": st.lists(inner, max_size=2),
            "anyOf": st.lists(inner, max_size=3) | scraps,
            "oneOf": st.lists(inner, max_size=3),
            "allOf": st.lists(inner, max_size=3),
            "not": inner,
            "if": inner,
            "enum": st.lists(scraps, max_size=3) | scraps,
            "const": scraps,
            "default": scraps,
            "format": st.sampled_from(["date-time", "uri", "int32"]),
            "pattern": st.sampled_from(["^a", "(?=a)"]),
            "minimum": scraps,
            "nullable": st.booleans(),
            "$ref": refs | scraps,
            "$defs": st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2) | scraps,
        },
    )


hostile = st.recursive(scraps, schemas, max_leaves=8)
roots = schemas(hostile)


@settings(max_examples=300, deadline=None)
@given(schema=roots)
def test_every_view_of_any_schema_keeps_the_rules_and_alters_nothing(
    rules: Rules, schema: dict[str, Any]
) -> None:
    before = copy.deepcopy(schema)
    for provider in ProviderApi:
        provider_tool = build_provider_tool(Definition("s", "t", input_schema=schema), "s_t", provider)
        rules[provider](provider_tool.tool)
        if provider_tool.strict:
            rules["strict"](provider_tool.tool["function"]["parameters"])
        json.dumps(provider_tool.tool)
    assert schema == before


def nest(levels: int, inner: Any, wrap: Callable[[Any], Any]) -> Any:
    for _ in range(levels):
        inner = wrap(inner)
    return inner


@pytest.mark.parametrize("provider", ProviderApi)
@pytest.mark.parametrize(
    "schema",
    [
        nest(120, {"type": "object"}, lambda inner: {"properties": {"a": inner}}),
        nest(120, {"type": "string"}, lambda inner: {"type": "array", "items": inner}),
        nest(120, {"type": "object"}, lambda inner: {"anyOf": [inner]}),
        nest(120, {"type": "object"}, lambda inner: {"allOf": [inner]}),
        {"properties": {"x": {"const": nest(240, 1, lambda inner: [inner])}}},
        {"properties": {"x": {"enum": nest(240, [1], lambda inner: [inner])}}},
    ],
    ids=["properties", "items", "anyOf", "allOf", "const", "enum"],
)
def test_the_deepest_schema_that_is_let_in_has_a_view(
    provider: ProviderApi, schema: dict[str, Any], rules: Rules
) -> None:
    provider_tool = build_provider_tool(Definition("s", "t", input_schema=schema), "s_t", provider)
    rules[provider](provider_tool.tool)


# A property: a view that is not strict never forbids what its server allows. Alternatives at the root and
# tuples are excepted, because providers cannot express them.
limits = st.sampled_from(
    [
        {"type": "string", "minLength": 1},
        {"type": "integer", "minimum": 0, "exclusiveMaximum": 4},
        {"type": ["string", "null"]},
        {"enum": ["a", 1, None]},
        {"const": True},
        {"$ref": "#/$defs/s"},
        {"$ref": "#/$defs/n", "minimum": 1},
        {"$ref": "#"},
        True,
        {},
    ]
)


def compose_schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    properties = st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    required_names = st.lists(st.sampled_from("abc"), max_size=2, unique=True)
    return st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": properties},
            optional={"required": required_names, "additionalProperties": st.booleans() | inner},
        ),
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"oneOf": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=3)}),
    )


values = st.recursive(
    st.sampled_from([None, True, 0, 1, 2, "", "a", "b"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(st.sampled_from("abc"), values, max_size=3)
definitions = {"s": {"type": "string"}, "n": {"type": "number", "maximum": 3}}


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.sampled_from("abc"), st.recursive(limits, compose_schemas, max_leaves=6), max_size=3),
    st.lists(st.sampled_from("abc"), max_size=2, unique=True),
    st.lists(arguments, min_size=1, max_size=5),
)
def test_a_view_that_is_not_strict_allows_all_that_the_server_allows(
    properties: dict[str, Any], required_names: list[str], candidates: list[Any]
) -> None:
    raw = {"type": "object", "properties": properties, "required": required_names, "$defs": definitions}
    accepts = jsonschema_rs.validator_for(raw).is_valid
    definition = Definition("s", "t", input_schema=raw)
    seen_schemas = [
        build_provider_tool(definition, "s_t", ProviderApi.OPENAI).tool["function"]["parameters"],
        build_provider_tool(definition, "s_t", ProviderApi.ANTHROPIC).tool["input_schema"],
    ]
    for candidate in candidates:
        if accepts(candidate):
            for schema in seen_schemas:
                jsonschema_rs.validator_for(schema).validate(candidate)
