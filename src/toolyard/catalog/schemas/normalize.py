"""Normalization of a server's schema: draft 2020-12, without references, with valid keywords only.

A server's schema may be of any draft, partly invalid, or designed to exhaust memory when expanded. The result
is a tree of bounded size. Nothing is fetched: a reference to another document becomes a schema that accepts
anything, with a note. When in doubt the result allows more than the original, never less, since the server
validates arguments itself.
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

__all__ = ["normalize_schema", "resolve_reference"]

_MAX_SCHEMA_DEPTH = 100
_MAX_DATA_DEPTH = 32
_MAX_EXPANDED_NODES = 10_000
"""Maximum size of a schema with its references expanded, counted in schemas, values and ``_CHARS_PER_NODE``
characters of text. Without it, a few lines of references that double each other would fill the memory."""
_CHARS_PER_NODE = 64
_TOO_LARGE_NOTE = "the schema is too large with its references expanded; it was truncated"

_TEXT_KEYWORDS = frozenset((*ANNOTATION_KEYWORDS, "format", "pattern", "contentEncoding", "contentMediaType"))
_FLAG_KEYWORDS = frozenset(("uniqueItems", "deprecated", "readOnly", "writeOnly"))
_DATA_KEYWORDS = frozenset(("const", "default"))
_SCHEMA_KEYWORDS = frozenset(("not", "if", "then", "else", "contains", "propertyNames"))
_SCHEMA_OR_FLAG_KEYWORDS = frozenset(("additionalProperties", "unevaluatedProperties", "unevaluatedItems"))
_SCHEMA_LIST_KEYWORDS = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))
_INVERTING_KEYWORDS = frozenset(("not", "if", "oneOf"))
"""Keywords that accept less if their subschemas accept more."""
_SCHEMA_MAP_KEYWORDS = frozenset(("properties", "patternProperties", "dependentSchemas"))
_REFERENCE_KEYWORDS = ("$ref", "$dynamicRef", "$recursiveRef")


def normalize_schema(schema: JsonObject) -> tuple[Schema, list[str]]:
    """Return the normalized schema, and notes about everything that was lost. Never raises."""
    expansion = _SchemaExpansion(schema)
    result = expansion.schema(schema, 0, ("#",))
    return result, list(dict.fromkeys(expansion.notes))


class _SchemaExpansion:
    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._remaining_nodes = _MAX_EXPANDED_NODES
        self._node_counts: dict[int, int] = {}
        self._lossy_merges = 0
        """Number of merges whose result allows more than both schemas together."""
        self.notes: list[str] = []

    def schema(self, node: object, depth: int, trail: tuple[str, ...]) -> Schema:
        """Return one schema normalized. ``trail`` has the references being expanded, to detect recursion."""
        if node is True:
            return {}
        if node is False:
            return {"not": {}}
        if not isinstance(node, dict):
            self.notes.append("an invalid subschema was replaced by one that accepts anything")
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
        target = resolve_reference(self._root, reference)
        if target is None:
            self.notes.append(f"{_describe_reference(reference)} refers to nothing")
            return {}
        return self.schema(target, depth + 1, (*trail, reference))

    def _convert_keywords(self, fields: dict[str, object], depth: int, trail: tuple[str, ...]) -> Schema:
        result: Schema = {}
        for key, value in fields.items():
            # Every loss leaves a note or counts as a lossy merge, so the sum grows if a subschema of
            # this keyword becomes wider than the original.
            losses = len(self.notes) + self._lossy_merges
            if key in _TEXT_KEYWORDS:
                if isinstance(value, str) and self._try_spend(value):
                    result[key] = value
            elif key in _SCHEMA_MAP_KEYWORDS:
                if isinstance(value, dict):
                    result[key] = self._convert_map(cast("dict[str, object]", value), key, depth, trail)
            elif key in _SCHEMA_LIST_KEYWORDS:
                if isinstance(value, list) and value:
                    items = cast("list[object]", value)
                    result[key] = [self.schema(item, depth + 1, trail) for item in items]
            elif key in _SCHEMA_KEYWORDS or (key in _SCHEMA_OR_FLAG_KEYWORDS and not isinstance(value, bool)):
                result[key] = self.schema(value, depth + 1, trail)
            elif key in _SCHEMA_OR_FLAG_KEYWORDS:
                result[key] = value
            elif self._try_spend(value):
                result.update(_copy_keyword(key, value))
            if key in _INVERTING_KEYWORDS and len(self.notes) + self._lossy_merges > losses:
                # A subschema was widened. Under these keywords that would forbid arguments that the server
                # accepts, so the keyword is dropped, or for oneOf replaced by anyOf.
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
        # A property with the schema ``false`` can never be set: leave it out.
        return {
            name: self.schema(value, depth + 1, trail)
            for name, value in schemas.items()
            if not (key == "properties" and value is False)
        }

    def _try_spend(self, value: object) -> bool:
        # Cached by identity: the same value is counted again for each expansion of a reference to it.
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
        """Convert ``items``, which older drafts allow to be a list, with ``additionalItems`` for the rest."""
        items = fields.get("items")
        if isinstance(items, list):
            if items and "prefixItems" not in result:
                first = cast("list[object]", items)
                result["prefixItems"] = [self.schema(item, depth + 1, trail) for item in first]
            items = fields.get("additionalItems")
        if items is not None:
            result["items"] = self.schema(items, depth + 1, trail)

    def _convert_dependencies(
        self, fields: dict[str, object], result: Schema, depth: int, trail: tuple[str, ...]
    ) -> None:
        """Split ``dependencies`` of older drafts into ``dependentRequired`` and ``dependentSchemas``."""
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
    # More than the whole budget, so that deeply nested data is dropped, and neither this function nor a copy
    # recurses without bound.
    if depth > _MAX_DATA_DEPTH:
        return _MAX_EXPANDED_NODES + 1
    if isinstance(value, dict):
        value = list(cast("dict[str, object]", value).values())
    if not isinstance(value, list):
        return 1
    return 1 + sum(_count_nodes(item, depth + 1) for item in cast("list[object]", value))


def _copy_keyword(key: str, value: object) -> Schema:
    """Return a keyword whose value contains no schema; empty if it is unknown or its value is invalid."""
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
        copied: list[Any] = _unique_strings(items) if key == "required" else copy_json(items)
        return {key: copied} if copied else {}
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


def resolve_reference(root: JsonObject, reference: str) -> object | None:
    """Return the target of a reference within the document, a JSON Pointer or an anchor, or None."""
    if reference in ("#", "#/"):
        return root
    if not reference.startswith("#/"):
        return _find_anchor(root, reference[1:])
    node: object = root
    # RFC 6901: ``~1`` is replaced before ``~0``, or ``~01`` would become a slash.
    for part in unquote(reference[2:]).split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict):
            node = cast("dict[str, object]", node).get(key)
        elif isinstance(node, list) and key.isascii() and key.isdigit() and len(key) < 9:
            items = cast("list[object]", node)
            node = items[int(key)] if int(key) < len(items) else None
        else:
            return None
    return node


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
