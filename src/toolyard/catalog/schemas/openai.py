"""Requirements of OpenAI's APIs for schemas, without and with strict mode.

Without it, every array needs ``items``. In strict mode objects are closed, all properties are required, and
optional ones are nullable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from toolyard.catalog.schemas.schema_merge import Schema, list_types, printable_excerpt, unique_schemas

__all__ = [
    "ArgumentPath",
    "NotStrictError",
    "item_schema",
    "openai_schema",
    "remove_added_nulls",
    "strict_schema",
]


_SCHEMA_KEYWORDS = ("items", "not", "if", "then", "else", "contains", "propertyNames")
_SCHEMA_OR_FLAG_KEYWORDS = ("additionalProperties", "unevaluatedProperties", "unevaluatedItems")
_SCHEMA_LIST_KEYWORDS = ("anyOf", "oneOf")
_SCHEMA_MAP_KEYWORDS = ("properties", "patternProperties", "dependentSchemas")


def openai_schema(root: Schema) -> tuple[Schema, list[str]]:
    """Return the schema with ``items`` in every array, in place of ``prefixItems``."""
    return _convert_node(root), []


def item_schema(schema: Schema) -> Schema:
    """Return one schema that accepts every item of an array, including those of ``prefixItems``."""
    items: list[Schema] = list(schema.get("prefixItems", ()))
    rest: Schema = schema.get("items", {})
    if rest not in ({}, {"not": {}}):
        items.append(rest)
    different = unique_schemas(items)
    if len(different) == 1:
        return different[0]
    return {"anyOf": different} if different else {}


def _convert_node(schema: Schema) -> Schema:
    if "array" in list_types(schema) or "prefixItems" in schema:
        rest = {key: value for key, value in schema.items() if key != "prefixItems"}
        schema = {**rest, "items": item_schema(schema)}
    return {key: _convert_keyword(key, value) for key, value in schema.items()}


def _convert_keyword(key: str, value: Any) -> Any:
    if key in _SCHEMA_LIST_KEYWORDS:
        return [_convert_node(item) for item in value]
    if key in _SCHEMA_MAP_KEYWORDS:
        return {name: _convert_node(item) for name, item in value.items()}
    if key in _SCHEMA_KEYWORDS or (key in _SCHEMA_OR_FLAG_KEYWORDS and value not in (True, False)):
        return _convert_node(value)
    return value


ArgumentPath: TypeAlias = tuple[str, ...]
"""Path of a property in the arguments. ``*`` stands for every item of an array."""

ITEM_WILDCARD = "*"
_ALLOWED_KEYWORDS = (
    "title",
    "description",
    "enum",
    "const",
    "multipleOf",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minItems",
    "maxItems",
)
_ALLOWED_FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
)
_UNSUPPORTED_KEYWORDS = ("patternProperties", "oneOf")
_MAX_PROPERTIES = 5000
_MAX_OBJECT_LEVELS = 10
_MAX_ENUM_VALUES = 1000
_MAX_TEXT_CHARS = 120_000


class NotStrictError(Exception):
    """Raised if a schema has no strict form. The message says why."""


def strict_schema(root: Schema) -> tuple[Schema, frozenset[ArgumentPath]]:
    """Return the strict form, and the paths at which null was allowed in addition to the server's schema.

    Constraints that strict mode does not support are dropped, since the server checks them anyway. Raise
    NotStrictError if the strict form would forbid arguments that the schema allows.
    """
    if not root["properties"] and root.get("additionalProperties", True) is True:
        # Servers usually mean by this that a tool takes no arguments.
        root = {**root, "additionalProperties": False}
    conversion = _StrictConversion()
    schema = conversion.convert_node(root, (), 1)
    conversion.check_limits()
    return schema, frozenset(conversion.added)


def remove_added_nulls(arguments: Mapping[str, Any], added: frozenset[ArgumentPath]) -> dict[str, Any]:
    """Return the arguments without the nulls that only the strict form allows."""
    return cast("dict[str, Any]", _remove_nulls(arguments, added, ())) if added else dict(arguments)


def _remove_nulls(value: object, added: frozenset[ArgumentPath], path: ArgumentPath) -> object:
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        return {
            name: _remove_nulls(item, added, (*path, name))
            for name, item in fields.items()
            if item is not None or (*path, name) not in added
        }
    if isinstance(value, list):
        return [_remove_nulls(item, added, (*path, ITEM_WILDCARD)) for item in cast("list[object]", value)]
    return value


class _StrictConversion:
    def __init__(self) -> None:
        self.added: set[ArgumentPath] = set()
        self._property_count = 0
        self._enum_value_count = 0
        self._text_chars = 0

    def check_limits(self) -> None:
        if self._property_count > _MAX_PROPERTIES:
            raise NotStrictError(f"the schema has more than {_MAX_PROPERTIES} properties")
        if self._enum_value_count > _MAX_ENUM_VALUES:
            raise NotStrictError(f"the schema has more than {_MAX_ENUM_VALUES} enum values")
        if self._text_chars > _MAX_TEXT_CHARS:
            raise NotStrictError(
                f"the schema's property names and enum values exceed {_MAX_TEXT_CHARS} characters"
            )

    def convert_node(self, schema: Schema, path: ArgumentPath, level: int) -> Schema:
        where = printable_excerpt(".".join(path)) or "the root"
        for key in _UNSUPPORTED_KEYWORDS:
            if key in schema:
                raise NotStrictError(f"{where} uses {key}, which strict mode does not support")
        result = {key: schema[key] for key in _ALLOWED_KEYWORDS if key in schema}
        self._count_values(schema)
        if schema.get("format") in _ALLOWED_FORMATS:
            result["format"] = schema["format"]
        # Strict mode does not support lookaround; "(?" also excludes harmless groups, which costs little.
        if "pattern" in schema and "(?" not in schema["pattern"]:
            result["pattern"] = schema["pattern"]
        types = list_types(schema) or _infer_types(schema)
        if "anyOf" in schema:
            if "object" in types and "properties" in schema:
                raise NotStrictError(f"{where} has both anyOf and properties")
            result["anyOf"] = [self.convert_node(branch, path, level) for branch in schema["anyOf"]]
            return result
        if not types and "enum" not in schema and "const" not in schema:
            raise NotStrictError(f"{where} accepts any value")
        if types:
            result["type"] = types[0] if len(types) == 1 else types
        if "object" in types:
            result.update(self._convert_object(schema, path, level, where))
        if "array" in types:
            items = item_schema(schema)
            if not items:
                raise NotStrictError(f"{where} does not define its items")
            result["items"] = self.convert_node(items, (*path, ITEM_WILDCARD), level)
        return result

    def _convert_object(self, schema: Schema, path: ArgumentPath, level: int, where: str) -> Schema:
        properties: dict[str, Schema] = schema.get("properties", {})
        extra = schema.get("additionalProperties")
        if extra is not False and (not properties or extra is not None):
            raise NotStrictError(f"{where} allows properties with any name")
        if level > _MAX_OBJECT_LEVELS:
            raise NotStrictError(f"the schema has more than {_MAX_OBJECT_LEVELS} levels of objects")
        self._property_count += len(properties)
        self._text_chars += sum(len(name) for name in properties)
        required = schema.get("required", [])
        if any(name not in properties for name in required):
            raise NotStrictError(f"{where} requires a property that it does not define")
        converted: dict[str, Schema] = {}
        for name, child in properties.items():
            node = self.convert_node(child, (*path, name), level + 1)
            if name not in required and not _is_nullable(node):
                node = _make_nullable(node)
                self.added.add((*path, name))
            converted[name] = node
        return {"properties": converted, "required": list(properties), "additionalProperties": False}

    def _count_values(self, schema: Schema) -> None:
        values = schema.get("enum", [schema["const"]] if "const" in schema else [])
        self._enum_value_count += len(values)
        self._text_chars += sum(len(value) for value in values if isinstance(value, str))


def _infer_types(schema: Schema) -> list[str]:
    if "properties" in schema:
        return ["object"]
    return ["array"] if "items" in schema or "prefixItems" in schema else []


def _is_nullable(node: Schema) -> bool:
    if "anyOf" in node:
        return any(_is_nullable(branch) for branch in node["anyOf"])
    if "enum" in node or "const" in node:
        return None in node.get("enum", [node.get("const", 0)])
    return "null" in list_types(node)


def _make_nullable(node: Schema) -> Schema:
    """Return a schema that also accepts null. Title and description stay outside of a new ``anyOf``."""
    if "anyOf" in node:
        return {**node, "anyOf": [*node["anyOf"], {"type": "null"}]}
    if "const" in node or "type" not in node:
        annotations = {key: node[key] for key in ("title", "description") if key in node}
        rest = {key: value for key, value in node.items() if key not in annotations}
        return {**annotations, "anyOf": [rest, {"type": "null"}]}
    result = {**node, "type": [*list_types(node), "null"]}
    if "enum" in node:
        result["enum"] = [*node["enum"], None]
    return result
