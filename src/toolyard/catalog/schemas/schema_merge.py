"""Schemas that the views work on, and how two of them that must both hold become one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

__all__ = [
    "ANNOTATION_KEYWORDS",
    "JSON_TYPES",
    "LIMIT_KEYWORDS",
    "Schema",
    "copy_json",
    "is_equal_json",
    "is_lossy_merge",
    "list_alternatives",
    "list_types",
    "merge_schemas",
    "printable_excerpt",
]

Schema: TypeAlias = dict[str, Any]
"""A JSON Schema object of ours, freshly made: changing it changes nothing that a server sent."""

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
"""Keywords with a number, and which of two such numbers is the stricter."""


def list_types(schema: Schema) -> list[str]:
    """The types that a schema names; empty where it names none."""
    found = schema.get("type")
    if found is None:
        return []
    return [found] if isinstance(found, str) else list(found)


def list_alternatives(schema: Schema) -> list[Schema]:
    """The branches of ``anyOf``, or of ``oneOf`` where there is no ``anyOf``."""
    return list(schema.get("anyOf") or schema.get("oneOf") or ())


def is_equal_json(one: object, other: object) -> bool:
    """Equal as JSON values: ``1`` and ``true`` are not, ``1`` and ``1.0`` are."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return one == other


def printable_excerpt(text: str) -> str:
    """A server's own word in a note of ours: short, and without characters that deceive a terminal."""
    clean = "".join(char if char.isprintable() else "?" for char in text[:81])
    return clean if len(clean) <= 80 else f"{clean[:80]}…"


def copy_json(value: object) -> Any:
    """A deep copy of a JSON value."""
    if isinstance(value, dict):
        return {key: copy_json(item) for key, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [copy_json(item) for item in cast("list[object]", value)]
    return value


def merge_schemas(first: Schema, second: Schema) -> Schema:
    """A schema for what satisfies both, as near as one schema comes; ``first`` has the last word."""
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
    """Whether ``merged`` may allow what one of the two forbids."""
    shared = first.keys() & second.keys()
    if not shared <= _EXACT_KEYWORDS or not _REMAINDER_KEYWORDS.isdisjoint(first.keys() | second.keys()):
        return True
    if "enum" in shared and not any(
        is_equal_json(one, other) for one in first["enum"] for other in second["enum"]
    ):
        return True
    return "type" in shared and _common_types(first, second) is None


_EXACT_KEYWORDS = frozenset(("type", "enum", "required", *ANNOTATION_KEYWORDS, *LIMIT_KEYWORDS))
"""Keywords of which one can say what two of them mean together."""
_REMAINDER_KEYWORDS = frozenset(
    ("additionalProperties", "unevaluatedProperties", "items", "unevaluatedItems")
)
"""Keywords about what the others in the same schema leave over: merged, they are about less."""


def _common_types(first: Schema, second: Schema) -> str | list[str] | None:
    ours, theirs = list_types(first), list_types(second)
    common = [name for name in ours if name in theirs or (name == "integer" and "number" in theirs)]
    if "number" in ours and "integer" in theirs and "integer" not in common:
        common.append("integer")
    return common[0] if len(common) == 1 else common or None
