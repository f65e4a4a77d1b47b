"""Conversion of the root of a schema to an object without alternatives (``anyOf``, ``oneOf``).

Every provider requires this of the root schema, and some require merged alternatives of every object.
"""

from __future__ import annotations

from toolyard.catalog.schemas.schema_merge import (
    Schema,
    is_equal_json,
    list_alternatives,
    list_types,
    merge_schemas,
    unique_schemas,
)

__all__ = ["convert_root", "merge_alternatives"]

_DROPPED_ROOT_KEYWORDS = ("type", "enum", "const", "not")
_MERGED_NOTE = "the alternatives at the root were merged into one object"


def convert_root(schema: Schema) -> tuple[Schema, list[str]]:
    """Return a normalized schema as an object without alternatives, and notes about the losses."""
    notes = [_MERGED_NOTE] if list_alternatives(schema) else []
    notes += [f"'{key}' at the root was dropped" for key in ("enum", "const", "not") if key in schema]
    rest = {
        key: value for key, value in merge_alternatives(schema).items() if key not in _DROPPED_ROOT_KEYWORDS
    }
    return {"type": "object", **rest, "properties": rest.get("properties", {})}, notes


def merge_alternatives(schema: Schema) -> Schema:
    """Merge the alternatives of an object: the properties of all, required only if all require them.

    If the alternatives require different properties, a sentence is added to the description.
    """
    result = schema
    for key in ("anyOf", "oneOf"):
        branches = [merge_alternatives(branch) for branch in result.get(key, []) if _is_object(branch)]
        result = {name: value for name, value in result.items() if name != key}
        if branches:
            result = _merge_branches(result, branches)
    return result


def _is_object(schema: Schema) -> bool:
    types = list_types(schema)
    return (not types or "object" in types) and "not" not in schema


def _merge_branches(base: Schema, branches: list[Schema]) -> Schema:
    properties: dict[str, Schema] = dict(base.get("properties", {}))
    schemas_by_name: dict[str, list[Schema]] = {}
    for branch in branches:
        for name, schema in branch.get("properties", {}).items():
            schemas_by_name.setdefault(name, []).append(schema)
    for name, schemas in schemas_by_name.items():
        union = _union_schemas(schemas)
        properties[name] = merge_schemas(properties[name], union) if name in properties else union
    base_required: list[str] = list(base.get("required", []))
    required_lists: list[list[str]] = [branch.get("required", []) for branch in branches]
    shared = [name for name in required_lists[0] if all(name in names for names in required_lists)]
    required = [*base_required, *(name for name in shared if name not in base_required)]
    result: Schema = {**base, "properties": properties}
    if required:
        result["required"] = required
    if all(branch.get("additionalProperties") is False for branch in branches):
        result.setdefault("additionalProperties", False)
    sentence = _requirements_sentence(
        [[name for name in names if name not in required] for names in required_lists]
    )
    if sentence:
        result["description"] = " ".join(filter(None, (base.get("description"), sentence)))
    return result


def _union_schemas(schemas: list[Schema]) -> Schema:
    different = unique_schemas(schemas)
    if len(different) == 1:
        return different[0]
    values = _list_constants(different)
    if values is None:
        return {"anyOf": different}
    kind = different[0].get("type")
    if isinstance(kind, str) and all(schema.get("type") == kind for schema in different):
        return {"type": kind, "enum": values}
    return {"enum": values}


def _list_constants(schemas: list[Schema]) -> list[object] | None:
    """Return all values if every schema is a ``const`` or ``enum`` (as union discriminators are), else
    None."""
    values: list[object] = []
    for schema in schemas:
        if set(schema) - {"type", "const", "enum", "title", "description"}:
            return None
        constants = [schema["const"]] if "const" in schema else schema.get("enum")
        if not constants:
            return None
        values += [value for value in constants if not any(is_equal_json(value, other) for other in values)]
    return values


def _requirements_sentence(required_lists: list[list[str]]) -> str:
    sets = list(dict.fromkeys(tuple(names) for names in required_lists))
    if len(sets) < 2 or () in sets:
        return ""
    return f"Give one of these: {'; or '.join(' and '.join(names) for names in sets)}."
