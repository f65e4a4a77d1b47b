"""A server's form as fields that are asked one by one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, cast
from urllib.parse import urlsplit

from toolyard.cli.output.safe_text import one_line

__all__ = ["ElicitationChoice", "ElicitationField", "InvalidFieldInput", "parse_field_input", "parse_fields"]

_MAX_FIELDS = 100
_MAX_CHOICES = 200
_BOOLEAN_WORDS = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}


class InvalidFieldInput(ValueError):
    """Raised for input that does not fit the field; the message says why."""


@dataclass(frozen=True, slots=True)
class ElicitationChoice:
    """One of several values, with its label."""

    value: Any
    label: str


@dataclass(frozen=True, slots=True)
class ElicitationField:
    """One field. ``kind`` is text, integer, number, flag, choice, choices or json."""

    name: str
    label: str
    kind: str
    required: bool
    help: str
    schema: Mapping[str, Any]
    choices: Sequence[ElicitationChoice] = ()

    @property
    def default(self) -> Any:
        """Return the value for empty input; None if there is none."""
        return self.schema.get("default")

    @property
    def default_text(self) -> str:
        """Return the default as text."""
        value = self.default
        if isinstance(value, bool):
            return "y" if value else "n"
        chosen = cast("list[Any]", value) if isinstance(value, list) else [value]
        labels = {str(choice.value): choice.label for choice in self.choices}
        return ", ".join(labels.get(str(one), str(one)) for one in chosen)


def parse_fields(schema: object) -> list[ElicitationField]:
    """Return the fields of a form's schema, in order. Invalid parts of the schema are tolerated."""
    root = _mapping_or_empty(schema)
    required: Any = root.get("required")
    names: set[str] = {name for name in _list_or_empty(required) if isinstance(name, str)}
    properties = list(_mapping_or_empty(root.get("properties")).items())[:_MAX_FIELDS]
    return [_build_field(name, _mapping_or_empty(one), name in names) for name, one in properties]


def parse_field_input(field: ElicitationField, text: str) -> Any:
    """Return the value of a typed text; None for an empty optional field. Raises InvalidFieldInput."""
    text = text.strip()
    if not text:
        if field.default is not None:
            return field.default
        if field.required:
            raise InvalidFieldInput("this field is required")
        return None
    return _INPUT_PARSERS[field.kind](field, text)


def _build_field(name: str, schema: Mapping[str, Any], required: bool) -> ElicitationField:
    label = one_line(str(schema.get("title") or name), 80)
    help_text = one_line(str(schema.get("description") or ""), 300)
    many = (
        _list_schema_choices(_mapping_or_empty(schema.get("items"))) if schema.get("type") == "array" else ()
    )
    choices = many or _list_schema_choices(schema)
    kind = "choices" if many else "choice" if choices else _choose_field_kind(schema.get("type"))
    return ElicitationField(name, label, kind, required, help_text, schema, choices)


def _choose_field_kind(json_type: object) -> str:
    kinds = {"string": "text", "integer": "integer", "number": "number", "boolean": "flag"}
    return kinds.get(json_type, "json") if isinstance(json_type, str) else "json"


def _list_schema_choices(schema: Mapping[str, Any]) -> tuple[ElicitationChoice, ...]:
    for key in ("oneOf", "anyOf"):
        titled = [_mapping_or_empty(one) for one in _list_or_empty(schema.get(key))]
        if titled and all("const" in one for one in titled):
            return tuple(
                ElicitationChoice(one["const"], one_line(str(one.get("title") or one["const"]), 80))
                for one in titled[:_MAX_CHOICES]
            )
    values, names = _list_or_empty(schema.get("enum"))[:_MAX_CHOICES], _list_or_empty(schema.get("enumNames"))
    labels = names if len(names) == len(values) else values
    return tuple(
        ElicitationChoice(value, one_line(str(label), 80))
        for value, label in zip(values, labels, strict=False)
    )


