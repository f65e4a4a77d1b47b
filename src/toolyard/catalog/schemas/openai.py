"""Requirements of OpenAI's APIs for schemas without strict mode: every array needs ``items``."""

from __future__ import annotations

from typing import Any

from toolyard.catalog.schemas.schema_merge import Schema, list_types

__all__ = ["item_schema", "openai_schema"]

_SCHEMA_KEYWORDS = ("items", "not", "if", "then", "else", "contains", "propertyNames")
_SCHEMA_OR_FLAG_KEYWORDS = ("additionalProperties", "unevaluatedProperties", "unevaluatedItems")
_SCHEMA_LIST_KEYWORDS = ("anyOf", "oneOf")
_SCHEMA_MAP_KEYWORDS = ("properties", "patternProperties", "dependentSchemas")


def openai_schema(root: Schema) -> tuple[Schema, list[str]]:
    """Return the schema with ``items`` in every array, in place of ``prefixItems``."""
    return _convert_node(root), []


def item_schema(schema: Schema) -> Schema:
    """Return one schema that accepts every item of an array, including those of ``prefixItems``."""
    items: list[Schema] = list(schema.get("prefixItems", ()))
    rest: Schema = schema.get("items", {})
    if rest not in ({}, {"not": {}}):
        items.append(rest)
    different: list[Schema] = []
    for item in items:
        if item not in different:
            different.append(item)
    if len(different) == 1:
        return different[0]
    return {"anyOf": different} if different else {}


def _convert_node(schema: Schema) -> Schema:
    if "array" in list_types(schema) or "prefixItems" in schema:
        rest = {key: value for key, value in schema.items() if key != "prefixItems"}
        schema = {**rest, "items": item_schema(schema)}
    return {key: _convert_keyword(key, value) for key, value in schema.items()}


def _convert_keyword(key: str, value: Any) -> Any:
    if key in _SCHEMA_LIST_KEYWORDS:
        return [_convert_node(item) for item in value]
    if key in _SCHEMA_MAP_KEYWORDS:
        return {name: _convert_node(item) for name, item in value.items()}
    if key in _SCHEMA_KEYWORDS or (key in _SCHEMA_OR_FLAG_KEYWORDS and value not in (True, False)):
        return _convert_node(value)
    return value
