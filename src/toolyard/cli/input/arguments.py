"""Tool arguments on the command line: a JSON object, ``key=value`` words, or JSON on standard input.

``key=value`` is converted by the tool's input schema, of which ``SchemaNode`` reads the parts needed;
``key:=json`` is parsed as JSON, and dots address nested objects. Values without a schema stay strings: the
server validates them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, TextIO, TypeAlias, cast

from toolyard.cli.error_exit import Usage

__all__ = ["JSON_TYPES", "Schema", "SchemaNode", "coerce_key_values", "needs_schema", "read_json_arguments"]


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

    def get_items(self) -> SchemaNode:
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

    def allowed_values(self) -> list[Any]:
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


KeyPath: TypeAlias = tuple[str, ...]

_ARGUMENT_PATTERN = re.compile(r"(?P<key>[^=]+?)(?P<raw>:?)=(?P<value>.*)", re.DOTALL)
_ARGUMENT_FORMS_HINT = "pass one JSON object, key=value arguments, or - to read JSON from standard input"
_STDIN_LABEL = "standard input"
_TRUE_WORDS, _FALSE_WORDS = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def needs_schema(words: Sequence[str]) -> bool:
    """Return whether the words are ``key=value`` pairs, which need a schema."""
    return bool(words) and words[0] != "-" and not words[0].lstrip().startswith("{")


def read_json_arguments(words: Sequence[str], stdin: TextIO) -> dict[str, Any]:
    """Return the arguments of words that need no schema. Raises Usage."""
    if not words:
        return {}
    if len(words) > 1:
        raise Usage(f"{words[0][:20]!r} cannot be combined with other arguments", hint=_ARGUMENT_FORMS_HINT)
    where = _STDIN_LABEL if words[0] == "-" else "the arguments"
    try:
        text = stdin.read() if words[0] == "-" else words[0]
    except UnicodeDecodeError:
        raise Usage(f"{where}: the text is not valid UTF-8") from None
    value = _parse_json(text, where)
    if not isinstance(value, dict):
        raise Usage(
            f"{where}: expected a JSON object, found {_describe_json_type(value)}", hint=_ARGUMENT_FORMS_HINT
        )
    return cast("dict[str, Any]", value)


def coerce_key_values(words: Sequence[str], schema: Schema) -> dict[str, Any]:
    """Return the arguments of ``key=value`` words. Raises Usage, naming the key."""
    arguments: dict[str, Any] = {}
    for word in words:
        found = _ARGUMENT_PATTERN.fullmatch(word)
        if found is None:
            raise Usage(f"expected key=value, found {word[:60]!r}", hint=_ARGUMENT_FORMS_HINT)
        key, text = found["key"], found["value"]
        path, part = _resolve_key(key, SchemaNode(schema))
        holder = _find_parent(arguments, path, key)
        if not found["raw"] and _is_list_item(text, part):
            _append_item(holder, path[-1], _coerce_text(text, part.get_items(), key), key)
        else:
            _set_value(
                holder,
                path[-1],
                _parse_json(text, key) if found["raw"] else _coerce_text(text, part, key),
                key,
            )
    return arguments


# Resolving keys.


def _resolve_key(key: str, node: SchemaNode) -> tuple[KeyPath, SchemaNode]:
    """Return the steps of a key, and the schema at its end. A property name that contains dots takes
    precedence."""
    if node.has_property(key) or "." not in key:
        return (key,), node.get_property(key)
    first = node.first_key_segment(key)
    rest, end = _resolve_key(key[len(first) + 1 :], node.get_property(first))
    return (first, *rest), end


def _find_parent(arguments: dict[str, Any], path: KeyPath, key: str) -> dict[str, Any]:
    place = arguments
    for step in path[:-1]:
        below = place.setdefault(step, {})
        if not isinstance(below, dict):
            raise Usage(f"{key}: '{step}' already has a value, so it cannot contain other keys")
        place = cast("dict[str, Any]", below)
    return place


def _set_value(parent: dict[str, Any], name: str, value: Any, key: str) -> None:
    if name in parent:
        raise Usage(f"{key} is given twice", hint="only keys of lists can be repeated")
    parent[name] = value


def _append_item(parent: dict[str, Any], name: str, value: Any, key: str) -> None:
    held = parent.setdefault(name, [])
    if not isinstance(held, list):
        raise Usage(f"{key} is given twice", hint="only keys of lists can be repeated")
    cast("list[Any]", held).append(value)


# Converting values.


def _is_list_item(text: str, node: SchemaNode) -> bool:
    """Return whether a text is one item of a list, not the whole list as JSON, nor null."""
    types = node.allowed_types()
    if "array" not in types or not types <= {"array", "null"} or text.lstrip().startswith("["):
        return False
    return not (text == "null" and "null" in types)


def _coerce_text(text: str, node: SchemaNode, key: str) -> Any:
    types, choices = node.allowed_types(), node.allowed_values()
    if text not in choices:
        for choice in choices:
            if not isinstance(choice, str) and json.dumps(choice) == text:
                return choice
    for type_, read in _PARSERS_BY_TYPE.items():
        if type_ in types and (value := read(text)) is not _NO_VALUE:
            return value
    if not types or "string" in types:
        return text
    expected = " or ".join(_TYPE_DESCRIPTIONS[type_] for type_ in _TYPE_DESCRIPTIONS if type_ in types)
    hint = f"{key}:=… accepts JSON" if types & {"array", "object"} else None
    raise Usage(f"{key}: expected {expected}, found {text[:60]!r}", hint=hint)


_NO_VALUE = object()


def _parse_null(text: str) -> object:
    return None if text == "null" else _NO_VALUE


def _parse_boolean(text: str) -> object:
    word = text.casefold()
    return word in _TRUE_WORDS if word in _TRUE_WORDS + _FALSE_WORDS else _NO_VALUE


def _parse_integer(text: str) -> object:
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,4000}", text) else _NO_VALUE


def _parse_number(text: str) -> object:
    if isinstance(whole := _parse_integer(text), int):
        return whole
    try:
        value = float(text)
    except ValueError:
        return _NO_VALUE
    return value if abs(value) < float("inf") else _NO_VALUE


def _parse_object(text: str) -> object:
    return _parse_structure(text, "{")


def _parse_array(text: str) -> object:
    return _parse_structure(text, "[")


def _parse_structure(text: str, opening: str) -> object:
    if not text.lstrip().startswith(opening):
        return _NO_VALUE
    try:
        return _load_strict_json(text)
    except (ValueError, RecursionError):
        return _NO_VALUE


_PARSERS_BY_TYPE: dict[str, Callable[[str], object]] = {
    "null": _parse_null,
    "boolean": _parse_boolean,
    "integer": _parse_integer,
    "number": _parse_number,
    "object": _parse_object,
    "array": _parse_array,
}
"""Parsers by type, the strictest first. A string is the fallback."""
_TYPE_DESCRIPTIONS = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "object": "a JSON object",
    "array": "a JSON list",
    "null": "null",
}


def _parse_json(text: str, source: str) -> Any:
    try:
        return _load_strict_json(text)
    except RecursionError:
        raise Usage(f"{source}: not valid JSON: too deeply nested") from None
    except ValueError as error:
        hint = None if source == _STDIN_LABEL else "quote it for the shell: '{\"key\": 1}'"
        raise Usage(f"{source}: not valid JSON: {error}", hint=hint) from None


def _load_strict_json(text: str) -> Any:
    """Parse standard JSON. Raises ValueError for NaN and infinities too."""
    return json.loads(text, parse_float=_parse_finite_float, parse_constant=_parse_finite_float)


def _parse_finite_float(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text} is not a valid JSON number")
    return number


def _describe_json_type(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    return "a list" if isinstance(value, list) else "a text" if isinstance(value, str) else "a number"
