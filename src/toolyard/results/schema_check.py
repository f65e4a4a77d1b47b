"""Whether a value fits a JSON Schema, as far as that can be said at little cost.

It is for warnings: what is not looked at fits, as patterns, formats, references to other places, long lists
of choices, and whatever nests deeply or is very much. Schema and value come from a server: all is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

__all__ = ["misfit"]

Schema: TypeAlias = Mapping[str, Any]

_STEPS = 2_000
_DEPTH = 40
_LONGEST = 200
"""Entries of a list in a schema up to which it is looked at."""
_SHOWN = 60
_NAMED = 3
_TYPES: Mapping[str, Callable[[object], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "number": lambda value: _number(value) is not None,
    "integer": lambda value: (number := _number(value)) is not None and number == number // 1,
}
_BOUNDS: Mapping[str, tuple[Callable[[float, float], bool], str]] = {
    "minimum": (lambda value, bound: value < bound, "less than"),
    "maximum": (lambda value, bound: value > bound, "more than"),
    "exclusiveMinimum": (lambda value, bound: value <= bound, "not more than"),
    "exclusiveMaximum": (lambda value, bound: value >= bound, "not less than"),
}
_LENGTHS = {str: ("minLength", "maxLength"), list: ("minItems", "maxItems")}


class _Enough(Exception):
    """No more is looked at."""


def misfit(value: object, schema: object) -> str | None:
    """What of a value does not fit, and where; None where nothing is known against it."""
    try:
        return _Look(schema).at(value, schema, "$", 0)
    except _Enough:
        return None


class _Look:
    """One look at a value; ``root`` is what references in the schema start from."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._left = _STEPS

    def at(self, value: object, schema: object, place: str, depth: int) -> str | None:
        self._left -= 1
        if self._left < 0 or depth > _DEPTH:
            raise _Enough
        if schema is False:
            return f"{place} may not be there"
        if not isinstance(schema, Mapping) or (depth and "$id" in schema):
            return None
        given = cast(Schema, schema)
        reference = given.get("$ref")
        if isinstance(reference, str):
            return self.at(value, self._target(reference), place, depth + 1)
        return next(filter(None, self._complaints(value, given, place, depth + 1)), None)

    def _complaints(self, value: object, schema: Schema, place: str, depth: int) -> Iterator[str | None]:
        yield _kind(value, schema, place)
        yield _choice(value, schema, place)
        yield _size(value, schema, place)
        for each in _list(schema.get("allOf")):
            yield self.at(value, each, place, depth)
        for word in ("anyOf", "oneOf"):
            ways = _list(schema.get(word))
            if ways and all(self.at(value, each, place, depth) is not None for each in ways):
                yield f"{place} fits nothing of {word}"
        if isinstance(value, dict):
            yield from self._fields(cast("dict[str, object]", value), schema, place, depth)
        elif isinstance(value, list):
            yield from self._items(cast("list[object]", value), schema, place, depth)

    def _fields(
        self, value: dict[str, object], schema: Schema, place: str, depth: int
    ) -> Iterator[str | None]:
        wanted = [name for name in _list(schema.get("required")) if isinstance(name, str)]
        if missing := [_short(name) for name in wanted if name not in value]:
            yield f"{place} has no {', '.join(missing[:_NAMED])}"
        known = schema.get("properties")
        fields = cast(Schema, known) if isinstance(known, Mapping) else cast(Schema, {})
        others = None if "patternProperties" in schema else schema.get("additionalProperties")
        for name, field in value.items():
            yield self.at(field, fields.get(name, others), f"{place}.{_short(name)}", depth)

    def _items(self, value: list[object], schema: Schema, place: str, depth: int) -> Iterator[str | None]:
        first, rest = _list(schema.get("prefixItems")), schema.get("items")
        if not first and rest is None:
            return
        for number, item in enumerate(value):
            yield self.at(item, first[number] if number < len(first) else rest, f"{place}[{number}]", depth)

    def _target(self, reference: str) -> object:
        """What a reference within the schema leads to; None, which everything fits, for every other."""
        if reference != "#" and not reference.startswith("#/"):
            return None
        found = self._root
        for part in reference.split("/")[1:_DEPTH]:
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            found = cast(Schema, found).get(name) if isinstance(found, Mapping) else None
        return found


def _kind(value: object, schema: Schema, place: str) -> str | None:
    given = schema.get("type")
    wanted = [given] if isinstance(given, str) else _list(given)
    names = [name for name in wanted if isinstance(name, str) and name in _TYPES]
    if not names or len(names) < len(wanted) or any(_TYPES[name](value) for name in names):
        return None
    return f"{place} is not of type {' or '.join(names)}"


def _choice(value: object, schema: Schema, place: str) -> str | None:
    among = [schema["const"]] if "const" in schema else _list(schema.get("enum"))
    if not among or isinstance(value, dict | list) or value in among:
        return None
    return f"{place} is none of the values that it may have"


def _size(value: object, schema: Schema, place: str) -> str | None:
    number = _number(value)
    if number is not None:
        for word, (is_out, words) in _BOUNDS.items():
            bound = _number(schema.get(word))
            if bound is not None and is_out(number, bound):
                return f"{place} is {words} {_short(str(bound))}"
    for kind, (least, most) in _LENGTHS.items():
        if isinstance(value, kind):
            length = len(cast("str | list[object]", value))
            low, high = _number(schema.get(least)), _number(schema.get(most))
            if low is not None and length < low:
                return f"{place} is too short"
            if high is not None and length > high:
                return f"{place} is too long"
    return None


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _list(value: object) -> list[object]:
    """A list that is not too long to be looked at, else an empty one."""
    found = cast("list[object]", value) if isinstance(value, list) else []
    return found if len(found) <= _LONGEST else []


def _short(name: str) -> str:
    return name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"
