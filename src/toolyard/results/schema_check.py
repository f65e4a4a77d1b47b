"""Partial validation of a value against a JSON Schema, with bounded cost.

It only serves warnings. Schema and value both come from a server, so the work is limited, and unchecked parts
count as valid: patterns, formats, external references, long enums, and everything beyond the limits of depth
and size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

__all__ = ["find_schema_mismatch"]

Schema: TypeAlias = Mapping[str, Any]

_MAX_STEPS = 2_000
_MAX_DEPTH = 40
_MAX_LIST_ENTRIES = 200
"""Maximum length of a list in a schema; longer lists are not checked."""
_MAX_NAME_CHARS = 60
_MAX_NAMED_FIELDS = 3
_TYPE_CHECKS: Mapping[str, Callable[[object], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "number": lambda value: _as_number(value) is not None,
    "integer": lambda value: (number := _as_number(value)) is not None and number == number // 1,
}
_NUMBER_BOUNDS: Mapping[str, tuple[Callable[[float, float], bool], str]] = {
    "minimum": (lambda value, bound: value < bound, "less than"),
    "maximum": (lambda value, bound: value > bound, "more than"),
    "exclusiveMinimum": (lambda value, bound: value <= bound, "not more than"),
    "exclusiveMaximum": (lambda value, bound: value >= bound, "not less than"),
}
_LENGTH_KEYWORDS = {str: ("minLength", "maxLength"), list: ("minItems", "maxItems")}


class _CheckLimitReached(Exception):
    """Raised when the limit of work is reached."""


def find_schema_mismatch(value: object, schema: object) -> str | None:
    """Return a description of the first mismatch with its path, None if none was detected."""
    try:
        return _SchemaChecker(schema).check_value(value, schema, "$", 0)
    except _CheckLimitReached:
        return None


class _SchemaChecker:
    """One validation. ``root`` is the schema in which references are resolved."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._steps_left = _MAX_STEPS

    def check_value(self, value: object, schema: object, path: str, depth: int) -> str | None:
        self._steps_left -= 1
        if self._steps_left < 0 or depth > _MAX_DEPTH:
            raise _CheckLimitReached
        if schema is False:
            return f"{path} is not allowed"
        if not isinstance(schema, Mapping) or (depth and "$id" in schema):
            return None  # with an own $id, references in the subschema would have another base
        fields = cast(Schema, schema)
        reference = fields.get("$ref")
        if isinstance(reference, str):
            return self.check_value(value, self._resolve_reference(reference), path, depth + 1)
        return next(filter(None, self._find_mismatches(value, fields, path, depth + 1)), None)

    def _find_mismatches(self, value: object, schema: Schema, path: str, depth: int) -> Iterator[str | None]:
        yield _check_type(value, schema, path)
        yield _check_enum(value, schema, path)
        yield _check_bounds(value, schema, path)
        for each in _as_short_list(schema.get("allOf")):
            yield self.check_value(value, each, path, depth)
        for keyword in ("anyOf", "oneOf"):
            branches = _as_short_list(schema.get(keyword))
            if branches and all(
                self.check_value(value, branch, path, depth) is not None for branch in branches
            ):
                yield f"{path} matches no branch of {keyword}"
        if isinstance(value, dict):
            yield from self._check_object(cast("dict[str, object]", value), schema, path, depth)
        elif isinstance(value, list):
            yield from self._check_array(cast("list[object]", value), schema, path, depth)

    def _check_object(
        self, value: dict[str, object], schema: Schema, path: str, depth: int
    ) -> Iterator[str | None]:
        required = [name for name in _as_short_list(schema.get("required")) if isinstance(name, str)]
        if missing := [_truncate_name(name) for name in required if name not in value]:
            yield f"{path} has no {', '.join(missing[:_MAX_NAMED_FIELDS])}"
        properties = schema.get("properties")
        fields = cast(Schema, properties) if isinstance(properties, Mapping) else cast(Schema, {})
        # Patterns are not evaluated, so with patternProperties any other name may be valid.
        others = None if "patternProperties" in schema else schema.get("additionalProperties")
        for name, field in value.items():
            yield self.check_value(field, fields.get(name, others), f"{path}.{_truncate_name(name)}", depth)

    def _check_array(
        self, value: list[object], schema: Schema, path: str, depth: int
    ) -> Iterator[str | None]:
        first, rest = _as_short_list(schema.get("prefixItems")), schema.get("items")
        if not first and rest is None:
            return
        for number, item in enumerate(value):
            item_schema = first[number] if number < len(first) else rest
            yield self.check_value(item, item_schema, f"{path}[{number}]", depth)

    def _resolve_reference(self, reference: str) -> object:
        """Return the target of a reference within the schema; None, which accepts everything, for others."""
        if reference != "#" and not reference.startswith("#/"):
            return None
        target = self._root
        for part in reference.split("/")[1:_MAX_DEPTH]:
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            target = cast(Schema, target).get(name) if isinstance(target, Mapping) else None
        return target


def _check_type(value: object, schema: Schema, path: str) -> str | None:
    keyword = schema.get("type")
    types = [keyword] if isinstance(keyword, str) else _as_short_list(keyword)
    names = [name for name in types if isinstance(name, str) and name in _TYPE_CHECKS]
    if not names or len(names) < len(types) or any(_TYPE_CHECKS[name](value) for name in names):
        return None
    return f"{path} is not of type {' or '.join(names)}"


def _check_enum(value: object, schema: Schema, path: str) -> str | None:
    allowed = [schema["const"]] if "const" in schema else _as_short_list(schema.get("enum"))
    if not allowed or isinstance(value, dict | list) or value in allowed:
        return None
    return f"{path} is not one of the allowed values"


def _check_bounds(value: object, schema: Schema, path: str) -> str | None:
    number = _as_number(value)
    if number is not None:
        for keyword, (is_outside, relation) in _NUMBER_BOUNDS.items():
            bound = _as_number(schema.get(keyword))
            if bound is not None and is_outside(number, bound):
                return f"{path} is {relation} {_truncate_name(str(bound))}"
    for kind, (min_keyword, max_keyword) in _LENGTH_KEYWORDS.items():
        if isinstance(value, kind):
            length = len(cast("str | list[object]", value))
            minimum, maximum = _as_number(schema.get(min_keyword)), _as_number(schema.get(max_keyword))
            if minimum is not None and length < minimum:
                return f"{path} is too short"
            if maximum is not None and length > maximum:
                return f"{path} is too long"
    return None


def _as_number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _as_short_list(value: object) -> list[object]:
    """Return ``value`` if it is a list within the limit of entries, else an empty list."""
    items = cast("list[object]", value) if isinstance(value, list) else []
    return items if len(items) <= _MAX_LIST_ENTRIES else []


def _truncate_name(name: str) -> str:
    return name if len(name) <= _MAX_NAME_CHARS else f"{name[:_MAX_NAME_CHARS]}…"
