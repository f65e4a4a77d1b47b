"""Elicitation forms as questions, one field at a time: accepted answers, refused answers, tolerated ones."""

from __future__ import annotations

from typing import Any

import pytest

from toolyard.catalog.schemas.form_fields import InvalidInput, read_schema_fields
from toolyard.cli.chat.approval_prompts import format_field_prompt, parse_field_input


def field(schema: Any, *, required: bool = False) -> Any:
    names = ["x"] if required else []
    (schema_field,) = read_schema_fields({"type": "object", "properties": {"x": schema}, "required": names})
    return schema_field


TITLED_CHOICE = {
    "type": "string",
    "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}],
}
LEGACY = {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]}
SEVERAL = {
    "type": "array",
    "items": {"type": "string", "enum": ["a", "b", "c"]},
    "minItems": 1,
    "maxItems": 2,
}
TITLED_CHOICES = {"type": "array", "items": {"anyOf": TITLED_CHOICE["oneOf"]}}


@pytest.mark.parametrize(
    ("schema", "typed_text", "value"),
    [
        ({"type": "string"}, " words ", "words"),
        ({"type": "string", "format": "email"}, "a@b.example", "a@b.example"),
        ({"type": "string", "format": "uri"}, "https://example.org/x", "https://example.org/x"),
        ({"type": "string", "format": "date"}, "2026-07-28", "2026-07-28"),
        ({"type": "string", "format": "date-time"}, "2026-07-28T12:00:00Z", "2026-07-28T12:00:00Z"),
        ({"type": "string", "minLength": 2, "maxLength": 3}, "abc", "abc"),
        ({"type": "integer"}, "-7", -7),
        ({"type": "number"}, "2.5", 2.5),
        ({"type": "number"}, "2", 2),
        ({"type": "boolean"}, "YES", True),
        ({"type": "boolean"}, "n", False),
        (TITLED_CHOICE, "2", "g"),
        (TITLED_CHOICE, "green", "g"),
        (TITLED_CHOICE, "r", "r"),
        (LEGACY, "Red", "r"),
        (SEVERAL, "1, c", ["a", "c"]),
        (SEVERAL, "a, a", ["a"]),
        (TITLED_CHOICES, "red,2", ["r", "g"]),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({"type": "integer", "default": 5}, "", 5),
        ({"type": "boolean", "default": False}, "", False),
        ({"type": "string"}, "", None),
    ],
    ids=str,
)
def test_typed_text_is_converted_by_the_schema(schema: Any, typed_text: str, value: Any) -> None:
    field_input = parse_field_input(field(schema), typed_text)
    assert (field_input, type(field_input)) == (value, type(value))


@pytest.mark.parametrize(
    ("schema", "typed_text", "why"),
    [
        ({"type": "string", "format": "email"}, "nobody", "an email address"),
        ({"type": "string", "format": "uri"}, "example", "an address"),
        ({"type": "string", "format": "date"}, "28.7.2026", "a date"),
        ({"type": "string", "format": "date-time"}, "2026-07-28T12:00:00", "a date and time"),
        ({"type": "string", "minLength": 2}, "a", "at least 2"),
        ({"type": "string", "maxLength": 2}, "abc", "at most 2"),
        ({"type": "integer"}, "1.5", "a whole number"),
        ({"type": "integer", "minimum": 3}, "2", "at least 3"),
        ({"type": "number", "maximum": 3.5}, "4", "at most 3.5"),
        ({"type": "number"}, "nan", "a number"),
        ({"type": "number"}, "1e999", "a number"),
        ({"type": "boolean"}, "perhaps", "yes or no"),
        (TITLED_CHOICE, "3", "one of the choices"),
        (SEVERAL, "a,b,c", "at most 2"),
        (SEVERAL, "a,", "one of the choices"),
        ({"type": "object"}, "{", "JSON"),
    ],
    ids=str,
)
def test_invalid_input_is_explained(schema: Any, typed_text: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        parse_field_input(field(schema), typed_text)


def test_required_fields_must_be_filled() -> None:
    with pytest.raises(InvalidInput, match="filled in"):
        parse_field_input(field({"type": "string"}, required=True), " ")


def test_defaults_are_shown_as_people_would_type_them() -> None:
    for schema, default in (
        ({**TITLED_CHOICE, "default": "g"}, "Green"),
        ({**SEVERAL, "default": ["a", "c"]}, "a, c"),
        ({"type": "boolean", "default": True}, "y"),
    ):
        assert format_field_prompt(field(schema)).endswith(f" [{default}]: ")


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        "x",
        {},
        {"properties": None},
        {"properties": {"x": None}},
        {"properties": {"x": {"type": ["string"], "enum": "no list"}}},
        {"properties": {"x": {"type": "array", "items": 3, "default": {}}}, "required": "x"},
        {"properties": {"x": {"oneOf": [{"const": 1}, {"no": "const"}], "title": {"a": 1}}}},
        {"properties": {"x": {"type": "string", "minLength": "many", "title": "\x1b[2J"}}},
    ],
    ids=str,
)
def test_every_form_of_a_server_is_handled(schema: Any) -> None:
    for schema_field in read_schema_fields(schema):
        assert format_field_prompt(schema_field).isprintable()
        parse_field_input(schema_field, '"text"')


def test_a_form_with_too_many_fields_has_none() -> None:
    assert read_schema_fields({"properties": {str(n): {"type": "string"} for n in range(10_000)}}) == ()
