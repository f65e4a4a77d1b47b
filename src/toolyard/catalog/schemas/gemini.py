"""Conversion to Gemini's subset of OpenAPI: one type per schema, ``nullable`` flags, enums of strings."""

from __future__ import annotations

import json
from collections.abc import Sequence

from toolyard.catalog.schemas.openai import item_schema
from toolyard.catalog.schemas.schema_merge import (
    Schema,
    list_alternatives,
    list_types,
    merge_alternatives,
    unique_schemas,
)

__all__ = ["gemini_schema"]

_FORMATS_BY_TYPE = {
    "string": ("date-time", "enum"),
    "number": ("float", "double"),
    "integer": ("int32", "int64"),
}
_KEYWORDS_BY_TYPE = {
    "string": ("minLength", "maxLength", "pattern"),
    "number": ("minimum", "maximum"),
    "integer": ("minimum", "maximum"),
    "array": ("minItems", "maxItems"),
}
_ANY_VALUE_TYPES = ("string", "number", "boolean", "object", "array")
_ANY_ITEM_TYPES = ("string", "number", "boolean", "object")
"""Item types of an untyped array. Arrays are excluded, since they would need untyped items again, without
end."""


def gemini_schema(root: Schema) -> tuple[Schema, list[str]]:
    """Return the schema in Gemini's subset. Unsupported keywords are dropped or described in words."""
    schema = _convert_object(root)
    schema.setdefault("properties", {})
    return schema, []


def _convert_node(schema: Schema) -> Schema:
    if "properties" in schema and list_alternatives(schema):
        schema = merge_alternatives(schema)
    types = list_types(schema) or _infer_types(schema)
    nullable = "null" in types or None in schema.get("enum", ())
    branches = list_alternatives(schema)
    if branches:
        nullable = nullable or any(list_types(branch) == ["null"] for branch in branches)
        candidates = [_convert_node(branch) for branch in branches if list_types(branch) != ["null"]]
    else:
        single = [kind for kind in types if kind != "null"]
        candidates = [_convert_type(schema, kind) for kind in single or ([] if types else _ANY_VALUE_TYPES)]
    return _add_description(_combine_candidates(candidates, nullable), schema.get("description"))


def _combine_candidates(candidates: Sequence[Schema], nullable: bool) -> Schema:
    """Return one schema for several alternatives.

    Gemini allows no keywords beside ``anyOf``, so ``nullable`` and descriptions go into its branches.
    """
    flat = [branch for candidate in candidates for branch in candidate.get("anyOf", [candidate])]
    different = unique_schemas(flat or [{"type": "string"}])
    if len(different) > 1 and all(
        set(branch) <= {"type", "enum"} and "enum" in branch for branch in different
    ):
        values = [value for branch in different for value in branch["enum"]]
        different = [{"type": "string", "enum": list(dict.fromkeys(values))}]
    if nullable:
        different = [{**branch, "nullable": True} for branch in different]
    return different[0] if len(different) == 1 else {"anyOf": different}


def _add_description(schema: Schema, description: str | None) -> Schema:
    if not description:
        return schema
    if "anyOf" in schema:
        first, *others = schema["anyOf"]
        return {"anyOf": [_add_description(first, description), *others]}
    words = " ".join(dict.fromkeys(filter(None, (description, schema.get("description")))))
    return {**schema, "description": words}


def _convert_type(schema: Schema, kind: str) -> Schema:
    """Return the part of a schema that applies to the type ``kind``."""
    if kind == "object":
        return _convert_object(schema)
    result: Schema = {"type": kind}
    result.update({key: schema[key] for key in _KEYWORDS_BY_TYPE.get(kind, ()) if key in schema})
    if schema.get("format") in _FORMATS_BY_TYPE.get(kind, ()):
        result["format"] = schema["format"]
    if kind == "array":
        items = item_schema(schema)
        result["items"] = (
            _convert_node(items) if items else {"anyOf": [{"type": item} for item in _ANY_ITEM_TYPES]}
        )
        return result
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if kind == "string":
        # The API refuses the whole request for an empty string in an enum.
        words = list(dict.fromkeys(value for value in values if isinstance(value, str) and value))
        if words:
            result["enum"] = words
    elif values:
        shown = ", ".join(json.dumps(value) for value in values if value is not None)
        result["description"] = f"One of: {shown}."
    return result


def _convert_object(schema: Schema) -> Schema:
    properties = {name: _convert_node(child) for name, child in schema.get("properties", {}).items()}
    result: Schema = {"type": "object"}
    if schema.get("description"):
        result["description"] = schema["description"]
    if properties:
        result["properties"] = properties
        required = [name for name in schema.get("required", ()) if name in properties]
        if required:
            result["required"] = required
    return result


def _infer_types(schema: Schema) -> list[str]:
    """Return the types implied by the other keywords of a schema without ``type``."""
    if any(key in schema for key in ("properties", "required", "additionalProperties")):
        return ["object"]
    if "items" in schema or "prefixItems" in schema:
        return ["array"]
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return list(dict.fromkeys(_json_type(value) for value in values))
    if list_alternatives(schema):
        return []
    return ["string"] if "pattern" in schema or "minLength" in schema or "format" in schema else []


def _json_type(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"
