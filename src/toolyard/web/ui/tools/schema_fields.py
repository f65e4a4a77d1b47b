"""Form fields generated from a JSON Schema. The schema comes from a server and may be anything.

Parts that are too deep, too large or not understood become fields that take JSON. Values are not validated
against the schema here; the server does that.
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
"""Maximum number of properties of an object. Larger objects are entered as JSON."""
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
"""Names of parameters that get a multi-line field."""
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
    """An option of a choice. ``value`` is JSON."""

    value: str
    label: str


@dataclass(frozen=True, slots=True)
class SchemaField:
    """A field of a form."""

    name: str
    kind: FieldKind
    required: bool = False
    title: str = ""
    help: str = ""
    options: tuple[FieldOption, ...] = ()
    """Options, for the kinds ``choice``, ``several`` and ``fixed``."""
    input: str = "text"
    """HTML input type, for the kind ``text``."""
    default: str | None = None
    """Default as JSON; None without one."""
    fields: tuple[SchemaField, ...] = ()
    """Fields of an object."""
    item: SchemaField | None = None
    """Field for the entries of a list."""
    variants: tuple[SchemaField, ...] = ()
    """Alternatives of a variant, each with a title."""


def read_schema_fields(schema: JsonObject) -> tuple[SchemaField, ...]:
    """Return the fields for the properties of an object schema. Empty if there are none or too many."""
    return _SchemaReader(schema).read_properties(_merge_schema(schema, schema), 0)


class _SchemaReader:
    """Converts one schema to fields. It limits their number, because references can make a small schema
    expand to very many fields."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._remaining_fields = _MAX_FIELDS

    def read_properties(self, schema: JsonObject, depth: int) -> tuple[SchemaField, ...]:
        """Return the fields of an object's properties, required ones first."""
        properties = schema.get("properties")
        if (
            not isinstance(properties, Mapping)
            or not 0 < len(cast("JsonObject", properties)) <= _MAX_OBJECT_PROPERTIES
        ):
            return ()
        required = set(map(str, _as_list(schema.get("required"))))
        fields = [
            self.field(name, part, name in required, depth)
            for name, part in cast("Mapping[str, object]", properties).items()
        ]
        return tuple(sorted(fields, key=lambda field: not field.required))

    def field(self, name: str, part: object, required: bool, depth: int) -> SchemaField:
        """Return the field of one value."""
        self._remaining_fields -= 1
        schema = _merge_schema(part, self._root)
        field = self._build_field(name, schema, depth)
        return replace(
            field,
            name=name,
            required=required,
            title=_get_text(schema, "title") or field.title,
            help=_get_text(schema, "description") or field.help,
            default=_read_default(schema) if "default" in schema else field.default,
            kind="choice" if field.kind == "fixed" and not required else field.kind,
        )

    def _build_field(self, name: str, schema: JsonObject, depth: int) -> SchemaField:
        # Options take precedence over the type: an enum of numbers is a choice, too.
        options = _read_options(schema)
        if options:
            return SchemaField(name, "fixed" if "const" in schema else "choice", options=options)
        # Recursive schemas end here, with a field that takes JSON.
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
        """Return the alternatives of ``anyOf`` and ``oneOf`` without null (an empty field)."""
        alternatives = [*_as_list(schema.get("anyOf")), *_as_list(schema.get("oneOf"))]
        return [each for each in alternatives if _get_single_type(_merge_schema(each, self._root)) != "null"]

    def _build_variant_field(self, name: str, alternatives: Sequence[object], depth: int) -> SchemaField:
        merged = [_merge_schema(each, self._root) for each in alternatives]
        options = [option for each in merged for option in _read_options(each)]
        if all(_read_options(each) for each in merged):
            return SchemaField(name, "choice", options=tuple(options[:_MAX_OPTIONS]))
        made = [self.field(name, each, True, depth) for each in alternatives]
        kinds = {each.kind for each in made}
        # Alternatives that only differ in formats or patterns of strings share one text field.
        if len(made) == 1 or kinds <= {"text", "long"}:
            return made[0]
        if kinds == {"integer", "number"}:
            return SchemaField(name, "number")
        variants = tuple(replace(each, title=_choose_variant_title(each, at)) for at, each in enumerate(made))
        return SchemaField(name, "variant", variants=variants)

    def _build_list_field(self, name: str, items: object, depth: int) -> SchemaField:
        item = self.field("", items, True, depth + 1)
        # A list of options is shown as a group of checkboxes.
        if item.kind in ("choice", "fixed"):
            return SchemaField(name, "several", options=item.options)
        return SchemaField(name, "list", item=item)


# Reading schemas.


def _merge_schema(part: object, root: JsonObject) -> JsonObject:
    """Merge a schema with its ``$ref`` and ``allOf`` parts. Earlier parts take precedence."""
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
    """Yield a schema and its ``$ref`` and ``allOf`` parts.

    The number is limited, because references may be circular.
    """
    pending, left = [part], _MAX_SCHEMA_PARTS
    while pending and left:
        one, left = pending.pop(0), left - 1
        if not isinstance(one, Mapping):
            continue
        schema = cast("JsonObject", one)
        yield schema
        reference: object = schema.get("$ref")
        if isinstance(reference, str):
            pending.append(_resolve_reference(reference, root))
        pending += _as_list(schema.get("allOf"))


def _resolve_reference(reference: str, root: JsonObject) -> object:
    # References to other documents are never fetched.
    if not reference.startswith("#"):
        return None
    place: object = root
    for step in reference[1:].split("/")[1:]:
        # Escapes of JSON Pointer (RFC 6901); the order matters.
        name = step.replace("~1", "/").replace("~0", "~")
        place = _get_member(place, name)
    return place


def _get_member(place: object, name: str) -> object:
    return cast("JsonObject", place).get(name) if isinstance(place, Mapping) else None


def _get_single_type(schema: JsonObject) -> str | None:
    """Return the type of a schema apart from null; None if it has no type or several."""
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
    value = schema.get(name)
    return value if isinstance(value, str) else ""


def _as_list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _encode_json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return "null"
