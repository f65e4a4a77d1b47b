"""Fields that people fill in, read from a JSON Schema, and the conversion of their input to values.

The browser's forms, the terminal's questions and ``key=value`` arguments all read schemas here and share the
descriptions of expected input. A schema comes from a server and may be anything: references are resolved
within it and never fetched, depth and size are limited, and parts that are too deep, too large or not
understood become fields that take JSON.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from math import isfinite
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from toolyard.catalog.schemas.normalize import resolve_reference
from toolyard.catalog.schemas.schema_merge import JSON_TYPES
from toolyard.types.json_values import list_or_empty, object_or_empty, text_or_empty
from toolyard.types.tool import JsonObject

__all__ = [
    "FieldOption",
    "InvalidInput",
    "SchemaField",
    "SchemaNode",
    "check_limits",
    "encode_json",
    "parse_choice_name",
    "parse_json",
    "parse_text",
    "read_schema_fields",
]

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

_MAX_OBJECT_PROPERTIES = 100
"""Maximum number of properties of an object. Larger objects are entered as JSON."""
_MAX_FIELDS = 300
_MAX_NESTING_LEVELS = 5
_MAX_PARTS_PER_NODE = 64
_MAX_PARTS = 20_000
"""Maximum number of references and parts that are followed in a schema, which limits the time for one."""
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


class InvalidInput(ValueError):
    """Raised for a text that is not the expected input. The message is a noun phrase: "a whole number"."""


@dataclass(frozen=True, slots=True)
class FieldOption:
    """An option of a choice."""

    value: object
    label: str

    @property
    def json(self) -> str:
        """The value as JSON."""
        return encode_json(self.value)


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
    format: str = ""
    """Format of a text, such as ``email``; may be unknown."""
    limits: Mapping[str, float] = field(default_factory=dict[str, float])
    """Limits by keyword, such as ``maxLength``."""
    default: object = None
    """Default value; None without one."""
    fields: tuple[SchemaField, ...] = ()
    """Fields of an object."""
    item: SchemaField | None = None
    """Field for the entries of a list."""
    variants: tuple[SchemaField, ...] = ()
    """Alternatives of a variant, each with a title."""


def read_schema_fields(schema: object, *, max_parts: int = _MAX_PARTS) -> tuple[SchemaField, ...]:
    """Return the fields for the properties of an object schema, required ones first.

    Empty if there are none or too many.
    """
    return _FieldReader().read_properties(SchemaNode(schema, max_parts=max_parts), 0)


# Positions in a schema.


class _Document:
    """A whole schema, in which references are resolved, and the number of parts that may still be read."""

    def __init__(self, schema: JsonObject, parts_left: int) -> None:
        self.schema = schema
        self.parts_left = parts_left


class SchemaNode:
    """A position in a schema, with its references and ``allOf`` parts."""

    def __init__(
        self, schema: object, document: _Document | None = None, *, max_parts: int = _MAX_PARTS
    ) -> None:
        self._schema = object_or_empty(schema)
        self._document = document or _Document(self._schema, max_parts)

    def get_property(self, name: str) -> SchemaNode:
        """Return the schema of a property."""
        known = self._collect_properties().get(name)
        return self.child(self._find_keyword("additionalProperties") if known is None else known)

    def has_property(self, name: str) -> bool:
        """Return whether the schema or one of its alternatives names the property."""
        return name in self._collect_properties()

    def first_key_segment(self, key: str) -> str:
        """Return the first segment of a dotted key: the longest known property name, else the text up to the
        dot."""
        names = [name for name in self._collect_properties() if key.startswith(f"{name}.")]
        return max(names, key=len, default=key.partition(".")[0])

    def get_items(self) -> SchemaNode:
        """Return the schema of list items."""
        return self.child(self._find_keyword("items"))

    def allowed_types(self) -> set[str]:
        """Return the types that any alternative allows; empty if the schema does not say."""
        found: set[str] = set()
        for part in self._iterate_parts(with_alternatives=True):
            found |= _list_types(part)
            if "type" not in part and "properties" in part:
                found.add("object")
        return found

    def parse(self, text: str) -> object:
        """Return the value of a text by the types that the schema allows. Raises InvalidInput.

        A text is read as the strictest type that it fits, and stays a string if the schema allows one or
        names no type.
        """
        values = self._allowed_values()
        if text not in values:
            for value in values:
                if not isinstance(value, str) and encode_json(value) == text:
                    return value
        types = self.allowed_types()
        for type_, parse in _PARSERS_BY_TYPE.items():
            if type_ in types:
                try:
                    return parse(text)
                except _PARSE_ERRORS:
                    continue
        if not types or "string" in types:
            return text
        raise InvalidInput(
            " or ".join(expected for type_, expected in _EXPECTED_INPUT_BY_KIND.items() if type_ in types)
        )

    def child(self, schema: object) -> SchemaNode:
        """Return the node of a part of this schema."""
        return SchemaNode(schema, self._document)

    def merge(self) -> JsonObject:
        """Merge a schema with its ``$ref`` and ``allOf`` parts. Earlier parts take precedence."""
        merged: dict[str, Any] = {}
        required: list[object] = []
        for part in self._iterate_parts():
            required += list_or_empty(part.get("required"))
            merged = {**part, **merged}
        return {**merged, "properties": self._collect_properties(False), "required": required}

    def _allowed_values(self) -> list[object]:
        found: list[object] = []
        for part in self._iterate_parts(with_alternatives=True):
            found += list_or_empty(part.get("enum"))
            found += [part["const"]] if "const" in part else []
        return found

    def _collect_properties(self, with_alternatives: bool = True) -> dict[str, object]:
        found: dict[str, object] = {}
        for part in self._iterate_parts(with_alternatives):
            found = {**object_or_empty(part.get("properties")), **found}
        return found

    def _find_keyword(self, key: str) -> object:
        return next((part[key] for part in self._iterate_parts(with_alternatives=True) if key in part), None)

    def _iterate_parts(self, with_alternatives: bool = False) -> Iterator[JsonObject]:
        """Yield the schema and its parts. Their number is limited, because references may be circular."""
        pending: list[object] = [self._schema]
        for _ in range(_MAX_PARTS_PER_NODE):
            if not pending:
                return
            part = object_or_empty(pending.pop(0))
            yield part
            if self._document.parts_left <= 0:
                return
            self._document.parts_left -= 1
            reference: object = part.get("$ref")
            if isinstance(reference, str) and reference.startswith("#"):
                pending.append(resolve_reference(self._document.schema, reference))
            for key in ("allOf", "anyOf", "oneOf") if with_alternatives else ("allOf",):
                pending += list_or_empty(part.get(key))[:_MAX_PARTS_PER_NODE]


# Fields.


class _FieldReader:
    """Converts one schema to fields. It limits their number, because references can make a small schema
    expand to very many fields."""

    def __init__(self) -> None:
        self._remaining_fields = _MAX_FIELDS

    def read_properties(self, node: SchemaNode, depth: int) -> tuple[SchemaField, ...]:
        """Return the fields of an object's properties, required ones first."""
        schema = node.merge()
        properties = object_or_empty(schema["properties"])
        if len(properties) > _MAX_OBJECT_PROPERTIES:
            return ()
        required = set(map(str, schema["required"]))
        fields = [
            self._read_field(name, node.child(part), name in required, depth)
            for name, part in properties.items()
        ]
        return tuple(sorted(fields, key=lambda field: not field.required))

    def _read_field(self, name: str, node: SchemaNode, required: bool, depth: int) -> SchemaField:
        self._remaining_fields -= 1
        schema = node.merge()
        found = self._build_field(name, node, schema, depth)
        return replace(
            found,
            name=name,
            required=required,
            title=text_or_empty(schema.get("title")) or found.title,
            help=text_or_empty(schema.get("description")) or found.help,
            default=schema.get("default", found.default),
            format=text_or_empty(schema.get("format")) or found.format,
            limits=_read_limits(schema) or found.limits,
            kind="choice" if found.kind == "fixed" and not required else found.kind,
        )

    def _build_field(self, name: str, node: SchemaNode, schema: JsonObject, depth: int) -> SchemaField:
        # Options take precedence over the type: an enum of numbers is a choice, too.
        options = _read_options(schema)
        if options:
            return SchemaField(name, "fixed" if "const" in schema else "choice", options=options)
        # Recursive schemas end here, with a field that takes JSON.
        if depth >= _MAX_NESTING_LEVELS or self._remaining_fields <= 0:
            return SchemaField(name, _choose_plain_kind(schema, name))
        alternatives = [] if schema["properties"] else _list_alternatives(node, schema)
        if alternatives:
            return self._build_variant_field(name, alternatives, depth)
        kind = _get_single_type(schema)
        if kind == "object" or (kind is None and schema["properties"]):
            fields = self.read_properties(node, depth + 1)
            return SchemaField(name, "object", fields=fields) if fields else SchemaField(name, "json")
        if kind == "array" and isinstance(schema.get("items"), Mapping):
            item = self._read_field("", node.child(schema["items"]), True, depth + 1)
            # A list of options is shown as a group of checkboxes.
            if item.kind in ("choice", "fixed"):
                return SchemaField(name, "several", options=item.options)
            return SchemaField(name, "list", item=item)
        return SchemaField(name, _choose_plain_kind(schema, name))

    def _build_variant_field(self, name: str, alternatives: Sequence[SchemaNode], depth: int) -> SchemaField:
        options = [_read_options(each.merge()) for each in alternatives]
        if all(options):
            return SchemaField(name, "choice", options=tuple(sum(options, ())[:_MAX_OPTIONS]))
        made = [self._read_field(name, each, True, depth) for each in alternatives]
        kinds = {each.kind for each in made}
        # Alternatives that only differ in formats or patterns of strings share one text field.
        if len(made) == 1 or kinds <= {"text", "long"}:
            return made[0]
        if kinds == {"integer", "number"}:
            return SchemaField(name, "number")
        variants = tuple(replace(each, title=_choose_variant_title(each, at)) for at, each in enumerate(made))
        return SchemaField(name, "variant", variants=variants)