# Parsing input.


def _parse_text(field: ElicitationField, text: str) -> str:
    least, most = field.schema.get("minLength"), field.schema.get("maxLength")
    if isinstance(least, int) and len(text) < least:
        raise InvalidFieldInput(f"at least {least} characters")
    if isinstance(most, int) and len(text) > most:
        raise InvalidFieldInput(f"at most {most} characters")
    check = _FORMAT_CHECKS.get(str(field.schema.get("format")))
    if check is not None:
        check(text)
    return text


def _parse_integer(field: ElicitationField, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise InvalidFieldInput("a whole number") from None
    _check_range(field, number)
    return number


def _parse_number(field: ElicitationField, text: str) -> float | int:
    try:
        number = float(text)
    except ValueError:
        raise InvalidFieldInput("a number") from None
    if number != number or number in (float("inf"), float("-inf")):
        raise InvalidFieldInput("a number")
    _check_range(field, number)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _check_range(field: ElicitationField, number: float) -> None:
    least, most = field.schema.get("minimum"), field.schema.get("maximum")
    if isinstance(least, int | float) and number < least:
        raise InvalidFieldInput(f"at least {least:g}")
    if isinstance(most, int | float) and number > most:
        raise InvalidFieldInput(f"at most {most:g}")


def _parse_flag(field: ElicitationField, text: str) -> bool:
    if text.casefold() not in _BOOLEAN_WORDS:
        raise InvalidFieldInput("y or n")
    return _BOOLEAN_WORDS[text.casefold()]


def _parse_choice(field: ElicitationField, text: str) -> Any:
    """Find a choice by its number in the list, its value or its label."""
    if text.isdecimal() and 0 < int(text) <= len(field.choices):
        return field.choices[int(text) - 1].value
    for choice in field.choices:
        if text in (choice.value, str(choice.value)) or text.casefold() == choice.label.casefold():
            return choice.value
    raise InvalidFieldInput("one of the choices")


def _parse_multiple_choices(field: ElicitationField, text: str) -> list[Any]:
    chosen: list[Any] = []
    for word in text.split(","):
        value = _parse_choice(field, word.strip())
        if value not in chosen:
            chosen.append(value)
    least, most = field.schema.get("minItems"), field.schema.get("maxItems")
    if isinstance(least, int) and len(chosen) < least:
        raise InvalidFieldInput(f"at least {least} of them")
    if isinstance(most, int) and len(chosen) > most:
        raise InvalidFieldInput(f"at most {most} of them")
    return chosen


def _parse_json(field: ElicitationField, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidFieldInput("JSON") from None


def _check_email(text: str) -> None:
    name, at, host = text.rpartition("@")
    if not at or not name or not host or any(char.isspace() for char in text):
        raise InvalidFieldInput("an email address")


def _check_uri(text: str) -> None:
    try:
        good = bool(urlsplit(text).scheme)
    except ValueError:
        good = False
    if not good or any(char.isspace() for char in text):
        raise InvalidFieldInput("an address such as https://example.org")


def _check_date(text: str) -> None:
    try:
        date.fromisoformat(text)
    except ValueError:
        raise InvalidFieldInput("a date such as 2026-07-28") from None


def _check_date_time(text: str) -> None:
    try:
        if datetime.fromisoformat(text).tzinfo is None:
            raise ValueError
    except ValueError:
        raise InvalidFieldInput("a date and time such as 2026-07-28T12:00:00Z") from None


_FORMAT_CHECKS = {
    "email": _check_email,
    "uri": _check_uri,
    "date": _check_date,
    "date-time": _check_date_time,
}
_INPUT_PARSERS = {
    "text": _parse_text,
    "integer": _parse_integer,
    "number": _parse_number,
    "flag": _parse_flag,
    "choice": _parse_choice,
    "choices": _parse_multiple_choices,
    "json": _parse_json,
}


def _mapping_or_empty(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _list_or_empty(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
