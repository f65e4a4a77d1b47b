"""The rules of each provider, written independently of the code under test."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from toolyard.types.tool import Definition

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
COMBINING_KEYWORDS = {"anyOf", "oneOf", "allOf", "enum", "const", "not"}
STRICT_KEYWORDS = {
    "type", "title", "description", "properties", "required", "additionalProperties", "items", "anyOf",
    "enum", "const", "pattern", "format", "multipleOf", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "minItems", "maxItems",
}  # fmt: skip
GEMINI_KEYWORDS = {
    "type", "format", "description", "nullable", "enum", "items", "maxItems", "minItems", "properties",
    "required", "minLength", "maxLength", "pattern", "anyOf", "minimum", "maximum",
}  # fmt: skip


def subschemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the schema and every schema in it."""
    yield schema
    for key, value in schema.items():
        if key in ("properties", "patternProperties", "dependentSchemas"):
            children = list(value.values())
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            children = value
        elif key in ("items", "not", "if", "then", "else", "contains", "propertyNames"):
            children = [value]
        elif key in ("additionalProperties", "unevaluatedProperties", "unevaluatedItems"):
            children = [] if isinstance(value, bool) else [value]
        else:
            children = []
        for child in children:
            yield from subschemas(child)


def check_root(schema: dict[str, Any]) -> None:
    assert schema["type"] == "object"
    assert isinstance(schema["properties"], dict)
    assert not COMBINING_KEYWORDS & set(schema)
    for node in subschemas(schema):
        assert isinstance(node, dict)
        assert not {"$ref", "$defs", "definitions", "$schema", "$id", "allOf"} & set(node)


def check_openai(tool: dict[str, Any]) -> None:
    assert tool["type"] == "function"
    function = tool.get("function", tool)
    assert NAME.fullmatch(function["name"])
    assert isinstance(function["description"], str)
    check_root(function["parameters"])
    for node in subschemas(function["parameters"]):
        if "array" in node.get("type", ()) or node.get("type") == "array":
            assert isinstance(node["items"], dict)
        assert "prefixItems" not in node


def check_strict(schema: dict[str, Any]) -> None:
    check_root(schema)
    for node in subschemas(schema):
        assert set(node) <= STRICT_KEYWORDS
        assert {"type", "anyOf", "enum", "const"} & set(node)
        if "object" in node.get("type", ()):
            assert node["additionalProperties"] is False
            assert sorted(node["required"]) == sorted(node["properties"])
        if "array" in node.get("type", ()):
            assert node["items"]


def check_anthropic(tool: dict[str, Any]) -> None:
    assert set(tool) == {"name", "description", "input_schema"}
    assert NAME.fullmatch(tool["name"])
    check_root(tool["input_schema"])
    assert all(re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", key) for key in tool["input_schema"]["properties"])


def check_gemini(tool: dict[str, Any]) -> None:
    assert set(tool) == {"name", "description", "parameters"}
    assert tool["parameters"]["type"] == "object"
    for node in subschemas(tool["parameters"]):
        assert set(node) <= GEMINI_KEYWORDS
        if "anyOf" in node:
            assert set(node) == {"anyOf"}
            assert len(node["anyOf"]) > 1
            continue
        assert node["type"] in ("string", "number", "integer", "boolean", "object", "array")
        if "enum" in node:
            assert node["type"] == "string"
            assert all(isinstance(value, str) and value for value in node["enum"])
        if node["type"] != "object":
            assert not {"properties", "required"} & set(node)
        assert set(node.get("required", ())) <= set(node.get("properties", ()))
        assert ("items" in node) == (node["type"] == "array")


@pytest.fixture
def define() -> Callable[..., Definition]:
    def make(schema: dict[str, Any], **fields: Any) -> Definition:
        return Definition("repo", "search", input_schema=schema, **fields)

    return make


@pytest.fixture(scope="session")
def rules() -> dict[str, Callable[[dict[str, Any]], None]]:
    """A check of the whole tool for each provider, and ``strict`` for the schema of a strict one."""
    return {
        "openai": check_openai,
        "openai-responses": check_openai,
        "openai-strict": check_openai,
        "anthropic": check_anthropic,
        "gemini": check_gemini,
        "strict": check_strict,
    }