def _list_alternatives(node: SchemaNode, schema: JsonObject) -> list[SchemaNode]:
    """Return the alternatives of ``anyOf`` and ``oneOf`` without null (an empty field)."""
    listed = [*list_or_empty(schema.get("anyOf")), *list_or_empty(schema.get("oneOf"))][:_MAX_OPTIONS]
    nodes = map(node.child, listed)
    return [each for each in nodes if _get_single_type(each.merge()) != "null"]


def _list_types(schema: JsonObject) -> set[str]:
    named: object = schema.get("type")
    return {each for each in list_or_empty(named) or [named] if isinstance(each, str) and each in JSON_TYPES}


def _get_single_type(schema: JsonObject) -> str | None:
    """Return the type of a schema apart from null; None if it has no type or several."""
    types = _list_types(schema)
    if len(types) > 1:
        types.discard("null")
    return types.pop() if len(types) == 1 else None


def _choose_plain_kind(schema: JsonObject, name: str) -> FieldKind:
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
            return "number" if _list_types(schema) - {"null"} == {"integer", "number"} else "json"


def _read_options(schema: JsonObject) -> tuple[FieldOption, ...]:
    if "const" in schema:
        return (
            FieldOption(
                schema["const"], text_or_empty(schema.get("title")) or _format_value(schema["const"])
            ),
        )
    values, names = list_or_empty(schema.get("enum")), list_or_empty(schema.get("enumNames"))
    labels = names if len(names) == len(values) else [None] * len(values)
    return tuple(
        FieldOption(value, label if isinstance(label, str) else _format_value(value))
        for value, label in zip(values[:_MAX_OPTIONS], labels, strict=False)
    )


