"""Forms for the arguments of tools, generated from JSON Schema, and conversion of their texts to JSON values.

A form is a mapping of field names to texts, as browsers send it, so that invalid input can be shown again.
The name of a field is its path: ``arg-2`` is the third field, ``arg-2-0`` the first field of that object, and
``arg-3-e1`` an entry of the list ``arg-3``. The value of a list field is the numbers of its entries; the
value of a variant is the index of the chosen alternative, whose field is ``arg-4-v1``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias, TypeGuard, cast

import orjson

from toolyard.catalog.schemas import form_fields as schemas
from toolyard.types.tool import JsonObject
from toolyard.web.ui.components import forms

__all__ = [
    "ADD_BUTTON_NAME",
    "REMOVE_BUTTON_NAME",
    "BadArguments",
    "FormField",
    "FormTexts",
    "ToolForm",
    "apply_edit_button",
    "build_field_labels",
    "build_form_fields",
    "build_form_texts",
    "read_form",
    "read_json",
]

FormTexts: TypeAlias = Mapping[str, Sequence[str]]

ADD_BUTTON_NAME = "form-add"
"""Name of the button that adds an entry. Its value is the name of the list."""
REMOVE_BUTTON_NAME = "form-drop"
"""Name of the button that removes an entry. Its value is the name of the entry."""
SHOW_VARIANT_BUTTON_NAME = "form-shape"
"""Name of the button that shows the fields of the chosen alternative."""
_MAX_LIST_ENTRIES = 200
_MAX_CACHED_SCHEMA_BYTES = 20_000


class BadArguments(Exception):
    """Raised when entered values cannot be converted to JSON. ``errors`` has messages by field name."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("; ".join(errors.values()))
        self.errors = dict(errors)


@dataclass(frozen=True, slots=True)
class FormField:
    """A field with its entered values.

    ``within`` has the fields of an object, the entries of a list or the chosen alternative.
    """

    name: str
    field: schemas.SchemaField
    text: str = ""
    texts: tuple[str, ...] = ()
    within: tuple[FormField, ...] = ()

    @property
    def filled(self) -> bool:
        """True if anything was entered."""
        if self.field.kind in ("object", "list"):
            return any(each.filled for each in self.within)
        return bool(self.texts if self.field.kind == "several" else self.text.strip())


