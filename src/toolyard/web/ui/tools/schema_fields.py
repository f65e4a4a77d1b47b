"""The fields of a form, from a JSON Schema that a server wrote: whatever it is, there is a form for it.

Where a schema is too deep, too large or says nothing of use, the field takes JSON. Nothing is validated here:
the server is who does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, cast

from toolyard.types.tool import JsonObject

__all__ = ["Field", "FieldKind", "Option", "fields_of"]

FieldKind: TypeAlias = Literal[
    "text",
    "long",
    "number",
    "integer",
    "flag",
    "choice",
    "several",
    "json",
    "fixed",
    "object",
    "list",
    "variant",
]

_MOST = 60
"""Properties of one object. One with more is written as JSON."""
_MOST_FIELDS = 300
_DEEPEST = 5
_HOPS = 32
_MOST_OPTIONS = 500
_LONG = ("description", "content", "text", "body", "query", "prompt", "message", "code", "sql")
"""Names of parameters that often hold more than a line."""
_INPUTS = {"email": "email", "uri": "url", "date": "date", "date-time": "text", "time": "time"}


@dataclass(frozen=True, slots=True)
class Option:
    """One of several values. ``value`` is JSON."""

    value: str
    label: str


@dataclass(frozen=True, slots=True)
class Field:
    """One value of a form."""

    name: str
    kind: FieldKind
    required: bool = False
    title: str = ""
    help: str = ""
    options: tuple[Option, ...] = ()
    """Of a choice and of several."""
    input: str = "text"
    """Of a text: what kind of text, as browsers call it."""
    default: str | None = None
    """As JSON; None where there is none."""
    fields: tuple[Field, ...] = ()
    """Of an object."""
    item: Field | None = None
    """Of a list."""
    variants: tuple[Field, ...] = ()
    """What a variant may be, each with a title."""


def fields_of(schema: JsonObject) -> tuple[Field, ...]:
    """The fields for the properties of an object; none where there are none, or too many for a form."""
    return _Reader(schema).properties(_merged(schema, schema), 0)


class _Reader:
    """Reads one schema. Counts what it makes, since a small schema can stand for very many fields."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._left = _MOST_FIELDS

    def properties(self, schema: JsonObject, depth: int) -> tuple[Field, ...]:
        """The fields of an object's properties, the required first."""
        listed = schema.get("properties")
        if not isinstance(listed, Mapping) or not 0 < len(cast("JsonObject", listed)) <= _MOST:
            return ()
        needed = set(map(str, _list(schema.get("required"))))
        fields = [
            self.field(name, part, name in needed, depth)
            for name, part in cast("Mapping[str, object]", listed).items()
        ]
        return tuple(sorted(fields, key=lambda field: not field.required))

    def field(self, name: str, part: object, required: bool, depth: int) -> Field:
        """The field of one value."""
        self._left -= 1
        schema = _merged(part, self._root)
        made = self._shaped(name, schema, depth)
        return replace(
            made,
            name=name,
            required=required,
            title=_said(schema, "title") or made.title,
            help=_said(schema, "description") or made.help,
            default=_default(schema) if "default" in schema else made.default,
            kind="choice" if made.kind == "fixed" and not required else made.kind,
        )

    def _shaped(self, name: str, schema: JsonObject, depth: int) -> Field:
        options = _options(schema)
        if options:
            return Field(name, "fixed" if "const" in schema else "choice", options=options)
        if depth >= _DEEPEST or self._left <= 0:
            return Field(name, _plain(schema, name))
        alternatives = [] if schema.get("properties") else self._alternatives(schema)
        if alternatives:
            return self._one_of(name, alternatives, depth)
        kind = _type(schema)
        if kind == "object" or (kind is None and schema.get("properties")):
            fields = self.properties(schema, depth + 1)
            return Field(name, "object", fields=fields) if fields else Field(name, "json")
        if kind == "array" and isinstance(schema.get("items"), Mapping):
            return self._list(name, schema["items"], depth)
        return Field(name, _plain(schema, name), input=_INPUTS.get(_said(schema, "format"), "text"))

    def _alternatives(self, schema: JsonObject) -> list[object]:
        """What it may be, without null: that is a field that is left empty."""
        found = [*_list(schema.get("anyOf")), *_list(schema.get("oneOf"))]
        return [each for each in found if _type(_merged(each, self._root)) != "null"]

    def _one_of(self, name: str, alternatives: Sequence[object], depth: int) -> Field:
        merged = [_merged(each, self._root) for each in alternatives]
        options = [option for each in merged for option in _options(each)]
        if all(_options(each) for each in merged):
            return Field(name, "choice", options=tuple(options[:_MOST_OPTIONS]))
        made = [self.field(name, each, True, depth) for each in alternatives]
        kinds = {each.kind for each in made}
        if len(made) == 1 or kinds <= {"text", "long"}:
            return made[0]
        if kinds == {"integer", "number"}:
            return Field(name, "number")
        variants = tuple(replace(each, title=_variant_title(each, at)) for at, each in enumerate(made))
        return Field(name, "variant", variants=variants)

    def _list(self, name: str, items: object, depth: int) -> Field:
        item = self.field("", items, True, depth + 1)
        if item.kind in ("choice", "fixed"):
            return Field(name, "several", options=item.options)
        return Field(name, "list", item=item)


