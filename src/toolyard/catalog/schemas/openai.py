"""What OpenAI's APIs ask of a schema that is not strict: arrays must say what is in them."""

from __future__ import annotations

from typing import Any

from toolyard.catalog.schemas.schema_merge import Schema, types_of

__all__ = ["item_schema", "openai_schema"]

_ONE = ("items", "not", "if", "then", "else", "contains", "propertyNames")
_ONE_OR_FLAG = ("additionalProperties", "unevaluatedProperties", "unevaluatedItems")
_LISTS = ("anyOf", "oneOf")
_MAPS = ("properties", "patternProperties", "dependentSchemas")


def openai_schema(root: Schema) -> tuple[Schema, list[str]]:
    """The schema with ``items`` in every array, and none of the tuples that take its place elsewhere."""
    return _node(root), []


def item_schema(schema: Schema) -> Schema:
    """One schema for every item of an array, also where they are told apart by their place."""
    places: list[Schema] = list(schema.get("prefixItems", ()))
    rest: Schema = schema.get("items", {})
    if rest not in ({}, {"not": {}}):
        places.append(rest)
    different: list[Schema] = []
    for place in places:
        if place not in different:
            different.append(place)
    if len(different) == 1:
        return different[0]
    return {"anyOf": different} if different else {}


def _node(schema: Schema) -> Schema:
    if "array" in types_of(schema) or "prefixItems" in schema:
        rest = {key: value for key, value in schema.items() if key != "prefixItems"}
        schema = {**rest, "items": item_schema(schema)}
    return {key: _keyword(key, value) for key, value in schema.items()}


def _keyword(key: str, value: Any) -> Any:
    if key in _LISTS:
        return [_node(item) for item in value]
    if key in _MAPS:
        return {name: _node(item) for name, item in value.items()}
    if key in _ONE or (key in _ONE_OR_FLAG and value not in (True, False)):
        return _node(value)
    return value
