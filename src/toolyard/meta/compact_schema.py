"""A schema without what tells a model nothing, since it is paid for by the token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from toolyard.types.tool import JsonObject

__all__ = ["slim"]

_INNER = ("items", "additionalProperties", "not")
_MANY = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED = ("properties", "$defs", "definitions", "patternProperties")
_DEPTH = 32


def slim(schema: JsonObject, depth: int = 0) -> dict[str, Any]:
    """The schema without its dialect, its titles and the word that nothing else is allowed.

    What is a property's name is never touched, nor is anything below a depth that no honest schema has.
    """
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "$schema" or (key == "title" and isinstance(value, str)):
            continue
        if key == "additionalProperties" and value is False:
            continue
        found[key] = _slimmed(key, value, depth + 1) if depth < _DEPTH else value
    return found


def _slimmed(key: str, value: object, depth: int) -> object:
    if key in _INNER:
        return _one(value, depth)
    if key in _NAMED and isinstance(value, Mapping):
        return {name: _one(each, depth) for name, each in cast("JsonObject", value).items()}
    if key in _MANY and isinstance(value, list):
        return [_one(each, depth) for each in cast("list[object]", value)]
    return value


def _one(value: object, depth: int) -> object:
    return slim(cast("JsonObject", value), depth) if isinstance(value, Mapping) else value
