"""A schema without what tells a model nothing, since it is paid for by the token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from toolyard.types.tool import JsonObject

__all__ = ["make_compact_schema"]

_SCHEMA_KEYWORDS = ("items", "additionalProperties", "not")
_SCHEMA_LIST_KEYWORDS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMA_MAP_KEYWORDS = ("properties", "$defs", "definitions", "patternProperties")
_MAX_SCHEMA_DEPTH = 32


def make_compact_schema(schema: JsonObject, depth: int = 0) -> dict[str, Any]:
    """The schema without its dialect, its titles and the word that nothing else is allowed.

    What is a property's name is never touched, nor is anything below a depth that no honest schema has.
    """
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "$schema" or (key == "title" and isinstance(value, str)):
            continue
        if key == "additionalProperties" and value is False:
            continue
        found[key] = _compact_keyword(key, value, depth + 1) if depth < _MAX_SCHEMA_DEPTH else value
    return found


def _compact_keyword(key: str, value: object, depth: int) -> object:
    if key in _SCHEMA_KEYWORDS:
        return _compact_subschema(value, depth)
    if key in _SCHEMA_MAP_KEYWORDS and isinstance(value, Mapping):
        return {name: _compact_subschema(each, depth) for name, each in cast("JsonObject", value).items()}
    if key in _SCHEMA_LIST_KEYWORDS and isinstance(value, list):
        return [_compact_subschema(each, depth) for each in cast("list[object]", value)]
    return value


def _compact_subschema(value: object, depth: int) -> object:
    return make_compact_schema(cast("JsonObject", value), depth) if isinstance(value, Mapping) else value
