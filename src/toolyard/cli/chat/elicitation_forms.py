"""A form that a server sent, as fields that a person is asked for one by one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, cast
from urllib.parse import urlsplit

from toolyard.cli.output.safe_text import one_line

__all__ = ["Choice", "Field", "Unfit", "fields_of", "read_field"]

_MOST_FIELDS = 100
_MOST_CHOICES = 200
_YES = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}


class Unfit(ValueError):
    """What was typed does not fit the field. Its words say why."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several values, and what people call it."""

    value: Any
    label: str


@dataclass(frozen=True, slots=True)
class Field:
    """One question. ``kind`` is text, integer, number, flag, choice, choices or json."""

    name: str
    label: str
    kind: str
    required: bool
    help: str
    schema: Mapping[str, Any]
    choices: Sequence[Choice] = ()

    @property
    def default(self) -> Any:
        """What counts where nothing is typed; None: nothing."""
        return self.schema.get("default")

    @property
    def default_words(self) -> str:
        """The same as people would type it."""
        value = self.default
        if isinstance(value, bool):
            return "y" if value else "n"
        chosen = cast("list[Any]", value) if isinstance(value, list) else [value]
        labels = {str(choice.value): choice.label for choice in self.choices}
        return ", ".join(labels.get(str(one), str(one)) for one in chosen)


def fields_of(schema: object) -> list[Field]:
    """The fields of a form's schema, in its order. Whatever a server put there is borne."""
    root = _mapping(schema)
    required: Any = root.get("required")
    names: set[str] = {name for name in _list(required) if isinstance(name, str)}
    properties = list(_mapping(root.get("properties")).items())[:_MOST_FIELDS]
    return [_field(name, _mapping(one), name in names) for name, one in properties]


def read_field(field: Field, text: str) -> Any:
    """The value that a typed text means; None: nothing is given, and need not be. Raises Unfit."""
    text = text.strip()
    if not text:
        if field.default is not None:
            return field.default
        if field.required:
            raise Unfit("this one is needed")
        return None
    return _READERS[field.kind](field, text)


def _field(name: str, schema: Mapping[str, Any], required: bool) -> Field:
    label = one_line(str(schema.get("title") or name), 80)
    help_text = one_line(str(schema.get("description") or ""), 300)
    many = _choices(_mapping(schema.get("items"))) if schema.get("type") == "array" else ()
    choices = many or _choices(schema)
    kind = "choices" if many else "choice" if choices else _kind(schema.get("type"))
    return Field(name, label, kind, required, help_text, schema, choices)


def _kind(type_: object) -> str:
    kinds = {"string": "text", "integer": "integer", "number": "number", "boolean": "flag"}
    return kinds.get(type_, "json") if isinstance(type_, str) else "json"


def _choices(schema: Mapping[str, Any]) -> tuple[Choice, ...]:
    for key in ("oneOf", "anyOf"):
        titled = [_mapping(one) for one in _list(schema.get(key))]
        if titled and all("const" in one for one in titled):
            return tuple(
                Choice(one["const"], one_line(str(one.get("title") or one["const"]), 80))
                for one in titled[:_MOST_CHOICES]
            )
    values, names = _list(schema.get("enum"))[:_MOST_CHOICES], _list(schema.get("enumNames"))
    labels = names if len(names) == len(values) else values
    return tuple(
        Choice(value, one_line(str(label), 80)) for value, label in zip(values, labels, strict=False)
    )


# Reading what was typed.


def _text(field: Field, text: str) -> str:
    least, most = field.schema.get("minLength"), field.schema.get("maxLength")
    if isinstance(least, int) and len(text) < least:
        raise Unfit(f"at least {least} characters")
    if isinstance(most, int) and len(text) > most:
        raise Unfit(f"at most {most} characters")
    check = _FORMATS.get(str(field.schema.get("format")))
    if check is not None:
        check(text)
    return text


def _integer(field: Field, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise Unfit("a whole number") from None
    _within(field, number)
    return number


def _number(field: Field, text: str) -> float | int:
    try:
        number = float(text)
    except ValueError:
        raise Unfit("a number") from None
    if number != number or number in (float("inf"), float("-inf")):
        raise Unfit("a number")
    _within(field, number)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _within(field: Field, number: float) -> None:
    least, most = field.schema.get("minimum"), field.schema.get("maximum")
    if isinstance(least, int | float) and number < least:
        raise Unfit(f"at least {least:g}")
    if isinstance(most, int | float) and number > most:
        raise Unfit(f"at most {most:g}")


def _flag(field: Field, text: str) -> bool:
    if text.casefold() not in _YES:
        raise Unfit("y or n")
    return _YES[text.casefold()]


def _choice(field: Field, text: str) -> Any:
    """By its number in the list, by its value, or by its name."""
    if text.isdecimal() and 0 < int(text) <= len(field.choices):
        return field.choices[int(text) - 1].value
    for choice in field.choices:
        if text in (choice.value, str(choice.value)) or text.casefold() == choice.label.casefold():
            return choice.value
    raise Unfit("one of the list")


def _several(field: Field, text: str) -> list[Any]:
    chosen: list[Any] = []
    for word in text.split(","):
        value = _choice(field, word.strip())
        if value not in chosen:
            chosen.append(value)
    least, most = field.schema.get("minItems"), field.schema.get("maxItems")
    if isinstance(least, int) and len(chosen) < least:
        raise Unfit(f"at least {least} of them")
    if isinstance(most, int) and len(chosen) > most:
        raise Unfit(f"at most {most} of them")
    return chosen


def _json(field: Field, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Unfit("JSON") from None


def _email(text: str) -> None:
    name, at, host = text.rpartition("@")
    if not at or not name or not host or any(char.isspace() for char in text):
        raise Unfit("an email address")


def _uri(text: str) -> None:
    try:
        good = bool(urlsplit(text).scheme)
    except ValueError:
        good = False
    if not good or any(char.isspace() for char in text):
        raise Unfit("an address such as https://example.org")


def _date(text: str) -> None:
    try:
        date.fromisoformat(text)
    except ValueError:
        raise Unfit("a date such as 2026-07-28") from None


def _moment(text: str) -> None:
    try:
        if datetime.fromisoformat(text).tzinfo is None:
            raise ValueError
    except ValueError:
        raise Unfit("a date and time such as 2026-07-28T12:00:00Z") from None


_FORMATS = {"email": _email, "uri": _uri, "date": _date, "date-time": _moment}
_READERS = {
    "text": _text,
    "integer": _integer,
    "number": _number,
    "flag": _flag,
    "choice": _choice,
    "choices": _several,
    "json": _json,
}


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
