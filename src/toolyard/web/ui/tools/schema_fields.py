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

__all__ = ["FieldKind", "FieldOption", "SchemaField", "read_schema_fields"]

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

_MAX_OBJECT_PROPERTIES = 60
"""Properties of one object. One with more is written as JSON."""
_MAX_FIELDS = 300
_MAX_NESTING_LEVELS = 5
_MAX_SCHEMA_PARTS = 32
_MAX_OPTIONS = 500
_MULTILINE_PROPERTY_NAMES = (
    "description",
    "content",
    "text",
    "body",
    "query",
    "prompt",
    "message",
    "code",
    "sql",
)
"""Names of parameters that often hold more than a line."""
_VARIANT_TITLES_BY_KIND = {
    "object": "Fields",
    "list": "List",
    "json": "JSON",
    "long": "Text",
    "integer": "Whole number",
    "flag": "Yes or no",
}
_INPUT_TYPE_BY_FORMAT = {"email": "email", "uri": "url", "date": "date", "date-time": "text", "time": "time"}


@dataclass(frozen=True, slots=True)
class FieldOption:
    """One of several values. ``value`` is JSON."""

    value: str
    label: str


@dataclass(frozen=True, slots=True)
class SchemaField:
    """One value of a form."""

    name: str
    kind: FieldKind
    required: bool = False
    title: str = ""
    help: str = ""
    options: tuple[FieldOption, ...] = ()
    """Of a choice and of several."""
    input: str = "text"
    """Of a text: what kind of text, as browsers call it."""
    default: str | None = None
    """As JSON; None where there is none."""
    fields: tuple[SchemaField, ...] = ()
    """Of an object."""
    item: SchemaField | None = None
    """Of a list."""
    variants: tuple[SchemaField, ...] = ()
    """What a variant may be, each with a title."""


def read_schema_fields(schema: JsonObject) -> tuple[SchemaField, ...]:
    """The fields for the properties of an object; none where there are none, or too many for a form."""
    return _SchemaReader(schema).read_properties(_merge_schema(schema, schema), 0)


class _SchemaReader:
    """Reads one schema. Counts what it makes, since a small schema can stand for very many fields."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._remaining_fields = _MAX_FIELDS

    def read_properties(self, schema: JsonObject, depth: int) -> tuple[SchemaField, ...]:
        """The fields of an object's properties, the required first."""
        listed = schema.get("properties")
        if (
            not isinstance(listed, Mapping)
            or not 0 < len(cast("JsonObject", listed)) <= _MAX_OBJECT_PROPERTIES
        ):
            return ()
        needed = set(map(str, _as_list(schema.get("required"))))
        fields = [
            self.field(name, part, name in needed, depth)
            for name, part in cast("Mapping[str, object]", listed).items()
        ]
        return tuple(sorted(fields, key=lambda field: not field.required))

    def field(self, name: str, part: object, required: bool, depth: int) -> SchemaField:
        """The field of one value."""
        self._remaining_fields -= 1
        schema = _merge_schema(part, self._root)
        made = self._build_field(name, schema, depth)
        return replace(
            made,
            name=name,
            required=required,
            title=_get_text(schema, "title") or made.title,
            help=_get_text(schema, "description") or made.help,
            default=_read_default(schema) if "default" in schema else made.default,
            kind="choice" if made.kind == "fixed" and not required else made.kind,
        )

    def _build_field(self, name: str, schema: JsonObject, depth: int) -> SchemaField:
        options = _read_options(schema)
        if options:
            return SchemaField(name, "fixed" if "const" in schema else "choice", options=options)
        if depth >= _MAX_NESTING_LEVELS or self._remaining_fields <= 0:
            return SchemaField(name, _choose_plain_kind(schema, name))
        alternatives = [] if schema.get("properties") else self._list_alternatives(schema)
        if alternatives:
            return self._build_variant_field(name, alternatives, depth)
        kind = _get_single_type(schema)
        if kind == "object" or (kind is None and schema.get("properties")):
            fields = self.read_properties(schema, depth + 1)
            return SchemaField(name, "object", fields=fields) if fields else SchemaField(name, "json")
        if kind == "array" and isinstance(schema.get("items"), Mapping):
            return self._build_list_field(name, schema["items"], depth)
        return SchemaField(
            name,
            _choose_plain_kind(schema, name),
            input=_INPUT_TYPE_BY_FORMAT.get(_get_text(schema, "format"), "text"),
        )

    def _list_alternatives(self, schema: JsonObject) -> list[object]:
        """What it may be, without null: that is a field that is left empty."""
        found = [*_as_list(schema.get("anyOf")), *_as_list(schema.get("oneOf"))]
        return [each for each in found if _get_single_type(_merge_schema(each, self._root)) != "null"]

    def _build_variant_field(self, name: str, alternatives: Sequence[object], depth: int) -> SchemaField:
        merged = [_merge_schema(each, self._root) for each in alternatives]
        options = [option for each in merged for option in _read_options(each)]
        if all(_read_options(each) for each in merged):
            return SchemaField(name, "choice", options=tuple(options[:_MAX_OPTIONS]))
        made = [self.field(name, each, True, depth) for each in alternatives]
        kinds = {each.kind for each in made}
        if len(made) == 1 or kinds <= {"text", "long"}:
            return made[0]
        if kinds == {"integer", "number"}:
            return SchemaField(name, "number")
        variants = tuple(replace(each, title=_choose_variant_title(each, at)) for at, each in enumerate(made))
        return SchemaField(name, "variant", variants=variants)

    def _build_list_field(self, name: str, items: object, depth: int) -> SchemaField:
        item = self.field("", items, True, depth + 1)
        if item.kind in ("choice", "fixed"):
            return SchemaField(name, "several", options=item.options)
        return SchemaField(name, "list", item=item)


