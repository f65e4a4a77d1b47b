"""A form from a tool's input schema, and arguments from what was filled in. The server is who validates."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from toolyard.model.tool import JsonObject
from toolyard.web.ui.forms import Posted

__all__ = ["ArgumentField", "BadArguments", "argument_fields", "read_arguments"]

_MOST = 60
"""Fields. A tool with more takes its arguments as JSON."""
_HOPS = 32
_LONG = ("description", "content", "text", "body", "query", "prompt", "message", "code", "sql")
"""Names of parameters that often hold more than a line."""


class BadArguments(Exception):
    """What was filled in is no argument; ``errors`` by field."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("; ".join(errors.values()))
        self.errors = dict(errors)


@dataclass(frozen=True, slots=True)
class ArgumentField:
    """One parameter. ``field`` is its name in the form: a tool's own names may be anything."""

    field: str
    name: str
    kind: Literal["text", "long", "number", "integer", "flag", "choice", "json"]
    required: bool
    help: str
    options: tuple[str, ...] = ()
    """For a choice, each as JSON."""
    default: str = ""


def argument_fields(schema: JsonObject) -> tuple[ArgumentField, ...]:
    """The fields of a tool's form: none where its schema is too large, or not of plain properties."""
    properties: dict[str, object] = {}
    required: set[str] = set()
    for branch in _branches(schema, schema, alternatives=False):
        listed, needed = branch.get("properties"), branch.get("required")
        if isinstance(listed, Mapping):
            properties.update(cast("Mapping[str, object]", listed))
        if isinstance(needed, list):
            required |= {each for each in cast("list[object]", needed) if isinstance(each, str)}
    if len(properties) > _MOST:
        return ()
    fields = [
        _field(index, name, part, schema, name in required)
        for index, (name, part) in enumerate(properties.items())
    ]
    return tuple(sorted(fields, key=lambda field: not field.required))


def read_arguments(form: Posted, fields: tuple[ArgumentField, ...]) -> dict[str, Any]:
    """The arguments: the JSON where some was written, else the fields that are not empty. Raises
    BadArguments."""
    written = form.text("json").strip()
    if written:
        return _object(written)
    errors: dict[str, str] = {}
    arguments: dict[str, Any] = {}
    for field in fields:
        text = form.text(field.field)
        if not text.strip():
            if field.required and field.kind not in ("text", "long"):
                errors[field.field] = f"“{field.name}” is required."
            elif field.required:
                arguments[field.name] = text
            continue
        try:
            arguments[field.name] = _READERS[field.kind](text)
        except (ValueError, RecursionError):
            errors[field.field] = f"“{field.name}” is not {_WORDS[field.kind]}."
    if errors:
        raise BadArguments(errors)
    return arguments


def _object(text: str) -> dict[str, Any]:
    try:
        value: object = json.loads(text)
    except ValueError as error:
        raise BadArguments({"json": f"This is no valid JSON: {error}."}) from None
    except RecursionError:
        raise BadArguments({"json": "This JSON is nested too deeply."}) from None
    if not isinstance(value, dict):
        raise BadArguments({"json": 'Arguments are a JSON object, such as {"path": "/tmp"}.'})
    return cast("dict[str, Any]", value)


def _integer(text: str) -> int:
    if len(text) > 400:
        raise ValueError("too long")
    return int(text.strip())


def _number(text: str) -> float | int:
    try:
        return _integer(text)
    except ValueError:
        value = float(text)
        if value != value or abs(value) == float("inf"):
            raise ValueError("no JSON number") from None
        return value


_READERS: dict[str, Callable[[str], Any]] = {
    "text": str,
    "long": str,
    "number": _number,
    "integer": _integer,
    "flag": json.loads,
    "choice": json.loads,
    "json": json.loads,
}
_WORDS = {
    "number": "a number",
    "integer": "a whole number",
    "flag": "true or false",
    "choice": "one of the choices",
    "json": "valid JSON",
}


def _field(index: int, name: str, part: object, root: JsonObject, required: bool) -> ArgumentField:
    branches = list(_branches(part, root))
    described = next(
        (each["description"] for each in branches if isinstance(each.get("description"), str)), ""
    )
    default = next((each["default"] for each in branches if "default" in each), None)
    options = tuple(json.dumps(each, ensure_ascii=False) for each in _choices(branches))
    kind = "choice" if options else _kind(branches, name)
    shown = "" if default is None else default if isinstance(default, str) else json.dumps(default)
    if options and default is not None:
        shown = json.dumps(default, ensure_ascii=False)
    return ArgumentField(f"arg-{index}", name, kind, required, str(described), options, shown)


def _kind(
    branches: list[JsonObject], name: str
) -> Literal["text", "long", "number", "integer", "flag", "json"]:
    types: set[str] = set()
    for branch in branches:
        named: object = branch.get("type")
        found = cast("list[object]", named) if isinstance(named, list) else [named]
        types |= {each for each in found if isinstance(each, str)}
    types.discard("null")
    if types == {"boolean"}:
        return "flag"
    if types == {"integer"}:
        return "integer"
    if types in ({"number"}, {"number", "integer"}):
        return "number"
    if types == {"string"}:
        return "long" if name.lower() in _LONG else "text"
    return "json"


def _choices(branches: list[JsonObject]) -> list[object]:
    found: list[object] = []
    for branch in branches:
        listed: object = branch.get("enum")
        if isinstance(listed, list):
            found += cast("list[object]", listed)
        elif "const" in branch:
            found.append(branch["const"])
    return found[:500]


def _branches(part: object, root: JsonObject, *, alternatives: bool = True) -> Iterator[JsonObject]:
    """The schema itself, what it refers to and is made of; a few steps only, since it may go in circles."""
    waiting, left = [part], _HOPS
    keys = ("allOf", "anyOf", "oneOf") if alternatives else ("allOf",)
    while waiting and left:
        one, left = waiting.pop(0), left - 1
        if not isinstance(one, Mapping):
            continue
        schema = cast("JsonObject", one)
        yield schema
        reference: object = schema.get("$ref")
        if isinstance(reference, str):
            waiting.append(_referred(reference, root))
        for key in keys:
            parts: object = schema.get(key)
            if isinstance(parts, list):
                waiting += cast("list[object]", parts)


def _referred(reference: str, root: JsonObject) -> object:
    if not reference.startswith("#"):
        return None
    place: object = root
    for step in reference[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        place = _member(place, name)
    return place


def _member(place: object, name: str) -> object:
    return cast("JsonObject", place).get(name) if isinstance(place, Mapping) else None
