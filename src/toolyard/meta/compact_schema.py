"""Removal of schema keywords that carry no information for a model, to save tokens."""

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
    """Return the schema without ``$schema``, ``title`` and ``additionalProperties: false``.

    Properties with such names are not affected. Below ``_MAX_SCHEMA_DEPTH`` the schema is left unchanged.
    """
    compact: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "$schema" or (key == "title" and isinstance(value, str)):
            continue
        if key == "additionalProperties" and value is False:
            continue
        compact[key] = _compact_keyword(key, value, depth + 1) if depth < _MAX_SCHEMA_DEPTH else value
    return compact


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