def _read_limits(schema: JsonObject) -> dict[str, float]:
    found = {key: schema[key] for key in _LIMIT_CHECKS if key in schema}
    return {key: value for key, value in found.items() if type(value) in (int, float)}


def _format_value(value: object) -> str:
    return value if isinstance(value, str) and value else encode_json(value)


def _choose_variant_title(field: SchemaField, at: int) -> str:
    if field.title:
        return field.title
    for inner in field.fields:
        if inner.kind == "fixed":
            return inner.options[0].label
    return _VARIANT_TITLES_BY_KIND.get(field.kind, field.kind.capitalize()) + (
        f" ({at + 1})" if field.kind == "object" else ""
    )


# Input to values.


def parse_text(field: SchemaField, text: str) -> object:
    """Return the value of a text: an option or a structure is its JSON. Raises InvalidInput."""
    match field.kind:
        case "text" | "long":
            return text
        case "fixed":
            return field.options[0].value
        case "choice" | "several":
            for option in field.options:
                if option.json == text:
                    return option.value
            raise InvalidInput("one of the choices")
        case "flag" | "integer" | "number":
            type_ = "boolean" if field.kind == "flag" else field.kind
            parse, expected = _PARSERS_BY_TYPE[type_], _EXPECTED_INPUT_BY_KIND[type_]
        case _:
            parse, expected = parse_json, "valid JSON"
    try:
        return parse(text.strip())
    except _PARSE_ERRORS:
        raise InvalidInput(expected) from None