@dataclass(frozen=True, slots=True)
class ToolForm:
    """Form with entered values and error messages."""

    fields: tuple[schemas.SchemaField, ...]
    texts: FormTexts
    written: str = ""
    """Arguments as JSON. If not empty, the fields are ignored."""
    errors: Mapping[str, str] = field(default_factory=dict[str, str])
    prefix: str = "arg"
    takes_any: bool = False
    """True if the tool accepts arguments, even if the schema yields no fields."""
    strict: bool = False
    """True for an answer to a server's question, which is checked against its schema. Arguments of a tool
    are not: an empty text can be meaningful to it, and the server validates them."""
    only_changed: bool = False
    """True if a button was pressed that only changes the form, such as one that adds an entry."""

    @classmethod
    def from_schema(
        cls, schema: JsonObject, previous_arguments: JsonObject | None = None, *, with_defaults: bool = True
    ) -> ToolForm:
        """Return the form of a tool, filled with the defaults of its schema or with previous arguments.

        Previous arguments that the fields cannot represent are shown as JSON. A form whose values were
        submitted needs no defaults.
        """
        fields = _read_fields(schema)
        takes_any = bool(schema.get("properties")) or schema.get("additionalProperties") not in (None, False)
        texts = build_form_texts(fields, previous_arguments) if with_defaults else {}
        form = cls(fields, texts, takes_any=takes_any)
        if previous_arguments is None or form._can_represent(previous_arguments):
            return form
        return replace(form, written=json.dumps(previous_arguments, indent=2, ensure_ascii=False))

    @classmethod
    def from_question(cls, schema: JsonObject, prefix: str) -> ToolForm:
        """Return the form of an elicitation request."""
        fields = _read_fields(schema)
        return cls(fields, build_form_texts(fields, None, prefix), prefix=prefix, strict=True)

    def with_submission(self, form: forms.SubmittedForm) -> ToolForm:
        """Return the form with submitted values."""
        texts = form.fields_with_prefix(f"{self.prefix}-")
        changed = apply_edit_button(form, texts)
        return replace(
            self,
            texts=texts if changed is None else changed,
            written=form.text("json"),
            only_changed=changed is not None,
        )

    def with_errors(self, error: BadArguments) -> ToolForm:
        """Return the form with error messages."""
        return replace(self, errors=error.errors)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments. Raises BadArguments if a value is not valid."""
        # JSON takes precedence, as the help text of the field says.
        if self.written.strip():
            return read_json(self.written)
        return read_form(self.fields, self.texts, self.prefix, strict=self.strict)

    @property
    def shown(self) -> tuple[FormField, ...]:
        """Fields with their values."""
        return build_form_fields(self.fields, self.texts, self.prefix)

    @property
    def labels(self) -> dict[str, str]:
        """Labels by field name."""
        return {"json": "Arguments as JSON", **build_field_labels(self.shown)}

    def _can_represent(self, expected: JsonObject) -> bool:
        try:
            return read_form(self.fields, self.texts, self.prefix) == expected
        except BadArguments:
            return False


def _read_fields(schema: JsonObject) -> tuple[schemas.SchemaField, ...]:
    try:
        text = orjson.dumps(schema)
    except orjson.JSONEncodeError:
        return schemas.read_schema_fields(schema)
    is_cached = len(text) <= _MAX_CACHED_SCHEMA_BYTES
    return _read_encoded(text) if is_cached else schemas.read_schema_fields(schema)


@lru_cache(maxsize=256)
def _read_encoded(schema: bytes) -> tuple[schemas.SchemaField, ...]:
    """Return the fields of a schema. People run one tool several times, and a page renders its form again."""
    return schemas.read_schema_fields(orjson.loads(schema))


# Fields and their texts.


def build_form_fields(
    fields: Sequence[schemas.SchemaField], texts: FormTexts, prefix: str = "arg"
) -> tuple[FormField, ...]:
    """Return fields with their entered values."""
    return tuple(_build_form_field(each, f"{prefix}-{at}", texts) for at, each in enumerate(fields))


def _build_form_field(field: schemas.SchemaField, name: str, texts: FormTexts) -> FormField:
    values = tuple(texts.get(name, ()))
    text = values[-1] if values else ""
    within: tuple[FormField, ...] = ()
    if field.kind == "object":
        within = build_form_fields(field.fields, texts, name)
    elif field.kind == "list" and field.item is not None:
        within = tuple(
            _build_form_field(field.item, f"{name}-e{entry}", texts) for entry in _read_entry_numbers(values)
        )
    elif field.kind == "variant" and (text or field.required):
        at = _parse_variant_index(field, text)
        within = (_build_form_field(field.variants[at], f"{name}-v{at}", texts),)
        text = str(at)
    return FormField(name, field, text, values, within)


def _read_entry_numbers(values: Sequence[str]) -> Sequence[str]:
    numbers = dict.fromkeys(each for each in values if forms.parse_number(each, 5) is not None)
    return list(numbers)[:_MAX_LIST_ENTRIES]


def _parse_variant_index(field: schemas.SchemaField, text: str) -> int:
    index = forms.parse_number(text) or 0
    return index if index < len(field.variants) else 0


def apply_edit_button(form: forms.SubmittedForm, texts: FormTexts) -> dict[str, Sequence[str]] | None:
    """Return the texts after a button that only changes the form; None if no such button was pressed."""
    added, removed = form.text(ADD_BUTTON_NAME), form.text(REMOVE_BUTTON_NAME)
    if added:
        numbers = _read_entry_numbers(texts.get(added, ()))
        following = 1 + max((int(each) for each in numbers), default=-1)
        return {**texts, added: [*numbers, str(following)]}
    if removed:
        name, _, entry = removed.rpartition("-e")
        return {**texts, name: [each for each in texts.get(name, ()) if each != entry]}
    return dict(texts) if form.is_checked(SHOW_VARIANT_BUTTON_NAME) else None


def build_field_labels(fields: Sequence[FormField], prefix: str = "") -> dict[str, str]:
    """Return the labels of all fields by name."""
    labels: dict[str, str] = {}
    for at, each in enumerate(fields):
        label = f"{prefix}{each.field.name or f'entry {at + 1}'}"
        labels[each.name] = label
        labels |= build_field_labels(each.within, f"{label}: " if each.field.kind != "variant" else prefix)
    return labels


# Texts to JSON.


def read_form(
    fields: Sequence[schemas.SchemaField], texts: FormTexts, prefix: str = "arg", *, strict: bool = False
) -> dict[str, Any]:
    """Return the entered object, without empty optional fields.

    ``strict`` rejects empty required texts, and values outside limits and formats. Raises BadArguments.
    """
    errors: dict[str, str] = {}
    shown = build_form_fields(fields, texts, prefix)
    arguments = _read_object(shown, errors)
    for each in shown if strict else ():
        if each.field.required and not each.filled and each.field.kind != "fixed":
            errors[each.name] = _format_required_error(each)
        try:
            schemas.check_limits(each.field, arguments.get(each.field.name))
        except schemas.InvalidInput as expected:
            errors.setdefault(each.name, _format_input_error(each, expected))
    if errors:
        raise BadArguments(errors)
    return arguments


def read_json(text: str) -> dict[str, Any]:
    """Parse an object entered as JSON. Raises BadArguments with a message for the field ``json``."""
    try:
        value: object = schemas.parse_json(text)
    except ValueError as error:
        raise BadArguments({"json": f"This is not valid JSON: {error}."}) from None
    except RecursionError:
        raise BadArguments({"json": "This JSON is nested too deeply."}) from None
    if not isinstance(value, dict):
        raise BadArguments({"json": 'Enter a JSON object, such as {"path": "notes.txt"}.'})
    return cast("dict[str, Any]", value)


def _read_object(fields: Sequence[FormField], errors: dict[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for each in fields:
        if each.filled or each.field.required:
            value = _read_value(each, errors)
            # An invalid value has an error message, and is left out so that all errors are collected.
            if value is not _NO_VALUE:
                values[each.field.name] = value
    return values


_NO_VALUE = object()


def _read_value(form_field: FormField, errors: dict[str, str]) -> object:
    match form_field.field.kind:
        case "object":
            return _read_object(form_field.within, errors)
        case "variant":
            return _read_value(form_field.within[0], errors)
        case "list":
            values = [_read_value(entry, errors) for entry in form_field.within if entry.filled]
            return [value for value in values if value is not _NO_VALUE]
        case "several":
            return [
                value
                for text in form_field.texts
                if (value := _parse_field(form_field, text, errors)) is not _NO_VALUE
            ]
        case _:
            # Browsers submit line breaks as CRLF.
            return _parse_field(form_field, form_field.text.replace("\r\n", "\n"), errors)


def _format_required_error(form_field: FormField) -> str:
    return f"“{form_field.field.title or form_field.field.name or 'The entry'}” is required."


def _parse_field(form_field: FormField, text: str, errors: dict[str, str]) -> object:
    if not text.strip() and form_field.field.kind not in ("text", "long", "fixed"):
        errors[form_field.name] = _format_required_error(form_field)
        return _NO_VALUE
    try:
        return schemas.parse_text(form_field.field, text)
    except schemas.InvalidInput as expected:
        errors[form_field.name] = _format_input_error(form_field, expected)
        return _NO_VALUE


def _format_input_error(form_field: FormField, expected: schemas.InvalidInput) -> str:
    return f"“{form_field.field.name or 'The entry'}” must be {expected}."


# JSON to texts.


def build_form_texts(
    fields: Sequence[schemas.SchemaField], arguments: JsonObject | None = None, prefix: str = "arg"
) -> dict[str, Sequence[str]]:
    """Return the texts that represent an object, or the defaults of the schema without one."""
    texts: dict[str, Sequence[str]] = {}
    for at, each in enumerate(fields):
        if arguments is None:
            _write_default(each, f"{prefix}-{at}", texts)
        elif each.name in arguments:
            _write_value(each, f"{prefix}-{at}", arguments[each.name], texts)
    return texts


def _write_default(field: schemas.SchemaField, name: str, texts: dict[str, Sequence[str]]) -> None:
    if field.default is not None:
        _write_value(field, name, field.default, texts)
    elif field.kind == "object":
        texts |= build_form_texts(field.fields, None, name)
    elif field.kind == "variant" and field.required:
        _write_default(field.variants[0], f"{name}-v0", texts)
    elif field.kind == "list" and field.required and field.item is not None:
        texts[name] = ["0"]
        _write_default(field.item, f"{name}-e0", texts)


def _write_value(
    field: schemas.SchemaField, name: str, value: object, texts: dict[str, Sequence[str]]
) -> None:
    match field.kind:
        case "object" if isinstance(value, Mapping):
            texts |= build_form_texts(field.fields, cast("JsonObject", value), name)
        case "list" if _is_list(value) and field.item is not None:
            texts[name] = [str(at) for at in range(min(len(value), _MAX_LIST_ENTRIES))]
            for at, entry in enumerate(value[:_MAX_LIST_ENTRIES]):
                _write_value(field.item, f"{name}-e{at}", entry, texts)
        case "several" if _is_list(value):
            texts[name] = [schemas.encode_json(each) for each in value]
        case "variant":
            at = _find_matching_variant(field, value)
            texts[name] = [str(at)]
            _write_value(field.variants[at], f"{name}-v{at}", value, texts)
        case "text" | "long" if isinstance(value, str):
            texts[name] = [value]
        case _:
            texts[name] = [schemas.encode_json(value)]


def _find_matching_variant(field: schemas.SchemaField, value: object) -> int:
    """Return the index of the first alternative that can represent a value; 0 if none can."""
    for at, variant in enumerate(field.variants):
        texts: dict[str, Sequence[str]] = {}
        _write_value(variant, "v", value, texts)
        errors: dict[str, str] = {}
        # A variant represents a value if writing and reading it gives the same value.
        if _read_value(_build_form_field(variant, "v", texts), errors) == value and not errors:
            return at
    return 0


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)