# What schemas say.


def _merge_schema(part: object, root: JsonObject) -> JsonObject:
    """A schema, what it refers to and all that it must be too, as one; what stands first counts."""
    merged: dict[str, Any] = {}
    properties: dict[str, object] = {}
    required: list[object] = []
    for each in _iterate_schema_parts(part, root):
        listed = each.get("properties")
        if isinstance(listed, Mapping):
            properties = {**cast("JsonObject", listed), **properties}
        required += _as_list(each.get("required"))
        merged = {**each, **merged}
    if properties:
        merged["properties"] = properties
    merged["required"] = required
    return merged


def _iterate_schema_parts(part: object, root: JsonObject) -> Iterator[JsonObject]:
    """A few steps only, since a schema may go in circles."""
    waiting, left = [part], _MAX_SCHEMA_PARTS
    while waiting and left:
        one, left = waiting.pop(0), left - 1
        if not isinstance(one, Mapping):
            continue
        schema = cast("JsonObject", one)
        yield schema
        reference: object = schema.get("$ref")
        if isinstance(reference, str):
            waiting.append(_resolve_reference(reference, root))
        waiting += _as_list(schema.get("allOf"))


def _resolve_reference(reference: str, root: JsonObject) -> object:
    if not reference.startswith("#"):
        return None
    place: object = root
    for step in reference[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        place = _get_member(place, name)
    return place


def _get_member(place: object, name: str) -> object:
    return cast("JsonObject", place).get(name) if isinstance(place, Mapping) else None


def _get_single_type(schema: JsonObject) -> str | None:
    """The one type that it has, apart from null; None where there is none, or more than one."""
    named: object = schema.get("type")
    types = {each for each in _as_list(named) or [named] if isinstance(each, str)}
    if len(types) > 1:
        types.discard("null")
    return types.pop() if len(types) == 1 else None


def _choose_plain_kind(
    schema: JsonObject, name: str
) -> Literal["text", "long", "number", "integer", "flag", "json"]:
    match _get_single_type(schema):
        case "boolean":
            return "flag"
        case "integer":
            return "integer"
        case "number":
            return "number"
        case "string":
            return "long" if name.lower() in _MULTILINE_PROPERTY_NAMES and "format" not in schema else "text"
        case _:
            named = set(map(str, _as_list(schema.get("type")))) - {"null"}
            return "number" if named == {"integer", "number"} else "json"


def _read_options(schema: JsonObject) -> tuple[FieldOption, ...]:
    if "const" in schema:
        value = _encode_json(schema["const"])
        return (FieldOption(value, _get_text(schema, "title") or _format_option_label(schema["const"])),)
    values, names = _as_list(schema.get("enum")), _as_list(schema.get("enumNames"))
    labels = names if len(names) == len(values) else [None] * len(values)
    return tuple(
        FieldOption(
            _encode_json(value), str(label) if isinstance(label, str) else _format_option_label(value)
        )
        for value, label in zip(values[:_MAX_OPTIONS], labels, strict=False)
    )


def _format_option_label(value: object) -> str:
    return value if isinstance(value, str) and value else _encode_json(value)


def _choose_variant_title(field: SchemaField, at: int) -> str:
    if field.title:
        return field.title
    for inner in field.fields:
        if inner.kind == "fixed":
            return inner.options[0].label
    return _VARIANT_TITLES_BY_KIND.get(field.kind, field.kind.capitalize()) + (
        f" ({at + 1})" if field.kind == "object" else ""
    )


def _read_default(schema: JsonObject) -> str | None:
    return None if schema["default"] is None else _encode_json(schema["default"])


def _get_text(schema: JsonObject, name: str) -> str:
    found = schema.get(name)
    return found if isinstance(found, str) else ""


def _as_list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _encode_json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return "null"
