"""A tool's arguments as people type them: a JSON object, ``key=value`` words, or JSON on standard input.

``key=value`` becomes what the tool's input schema says of that key; ``key:=json`` is JSON as it stands; dots
lead into objects. What the schema does not know stays a text: the server is the one who checks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any, TextIO, TypeAlias, cast

from toolyard.cli.error_exit import Usage
from toolyard.cli.input.schema_values import Part, Schema

__all__ = ["coerce_words", "needs_schema", "read_object"]

Path: TypeAlias = tuple[str, ...]

_WORD = re.compile(r"(?P<key>[^=]+?)(?P<raw>:?)=(?P<value>.*)", re.DOTALL)
_FORMS = "give one JSON object, or key=value words, or - to read JSON from standard input"
_STDIN = "standard input"
_YES, _NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def needs_schema(words: Sequence[str]) -> bool:
    """Whether the words are ``key=value``, which only a schema can read."""
    return bool(words) and words[0] != "-" and not words[0].lstrip().startswith("{")


def read_object(words: Sequence[str], stdin: TextIO) -> dict[str, Any]:
    """The arguments of words that need no schema. Raises Usage."""
    if not words:
        return {}
    if len(words) > 1:
        raise Usage(f"nothing may stand beside {words[0][:20]!r}", hint=_FORMS)
    where = _STDIN if words[0] == "-" else "the arguments"
    try:
        text = stdin.read() if words[0] == "-" else words[0]
    except UnicodeDecodeError:
        raise Usage(f"{where}: the text is not valid UTF-8") from None
    value = _json(text, where)
    if not isinstance(value, dict):
        raise Usage(f"{where}: expected a JSON object, found {_kind(value)}", hint=_FORMS)
    return cast("dict[str, Any]", value)


def coerce_words(words: Sequence[str], schema: Schema) -> dict[str, Any]:
    """The arguments of ``key=value`` words. Raises Usage, naming the key."""
    arguments: dict[str, Any] = {}
    for word in words:
        found = _WORD.fullmatch(word)
        if found is None:
            raise Usage(f"expected key=value, found {word[:60]!r}", hint=_FORMS)
        key, text = found["key"], found["value"]
        path, part = _place(key, Part(schema))
        holder = _holder(arguments, path, key)
        if not found["raw"] and _is_item(text, part):
            _append(holder, path[-1], _coerced(text, part.items(), key), key)
        else:
            _put(holder, path[-1], _json(text, key) if found["raw"] else _coerced(text, part, key), key)
    return arguments


# Where a key leads.


def _place(key: str, part: Part) -> tuple[Path, Part]:
    """The steps of a key, and what the schema says of its end. A name that holds dots itself comes first."""
    if part.has(key) or "." not in key:
        return (key,), part.property(key)
    first = part.longest_before_dot(key)
    rest, end = _place(key[len(first) + 1 :], part.property(first))
    return (first, *rest), end


def _holder(arguments: dict[str, Any], path: Path, key: str) -> dict[str, Any]:
    place = arguments
    for step in path[:-1]:
        below = place.setdefault(step, {})
        if not isinstance(below, dict):
            raise Usage(f"{key}: '{step}' has a value already, so nothing can stand below it")
        place = cast("dict[str, Any]", below)
    return place


def _put(holder: dict[str, Any], name: str, value: Any, key: str) -> None:
    if name in holder:
        raise Usage(f"{key} is given twice", hint="only the key of a list can be repeated")
    holder[name] = value


def _append(holder: dict[str, Any], name: str, value: Any, key: str) -> None:
    held = holder.setdefault(name, [])
    if not isinstance(held, list):
        raise Usage(f"{key} is given twice", hint="only the key of a list can be repeated")
    cast("list[Any]", held).append(value)


# What a text becomes.


def _is_item(text: str, part: Part) -> bool:
    """Whether the text is one item of a list, and not the whole list as JSON, or null."""
    types = part.types()
    if "array" not in types or not types <= {"array", "null"} or text.lstrip().startswith("["):
        return False
    return not (text == "null" and "null" in types)


def _coerced(text: str, part: Part, key: str) -> Any:
    types, choices = part.types(), part.choices()
    if text not in choices:
        for choice in choices:
            if not isinstance(choice, str) and json.dumps(choice) == text:
                return choice
    for type_, read in _READERS.items():
        if type_ in types and (value := read(text)) is not _NO_VALUE:
            return value
    if not types or "string" in types:
        return text
    expected = " or ".join(_WORDS[type_] for type_ in _WORDS if type_ in types)
    hint = f"{key}:=… takes JSON as it stands" if types & {"array", "object"} else None
    raise Usage(f"{key}: expected {expected}, found {text[:60]!r}", hint=hint)


_NO_VALUE = object()


def _null(text: str) -> object:
    return None if text == "null" else _NO_VALUE


def _boolean(text: str) -> object:
    word = text.casefold()
    return word in _YES if word in _YES + _NO else _NO_VALUE


def _integer(text: str) -> object:
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,4000}", text) else _NO_VALUE


def _number(text: str) -> object:
    if isinstance(whole := _integer(text), int):
        return whole
    try:
        value = float(text)
    except ValueError:
        return _NO_VALUE
    return value if abs(value) < float("inf") else _NO_VALUE


def _object(text: str) -> object:
    return _structure(text, "{")


def _array(text: str) -> object:
    return _structure(text, "[")


def _structure(text: str, opening: str) -> object:
    if not text.lstrip().startswith(opening):
        return _NO_VALUE
    try:
        return _loaded(text)
    except (ValueError, RecursionError):
        return _NO_VALUE


_READERS: dict[str, Callable[[str], object]] = {
    "null": _null,
    "boolean": _boolean,
    "integer": _integer,
    "number": _number,
    "object": _object,
    "array": _array,
}
"""By type, the strictest first. A text is what is left when no other fits."""
_WORDS = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "object": "a JSON object",
    "array": "a JSON list",
    "null": "null",
}


def _json(text: str, where: str) -> Any:
    try:
        return _loaded(text)
    except RecursionError:
        raise Usage(f"{where}: no valid JSON: too deeply nested") from None
    except ValueError as error:
        hint = None if where == _STDIN else "quote it for the shell: '{\"key\": 1}'"
        raise Usage(f"{where}: no valid JSON: {error}", hint=hint) from None


def _loaded(text: str) -> Any:
    """JSON as every server reads it. Raises ValueError also for numbers that it does not have."""
    return json.loads(text, parse_float=_finite, parse_constant=_finite)


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text} is a number that JSON does not have")
    return number


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    return "a list" if isinstance(value, list) else "a text" if isinstance(value, str) else "a number"
