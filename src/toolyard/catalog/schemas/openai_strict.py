"""OpenAI's strict mode: a closed schema, every property required, optional ones nullable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from toolyard.catalog.schemas.openai import item_schema
from toolyard.catalog.schemas.schema_merge import Schema, shown, types_of

__all__ = ["NotStrict", "Path", "strict_schema", "without_added_nulls"]

Path: TypeAlias = tuple[str, ...]
"""The way to a property in the arguments. ``*`` stands for every item of an array."""

ITEM = "*"
_KEPT = (
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
_FORMATS = frozenset(("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"))
_FREE = ("patternProperties", "oneOf")
_MAX_PROPERTIES = 5000
_MAX_LEVELS = 10
_MAX_ENUM = 1000
_MAX_TEXT = 120_000


class NotStrict(Exception):
    """The schema has no strict form; the message says why."""


def strict_schema(root: Schema) -> tuple[Schema, frozenset[Path]]:
    """The strict form, and where null was allowed though the server's schema does not know it.

    Constraints that strict mode has no words for are dropped: the server checks them anyway. Raises NotStrict
    where the mode would forbid what the schema allows.
    """
    if not root["properties"] and root.get("additionalProperties", True) is True:
        # The usual way to say that a tool takes no arguments.
        root = {**root, "additionalProperties": False}
    conversion = _Conversion()
    schema = conversion.node(root, (), 1)
    conversion.check_limits()
    return schema, frozenset(conversion.added)


def without_added_nulls(given: Mapping[str, Any], added: frozenset[Path]) -> dict[str, Any]:
    """The arguments without those nulls that only the strict form allows."""
    return cast("dict[str, Any]", _without(given, added, ())) if added else dict(given)


def _without(value: object, added: frozenset[Path], path: Path) -> object:
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        return {
            name: _without(item, added, (*path, name))
            for name, item in fields.items()
            if item is not None or (*path, name) not in added
        }
    if isinstance(value, list):
        return [_without(item, added, (*path, ITEM)) for item in cast("list[object]", value)]
    return value


class _Conversion:
    def __init__(self) -> None:
        self.added: set[Path] = set()
        self._properties = 0
        self._enum = 0
        self._text = 0

    def check_limits(self) -> None:
        if self._properties > _MAX_PROPERTIES:
            raise NotStrict(f"it has more than {_MAX_PROPERTIES} properties")
        if self._enum > _MAX_ENUM:
            raise NotStrict(f"it lists more than {_MAX_ENUM} values")
        if self._text > _MAX_TEXT:
            raise NotStrict(f"its names and values have more than {_MAX_TEXT} characters")

    def node(self, schema: Schema, path: Path, level: int) -> Schema:
        where = shown(".".join(path)) or "the root"
        for key in _FREE:
            if key in schema:
                raise NotStrict(f"{where} has {key}")
        result = {key: schema[key] for key in _KEPT if key in schema}
        self._count_values(schema)
        if schema.get("format") in _FORMATS:
            result["format"] = schema["format"]
        # Looking ahead or behind is not in the language that a decoder can follow.
        if "pattern" in schema and "(?" not in schema["pattern"]:
            result["pattern"] = schema["pattern"]
        types = types_of(schema) or _implied(schema)
        if "anyOf" in schema:
            if "object" in types and "properties" in schema:
                raise NotStrict(f"{where} has anyOf beside properties")
            result["anyOf"] = [self.node(branch, path, level) for branch in schema["anyOf"]]
            return result
        if not types and "enum" not in schema and "const" not in schema:
            raise NotStrict(f"{where} accepts anything")
        if types:
            result["type"] = types[0] if len(types) == 1 else types
        if "object" in types:
            result.update(self._object(schema, path, level, where))
        if "array" in types:
            items = item_schema(schema)
            if not items:
                raise NotStrict(f"the items of {where} may be anything")
            result["items"] = self.node(items, (*path, ITEM), level)
        return result

    def _object(self, schema: Schema, path: Path, level: int, where: str) -> Schema:
        properties: dict[str, Schema] = schema.get("properties", {})
        extra = schema.get("additionalProperties")
        if extra is not False and (not properties or extra is not None):
            raise NotStrict(f"{where} has properties of any name")
        if level > _MAX_LEVELS:
            raise NotStrict(f"it has more than {_MAX_LEVELS} levels of objects")
        self._properties += len(properties)
        self._text += sum(len(name) for name in properties)
        required = schema.get("required", [])
        if any(name not in properties for name in required):
            raise NotStrict(f"{where} requires a property that it does not describe")
        converted: dict[str, Schema] = {}
        for name, child in properties.items():
            node = self.node(child, (*path, name), level + 1)
            if name not in required and not _takes_null(node):
                node = _with_null(node)
                self.added.add((*path, name))
            converted[name] = node
        return {"properties": converted, "required": list(properties), "additionalProperties": False}

    def _count_values(self, schema: Schema) -> None:
        values = schema.get("enum", [schema["const"]] if "const" in schema else [])
        self._enum += len(values)
        self._text += sum(len(value) for value in values if isinstance(value, str))


def _implied(schema: Schema) -> list[str]:
    if "properties" in schema:
        return ["object"]
    return ["array"] if "items" in schema or "prefixItems" in schema else []


def _takes_null(node: Schema) -> bool:
    if "anyOf" in node:
        return any(_takes_null(branch) for branch in node["anyOf"])
    if "enum" in node or "const" in node:
        return None in node.get("enum", [node.get("const", 0)])
    return "null" in types_of(node)


def _with_null(node: Schema) -> Schema:
    """The same, or null. Words stay outside, where they speak of both."""
    if "anyOf" in node:
        return {**node, "anyOf": [*node["anyOf"], {"type": "null"}]}
    if "const" in node or "type" not in node:
        words = {key: node[key] for key in ("title", "description") if key in node}
        rest = {key: value for key, value in node.items() if key not in words}
        return {**words, "anyOf": [rest, {"type": "null"}]}
    result = {**node, "type": [*types_of(node), "null"]}
    if "enum" in node:
        result["enum"] = [*node["enum"], None]
    return result