# What schemas say.


def _merged(part: object, root: JsonObject) -> JsonObject:
    """A schema, what it refers to and all that it must be too, as one; what stands first counts."""
    merged: dict[str, Any] = {}
    properties: dict[str, object] = {}
    required: list[object] = []
    for each in _parts(part, root):
        listed = each.get("properties")
        if isinstance(listed, Mapping):
            properties = {**cast("JsonObject", listed), **properties}
        required += _list(each.get("required"))
        merged = {**each, **merged}
    if properties:
        merged["properties"] = properties
    merged["required"] = required
    return merged


def _parts(part: object, root: JsonObject) -> Iterator[JsonObject]:
    """A few steps only, since a schema may go in circles."""
    waiting, left = [part], _HOPS
    while waiting and left:
        one, left = waiting.pop(0), left - 1
        if not isinstance(one, Mapping):
            continue
        schema = cast("JsonObject", one)
        yield schema
        reference: object = schema.get("$ref")
        if isinstance(reference, str):
            waiting.append(_referred(reference, root))
        waiting += _list(schema.get("allOf"))


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


def _type(schema: JsonObject) -> str | None:
    """The one type that it has, apart from null; None where there is none, or more than one."""
    named: object = schema.get("type")
    types = {each for each in _list(named) or [named] if isinstance(each, str)}
    if len(types) > 1:
        types.discard("null")
    return types.pop() if len(types) == 1 else None


def _plain(schema: JsonObject, name: str) -> Literal["text", "long", "number", "integer", "flag", "json"]:
    match _type(schema):
        case "boolean":
            return "flag"
        case "integer":
            return "integer"
        case "number":
            return "number"
        case "string":
            return "long" if name.lower() in _LONG and "format" not in schema else "text"
        case _:
            named = set(map(str, _list(schema.get("type")))) - {"null"}
            return "number" if named == {"integer", "number"} else "json"


def _options(schema: JsonObject) -> tuple[Option, ...]:
    if "const" in schema:
        value = _json(schema["const"])
        return (Option(value, _said(schema, "title") or _label(schema["const"])),)
    values, names = _list(schema.get("enum")), _list(schema.get("enumNames"))
    labels = names if len(names) == len(values) else [None] * len(values)
    return tuple(
        Option(_json(value), str(label) if isinstance(label, str) else _label(value))
        for value, label in zip(values[:_MOST_OPTIONS], labels, strict=False)
    )


def _label(value: object) -> str:
    return value if isinstance(value, str) and value else _json(value)


def _variant_title(field: Field, at: int) -> str:
    if field.title:
        return field.title
    for inner in field.fields:
        if inner.kind == "fixed":
            return inner.options[0].label
    return {"object": "Fields", "list": "A list", "json": "JSON"}.get(field.kind, f"A {field.kind}") + (
        f" ({at + 1})" if field.kind == "object" else ""
    )


def _default(schema: JsonObject) -> str | None:
    return None if schema["default"] is None else _json(schema["default"])


def _said(schema: JsonObject, name: str) -> str:
    found = schema.get(name)
    return found if isinstance(found, str) else ""


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return "null"
