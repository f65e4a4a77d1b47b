"""A server's schema in one plain dialect: 2020-12, without references, every keyword of the right shape.

What a server sends may be of any draft, broken in places, or made to exhaust whoever expands it. What leaves
here is a tree of bounded size. Nothing is fetched: a reference to another document ends in a schema that
accepts anything, and a note says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import unquote

from toolyard.catalog.schemas.schema_merge import (
    ANNOTATION_KEYWORDS,
    JSON_TYPES,
    LIMIT_KEYWORDS,
    Schema,
    copy_json,
    is_lossy_merge,
    merge_schemas,
    printable_excerpt,
)
from toolyard.types.tool import JsonObject

__all__ = ["normalize_schema"]

_MAX_SCHEMA_DEPTH = 100
_MAX_DATA_DEPTH = 32
_MAX_EXPANDED_NODES = 10_000
"""Schemas, values and lines of text that a schema may have once its references are expanded. A few lines of
references that double each other would otherwise fill the memory."""
_CHARS_PER_NODE = 64
_TOO_LARGE_NOTE = "the schema is too large when its references are expanded; it was cut"

_TEXT_KEYWORDS = frozenset((*ANNOTATION_KEYWORDS, "format", "pattern", "contentEncoding", "contentMediaType"))
_FLAG_KEYWORDS = frozenset(("uniqueItems", "deprecated", "readOnly", "writeOnly"))
_DATA_KEYWORDS = frozenset(("const", "default"))
_SCHEMA_KEYWORDS = frozenset(("not", "if", "then", "else", "contains", "propertyNames"))
_SCHEMA_OR_FLAG_KEYWORDS = frozenset(("additionalProperties", "unevaluatedProperties", "unevaluatedItems"))
_SCHEMA_LIST_KEYWORDS = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))
_INVERTING_KEYWORDS = frozenset(("not", "if", "oneOf"))
"""Keywords that accept less when what is in them accepts more."""
_SCHEMA_MAP_KEYWORDS = frozenset(("properties", "patternProperties", "dependentSchemas"))
_REFERENCE_KEYWORDS = ("$ref", "$dynamicRef", "$recursiveRef")


def normalize_schema(schema: JsonObject) -> tuple[Schema, list[str]]:
    """The schema in the plain dialect, and notes about what could not be carried over. Never raises."""
    expansion = _SchemaExpansion(schema)
    result = expansion.schema(schema, 0, ("#",))
    return result, list(dict.fromkeys(expansion.notes))


class _SchemaExpansion:
    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._remaining_nodes = _MAX_EXPANDED_NODES
        self._node_counts: dict[int, int] = {}
        self._lossy_merges = 0
        """How often two schemas became one that allows more than both."""
        self.notes: list[str] = []

    def schema(self, node: object, depth: int, trail: tuple[str, ...]) -> Schema:
        """The plain form of one schema. ``trail`` holds the references that led here."""
        if node is True:
            return {}
        if node is False:
            return {"not": {}}
        if not isinstance(node, dict):
            self.notes.append("something that is no schema was replaced by one that accepts anything")
            return {}
        self._remaining_nodes -= 1
        if depth > _MAX_SCHEMA_DEPTH or self._remaining_nodes < 0:
            self.notes.append(_TOO_LARGE_NOTE)
            return {"type": "object"}
        fields = cast("dict[str, object]", node)
        result = self._convert_keywords(fields, depth, trail)
        reference = next(
            (fields[key] for key in _REFERENCE_KEYWORDS if isinstance(fields.get(key), str)), None
        )
        if isinstance(reference, str):
            result = self._merge_and_count(result, self._expand_reference(reference, depth, trail))
        for part in cast("list[Schema]", result.pop("allOf", [])):
            result = self._merge_and_count(result, part)
        return _apply_nullable(result)

    def _merge_and_count(self, first: Schema, second: Schema) -> Schema:
        self._lossy_merges += is_lossy_merge(first, second)
        return merge_schemas(first, second)

    def _expand_reference(self, reference: str, depth: int, trail: tuple[str, ...]) -> Schema:
        if reference in trail:
            self.notes.append(
                f"{_describe_reference(reference)} refers to itself; the recursion ends in any object"
            )
            return {"type": "object"}
        if not reference.startswith("#"):
            self.notes.append(f"{_describe_reference(reference)} is outside the schema and is never fetched")
            return {}
        target = _resolve_reference(self._root, reference)
        if target is None:
            self.notes.append(f"{_describe_reference(reference)} refers to nothing")
            return {}
        return self.schema(target, depth + 1, (*trail, reference))

    def _convert_keywords(self, fields: dict[str, object], depth: int, trail: tuple[str, ...]) -> Schema:
        result: Schema = {}
        for key, value in fields.items():
            told = len(self.notes) + self._lossy_merges
            if key in _TEXT_KEYWORDS:
                if isinstance(value, str) and self._try_spend(value):
                    result[key] = value
            elif key in _SCHEMA_MAP_KEYWORDS:
                if isinstance(value, dict):
                    result[key] = self._convert_map(cast("dict[str, object]", value), key, depth, trail)
            elif key in _SCHEMA_LIST_KEYWORDS:
                if isinstance(value, list) and value:
                    result[key] = self._convert_list(cast("list[object]", value), depth, trail)
            elif key in _SCHEMA_KEYWORDS or (key in _SCHEMA_OR_FLAG_KEYWORDS and not isinstance(value, bool)):
                result[key] = self.schema(value, depth + 1, trail)
            elif key in _SCHEMA_OR_FLAG_KEYWORDS:
                result[key] = value
            elif self._try_spend(value):
                result.update(_copy_keyword(key, value))
            if key in _INVERTING_KEYWORDS and len(self.notes) + self._lossy_merges > told:
                # Something in it was widened, which would make the whole forbid what the server allows.
                branches = result.pop(key, None)
                if key == "oneOf" and "anyOf" not in fields:
                    result["anyOf"] = branches
        self._convert_items(fields, result, depth, trail)
        self._convert_dependencies(fields, result, depth, trail)
        return result

    def _convert_map(
        self, schemas: Mapping[str, object], key: str, depth: int, trail: tuple[str, ...]
    ) -> dict[str, Schema]:
        self._remaining_nodes -= sum(len(name) for name in schemas) // _CHARS_PER_NODE
        # A property that nothing can satisfy is as good as none, and says so more plainly.
        return {
            name: self.schema(value, depth + 1, trail)
            for name, value in schemas.items()
            if not (key == "properties" and value is False)
        }

    def _convert_list(self, schemas: list[object], depth: int, trail: tuple[str, ...]) -> list[Schema]:
        return [self.schema(value, depth + 1, trail) for value in schemas]

    def _try_spend(self, value: object) -> bool:
        # Remembered by identity: the same value comes again with each expansion of a reference to it.
        weight = self._node_counts.get(id(value))
        if weight is None:
            weight = self._node_counts[id(value)] = _count_nodes(value, 0)
        if weight > self._remaining_nodes:
            self.notes.append(_TOO_LARGE_NOTE)
            return False
        self._remaining_nodes -= weight
        return True

    def _convert_items(
        self, fields: dict[str, object], result: Schema, depth: int, trail: tuple[str, ...]
    ) -> None:
        """``items`` was a list in older drafts, with ``additionalItems`` beside it."""
        items = fields.get("items")
        if isinstance(items, list):
            if items and "prefixItems" not in result:
                result["prefixItems"] = self._convert_list(cast("list[object]", items), depth, trail)
            items = fields.get("additionalItems")
        if items is not None:
            result["items"] = self.schema(items, depth + 1, trail)

    def _convert_dependencies(
        self, fields: dict[str, object], result: Schema, depth: int, trail: tuple[str, ...]
    ) -> None:
        """``dependencies`` of older drafts is two keywords now."""
        dependencies = fields.get("dependencies")
        if not isinstance(dependencies, dict):
            return
        for name, value in cast("dict[str, object]", dependencies).items():
            if isinstance(value, list):
                names = _unique_strings(cast("list[object]", value))
                result.setdefault("dependentRequired", {}).setdefault(name, names)
            else:
                schema = self.schema(value, depth + 1, trail)
                result.setdefault("dependentSchemas", {}).setdefault(name, schema)


def _count_nodes(value: object, depth: int) -> int:
    if isinstance(value, str):
        return len(value) // _CHARS_PER_NODE
    if depth > _MAX_DATA_DEPTH:
        return _MAX_EXPANDED_NODES + 1
    if isinstance(value, dict):
        value = list(cast("dict[str, object]", value).values())
    if not isinstance(value, list):
        return 1
    return 1 + sum(_count_nodes(item, depth + 1) for item in cast("list[object]", value))


def _copy_keyword(key: str, value: object) -> Schema:
    """A keyword whose value holds no schema; nothing where it is unknown or of the wrong shape."""
    if key in _DATA_KEYWORDS:
        return {key: copy_json(value)}
    if key == "type":
        names = _unique_strings(cast("list[object]", value) if isinstance(value, list) else [value])
        known = [name for name in names if name in JSON_TYPES]
        return {"type": known[0] if len(known) == 1 else known} if known else {}
    if key == "required" or key == "enum" or key == "examples":
        if not isinstance(value, list):
            return {}
        items = cast("list[object]", value)
        kept: list[Any] = _unique_strings(items) if key == "required" else copy_json(items)
        return {key: kept} if kept else {}
    if key in LIMIT_KEYWORDS or key == "multipleOf":
        return {key: value} if isinstance(value, int | float) and not isinstance(value, bool) else {}
    if key in _FLAG_KEYWORDS or key == "nullable":
        return {key: value} if isinstance(value, bool) else {}
    if key == "dependentRequired" and isinstance(value, dict):
        lists = cast("dict[str, object]", value).items()
        return {
            key: {name: _unique_strings(cast("list[object]", v)) for name, v in lists if isinstance(v, list)}
        }
    return {}


def _apply_nullable(result: Schema) -> Schema:
    nullable = result.pop("nullable", False)
    kind = result.get("type")
    if nullable and kind is not None and "null" not in kind:
        result["type"] = [*([kind] if isinstance(kind, str) else kind), "null"]
        if "enum" in result and None not in result["enum"]:
            result["enum"] = [*result["enum"], None]
    return result


def _resolve_reference(root: JsonObject, reference: str) -> object | None:
    """What a reference within the document points at: a JSON Pointer, or the name of an anchor."""
    if reference in ("#", "#/"):
        return root
    if not reference.startswith("#/"):
        return _find_anchor(root, reference[1:])
    place: object = root
    for part in unquote(reference[2:]).split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(place, dict):
            place = cast("dict[str, object]", place).get(key)
        elif isinstance(place, list) and key.isascii() and key.isdigit() and len(key) < 9:
            items = cast("list[object]", place)
            place = items[int(key)] if int(key) < len(items) else None
        else:
            return None
    return place


def _find_anchor(root: JsonObject, name: str) -> object | None:
    for group in ("$defs", "definitions"):
        schemas = root.get(group)
        if not isinstance(schemas, dict):
            continue
        for schema in cast("dict[str, object]", schemas).values():
            if isinstance(schema, dict):
                fields = cast("dict[str, object]", schema)
                if name in (fields.get("$anchor"), fields.get("$dynamicAnchor")):
                    return fields
                if fields.get("$id") == f"#{name}":
                    return fields
    return None


def _unique_strings(values: list[object]) -> list[str]:
    return list(dict.fromkeys(value for value in values if isinstance(value, str)))


def _describe_reference(reference: str) -> str:
    return f"$ref '{printable_excerpt(reference)}'"
