"""Merging of two JSON schemas that must both hold, and of the alternatives of a root schema into one object.

Every provider requires a root schema without alternatives (``anyOf``, ``oneOf``), and some require merged
alternatives of every object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, cast

__all__ = [
    "ANNOTATION_KEYWORDS",
    "JSON_TYPES",
    "LIMIT_KEYWORDS",
    "Schema",
    "convert_root",
    "copy_json",
    "is_equal_json",
    "is_lossy_merge",
    "list_alternatives",
    "list_types",
    "merge_alternatives",
    "merge_schemas",
    "printable_excerpt",
]

Schema: TypeAlias = dict[str, Any]
"""A JSON Schema object that shares no data with the server's listing, so that it may be modified."""

JSON_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
ANNOTATION_KEYWORDS = ("title", "description")
LIMIT_KEYWORDS: Mapping[str, Callable[[Any, Any], Any]] = {
    "minimum": max,
    "exclusiveMinimum": max,
    "minLength": max,
    "minItems": max,
    "minProperties": max,
    "minContains": max,
    "maximum": min,
    "exclusiveMaximum": min,
    "maxLength": min,
    "maxItems": min,
    "maxProperties": min,
    "maxContains": min,
}
"""Numeric keywords, with the function that selects the stricter of two values."""


def list_types(schema: Schema) -> list[str]:
    """Return the value of ``type`` as a list, empty if it is absent."""
    types = schema.get("type")
    if types is None:
        return []
    return [types] if isinstance(types, str) else list(types)


def list_alternatives(schema: Schema) -> list[Schema]:
    """Return the branches of ``anyOf``, or of ``oneOf`` if there is no ``anyOf``."""
    return list(schema.get("anyOf") or schema.get("oneOf") or ())


def unique_schemas(schemas: Iterable[Schema]) -> list[Schema]:
    """Return the schemas without repetitions, in order."""
    different: list[Schema] = []
    for schema in schemas:
        if schema not in different:
            different.append(schema)
    return different


def is_equal_json(one: object, other: object) -> bool:
    """Compare two JSON values: ``1`` and ``true`` are different, ``1`` and ``1.0`` are equal."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return one == other


def printable_excerpt(text: str) -> str:
    """Return at most 80 characters of a server's text, without characters that could deceive a terminal."""
    printable = "".join(char if char.isprintable() else "?" for char in text[:81])
    return printable if len(printable) <= 80 else f"{printable[:80]}…"


def copy_json(value: object) -> Any:
    """Return a deep copy of a JSON value."""
    if isinstance(value, dict):
        return {key: copy_json(item) for key, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [copy_json(item) for item in cast("list[object]", value)]
    return value


def merge_schemas(first: Schema, second: Schema) -> Schema:
    """Return a schema for values that satisfy both schemas, as closely as one schema can express it.

    For keywords that cannot be combined, ``first`` takes precedence.
    """
    result = dict(first)
    for key, theirs in second.items():
        if key not in result:
            result[key] = theirs
            continue
        ours = result[key]
        if key == "properties":
            result[key] = {
                **ours,
                **{
                    name: merge_schemas(ours[name], schema) if name in ours else schema
                    for name, schema in theirs.items()
                },
            }
        elif key == "required":
            result[key] = [*ours, *(name for name in theirs if name not in ours)]
        elif key == "enum":
            both = [value for value in ours if any(is_equal_json(value, other) for other in theirs)]
            result[key] = both or ours
        elif key == "type":
            result[key] = _common_types(first, second) or ours
        elif key in LIMIT_KEYWORDS:
            result[key] = LIMIT_KEYWORDS[key](ours, theirs)
        elif key == "additionalProperties" and theirs is False:
            result[key] = False
    return result


def is_lossy_merge(first: Schema, second: Schema) -> bool:
    """Return True if the merged schema may allow values that one of the two forbids."""
    shared = first.keys() & second.keys()
    if not shared <= _EXACT_KEYWORDS or not _REMAINDER_KEYWORDS.isdisjoint(first.keys() | second.keys()):
        return True
    if "enum" in shared and not any(
        is_equal_json(one, other) for one in first["enum"] for other in second["enum"]
    ):
        return True
    return "type" in shared and _common_types(first, second) is None


_EXACT_KEYWORDS = frozenset(("type", "enum", "required", *ANNOTATION_KEYWORDS, *LIMIT_KEYWORDS))
"""Keywords for which two values can be combined exactly."""
_REMAINDER_KEYWORDS = frozenset(
    ("additionalProperties", "unevaluatedProperties", "items", "unevaluatedItems")
)
"""Keywords that apply to whatever the other keywords of the same schema do not cover. In a merged schema the
others cover more, so these apply to less."""


def _common_types(first: Schema, second: Schema) -> str | list[str] | None:
    ours, theirs = list_types(first), list_types(second)
    common = [name for name in ours if name in theirs or (name == "integer" and "number" in theirs)]
    if "number" in ours and "integer" in theirs and "integer" not in common:
        common.append("integer")
    return common[0] if len(common) == 1 else common or None


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
