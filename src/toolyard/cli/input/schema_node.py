"""The parts of a JSON Schema that are needed to convert command-line values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias, cast

__all__ = ["JSON_TYPES", "Schema", "SchemaNode"]

Schema: TypeAlias = Mapping[str, Any]

JSON_TYPES = ("null", "boolean", "integer", "number", "object", "array", "string")
_MAX_BRANCHES = 64
"""Maximum number of branches that are followed, so that recursive schemas end."""


class SchemaNode:
    """A position in a schema. Every property includes references and alternatives."""

    def __init__(self, schema: object, root: Schema | None = None) -> None:
        self._schema: Schema = _as_schema(schema)
        self._root: Schema = self._schema if root is None else root

    def get_property(self, name: str) -> SchemaNode:
        """Return the schema of a property."""
        return SchemaNode(
            self._collect_properties().get(name, self._find_keyword("additionalProperties")), self._root
        )

    def has_property(self, name: str) -> bool:
        """Return whether the schema names the property."""
        return name in self._collect_properties()

    def first_key_segment(self, key: str) -> str:
        """Return the first segment of a dotted key: the longest known property name, else the text up to the
        dot."""
        names = [name for name in self._collect_properties() if key.startswith(f"{name}.")]
        return max(names, key=len, default=key.partition(".")[0])

    def items(self) -> SchemaNode:
        """Return the schema of list items."""
        return SchemaNode(self._find_keyword("items"), self._root)

    def allowed_types(self) -> set[str]:
        """Return the allowed types; empty if the schema does not say."""
        found: set[str] = set()
        for branch in self._iter_branches():
            named: object = branch.get("type")
            names = cast("list[object]", named) if isinstance(named, list) else [named]
            found |= {name for name in names if isinstance(name, str) and name in JSON_TYPES}
            if named is None and "properties" in branch:
                found.add("object")
        return found

    def choices(self) -> list[Any]:
        """Return the enumerated values."""
        found: list[Any] = []
        for branch in self._iter_branches():
            listed: object = branch.get("enum")
            if isinstance(listed, list):
                found += cast("list[Any]", listed)
            if "const" in branch:
                found.append(branch["const"])
        return found

    def _collect_properties(self) -> dict[str, object]:
        found: dict[str, object] = {}
        for branch in self._iter_branches():
            properties: object = branch.get("properties")
            if isinstance(properties, Mapping):
                found = {**cast("Mapping[str, object]", properties), **found}
        return found

    def _find_keyword(self, key: str) -> object:
        return next((branch[key] for branch in self._iter_branches() if key in branch), None)

    def _iter_branches(self) -> Iterator[Schema]:
        waiting, left = [self._schema], _MAX_BRANCHES
        while waiting and left:
            one = waiting.pop(0)
            left -= 1
            yield one
            reference: object = one.get("$ref")
            if isinstance(reference, str):
                waiting += _filter_schemas([self._resolve_reference(reference)])
            for key in ("allOf", "anyOf", "oneOf"):
                parts: object = one.get(key)
                if isinstance(parts, list):
                    waiting += _filter_schemas(cast("list[object]", parts))

    def _resolve_reference(self, reference: str) -> object:
        if not reference.startswith("#"):
            return None
        place: object = self._root
        for step in reference[1:].split("/")[1:]:
            place = _as_schema(place).get(step.replace("~1", "/").replace("~0", "~"))
        return place


def _as_schema(value: object) -> Schema:
    return cast("Schema", value) if isinstance(value, Mapping) else {}


def _filter_schemas(parts: list[object]) -> list[Schema]:
    return [cast("Schema", part) for part in parts if isinstance(part, Mapping)]