def parse_choice_name(field: SchemaField, text: str) -> object:
    """Find an option by its number in the list, its value or its label. Raises InvalidInput."""
    if text.isdecimal() and 0 < int(text[:9]) <= len(field.options):
        return field.options[int(text[:9]) - 1].value
    for option in field.options:
        if text == _format_value(option.value) or text.casefold() == option.label.casefold():
            return option.value
    raise InvalidInput("one of the choices")


def check_limits(field: SchemaField, value: object) -> None:
    """Raise InvalidInput for a value outside the limits and the format of its field."""
    for keyword, limit in field.limits.items():
        types, is_outside, expected = _LIMIT_CHECKS[keyword]
        if isinstance(value, types) and not isinstance(value, bool):
            size = value if isinstance(value, int | float) else len(cast("str | list[object]", value))
            if is_outside(size, limit):
                raise InvalidInput(expected.format(limit))
    if isinstance(value, str) and field.format in _FORMAT_CHECKS:
        is_valid, expected = _FORMAT_CHECKS[field.format]
        try:
            valid = is_valid(value)
        except ValueError:
            valid = False
        if not valid:
            raise InvalidInput(expected)


def parse_json(text: str) -> Any:
    """Parse standard JSON. Raises ValueError, for NaN and infinities too, and RecursionError."""
    return json.loads(text, parse_float=_parse_finite_float, parse_constant=_parse_finite_float)


def encode_json(value: object) -> str:
    """Return a value as JSON; "null" if it has no representation."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return "null"


def _parse_finite_float(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text} is not a valid JSON number")
    return number


def _parse_integer(text: str) -> int:
    # The length is limited because converting a very long number takes quadratic time.
    if not re.fullmatch(r"[+-]?[0-9]{1,4000}", text):
        raise ValueError("not a whole number")
    return int(text)


def _parse_number(text: str) -> float | int:
    try:
        return _parse_integer(text)
    except ValueError:
        return _parse_finite_float(text)


def _parse_structure(text: str, opening: str) -> object:
    if not text.lstrip().startswith(opening):
        raise ValueError("not a structure")
    return parse_json(text)


def _is_email(text: str) -> bool:
    name, _, host = text.rpartition("@")
    return bool(name and host) and not any(char.isspace() for char in text)


def _is_uri(text: str) -> bool:
    return bool(urlsplit(text).scheme) and not any(char.isspace() for char in text)


_BOOLEAN_WORDS = {
    **dict.fromkeys(("true", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "no", "n", "off", "0"), False),
}
_PARSERS_BY_TYPE: Mapping[str, Callable[[str], object]] = {
    "null": lambda text: {"null": None}[text],
    "boolean": lambda text: _BOOLEAN_WORDS[text.casefold()],
    "integer": _parse_integer,
    "number": _parse_number,
    "object": lambda text: _parse_structure(text, "{"),
    "array": lambda text: _parse_structure(text, "["),
}
"""Parsers by type, the strictest first. A string is the fallback."""
_PARSE_ERRORS = (ValueError, KeyError, RecursionError)
_EXPECTED_INPUT_BY_KIND = {
    "boolean": "yes or no",
    "integer": "a whole number",
    "number": "a number",
    "object": "a JSON object",
    "array": "a JSON list",
    "null": "null",
}
_LIMIT_CHECKS: Mapping[str, tuple[tuple[type, ...], Callable[[float, float], bool], str]] = {
    "minLength": ((str,), operator.lt, "at least {:.15g} characters long"),
    "maxLength": ((str,), operator.gt, "at most {:.15g} characters long"),
    "minItems": ((list,), operator.lt, "a list of at least {:.15g} entries"),
    "maxItems": ((list,), operator.gt, "a list of at most {:.15g} entries"),
    "minimum": ((int, float), operator.lt, "at least {:.15g}"),
    "maximum": ((int, float), operator.gt, "at most {:.15g}"),
    "exclusiveMinimum": ((int, float), operator.le, "more than {:.15g}"),
    "exclusiveMaximum": ((int, float), operator.ge, "less than {:.15g}"),
}
_FORMAT_CHECKS: Mapping[str, tuple[Callable[[str], bool], str]] = {
    "email": (_is_email, "an email address"),
    "uri": (_is_uri, "an address such as https://example.org"),
    "date": (lambda text: bool(date.fromisoformat(text)), "a date such as 2026-07-28"),
    "date-time": (
        lambda text: datetime.fromisoformat(text).tzinfo is not None,
        "a date and time such as 2026-07-28T12:00:00Z",
    ),
}
