"""Whether a value fits a JSON Schema, as far as that can be said at little cost.

It is for warnings: what is not looked at fits, as patterns, formats, references to other places, long lists
of choices, and whatever nests deeply or is very much. Schema and value come from a server: all is bounded.
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
"""Entries of a list in a schema up to which it is looked at."""
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
    """No more is looked at."""


def find_schema_mismatch(value: object, schema: object) -> str | None:
    """What of a value does not fit, and where; None where nothing is known against it."""
    try:
        return _SchemaChecker(schema).at(value, schema, "$", 0)
    except _CheckLimitReached:
        return None


class _SchemaChecker:
    """One look at a value; ``root`` is what references in the schema start from."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._steps_left = _MAX_STEPS

    def at(self, value: object, schema: object, path: str, depth: int) -> str | None:
        self._steps_left -= 1
        if self._steps_left < 0 or depth > _MAX_DEPTH:
            raise _CheckLimitReached
        if schema is False:
            return f"{path} may not be there"
        if not isinstance(schema, Mapping) or (depth and "$id" in schema):
            return None
        given = cast(Schema, schema)
        reference = given.get("$ref")
        if isinstance(reference, str):
            return self.at(value, self._resolve_reference(reference), path, depth + 1)
        return next(filter(None, self._find_mismatches(value, given, path, depth + 1)), None)

    def _find_mismatches(self, value: object, schema: Schema, place: str, depth: int) -> Iterator[str | None]:
        yield _check_type(value, schema, place)
        yield _check_enum(value, schema, place)
        yield _check_bounds(value, schema, place)
        for each in _as_short_list(schema.get("allOf")):
            yield self.at(value, each, place, depth)
        for word in ("anyOf", "oneOf"):
            ways = _as_short_list(schema.get(word))
            if ways and all(self.at(value, each, place, depth) is not None for each in ways):
                yield f"{place} fits nothing of {word}"
        if isinstance(value, dict):
            yield from self._check_object(cast("dict[str, object]", value), schema, place, depth)
        elif isinstance(value, list):
            yield from self._check_array(cast("list[object]", value), schema, place, depth)

    def _check_object(
        self, value: dict[str, object], schema: Schema, place: str, depth: int
    ) -> Iterator[str | None]:
        wanted = [name for name in _as_short_list(schema.get("required")) if isinstance(name, str)]
        if missing := [_truncate_name(name) for name in wanted if name not in value]:
            yield f"{place} has no {', '.join(missing[:_MAX_NAMED_FIELDS])}"
        known = schema.get("properties")
        fields = cast(Schema, known) if isinstance(known, Mapping) else cast(Schema, {})
        others = None if "patternProperties" in schema else schema.get("additionalProperties")
        for name, field in value.items():
            yield self.at(field, fields.get(name, others), f"{place}.{_truncate_name(name)}", depth)

    def _check_array(
        self, value: list[object], schema: Schema, place: str, depth: int
    ) -> Iterator[str | None]:
        first, rest = _as_short_list(schema.get("prefixItems")), schema.get("items")
        if not first and rest is None:
            return
        for number, item in enumerate(value):
            yield self.at(item, first[number] if number < len(first) else rest, f"{place}[{number}]", depth)

    def _resolve_reference(self, reference: str) -> object:
        """What a reference within the schema leads to; None, which everything fits, for every other."""
        if reference != "#" and not reference.startswith("#/"):
            return None
        found = self._root
        for part in reference.split("/")[1:_MAX_DEPTH]:
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            found = cast(Schema, found).get(name) if isinstance(found, Mapping) else None
        return found


def _check_type(value: object, schema: Schema, place: str) -> str | None:
    given = schema.get("type")
    wanted = [given] if isinstance(given, str) else _as_short_list(given)
    names = [name for name in wanted if isinstance(name, str) and name in _TYPE_CHECKS]
    if not names or len(names) < len(wanted) or any(_TYPE_CHECKS[name](value) for name in names):
        return None
    return f"{place} is not of type {' or '.join(names)}"


def _check_enum(value: object, schema: Schema, place: str) -> str | None:
    among = [schema["const"]] if "const" in schema else _as_short_list(schema.get("enum"))
    if not among or isinstance(value, dict | list) or value in among:
        return None
    return f"{place} is none of the values that it may have"


def _check_bounds(value: object, schema: Schema, place: str) -> str | None:
    number = _as_number(value)
    if number is not None:
        for word, (is_out, words) in _NUMBER_BOUNDS.items():
            bound = _as_number(schema.get(word))
            if bound is not None and is_out(number, bound):
                return f"{place} is {words} {_truncate_name(str(bound))}"
    for kind, (least, most) in _LENGTH_KEYWORDS.items():
        if isinstance(value, kind):
            length = len(cast("str | list[object]", value))
            low, high = _as_number(schema.get(least)), _as_number(schema.get(most))
            if low is not None and length < low:
                return f"{place} is too short"
            if high is not None and length > high:
                return f"{place} is too long"
    return None


def _as_number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _as_short_list(value: object) -> list[object]:
    """A list that is not too long to be looked at, else an empty one."""
    found = cast("list[object]", value) if isinstance(value, list) else []
    return found if len(found) <= _MAX_LIST_ENTRIES else []


def _truncate_name(name: str) -> str:
    return name if len(name) <= _MAX_NAME_CHARS else f"{name[:_MAX_NAME_CHARS]}…"
