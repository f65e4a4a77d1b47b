"""A form that was filled in: what it shows, and the JSON that it stands for.

What a form holds are texts by name, as browsers send them. A field's name says where it is: ``arg-2`` is the
third field, ``arg-2-0`` the first of its fields, ``arg-3-e1`` an entry of the list ``arg-3``, whose own value
lists its entries; of a variant, the value is the number of what was chosen. So whatever was typed can be
shown again, also what is no JSON value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeGuard, cast

from toolyard.types.tool import JsonObject
from toolyard.web.ui.components.forms import Posted
from toolyard.web.ui.tools.schema_fields import Field

__all__ = [
    "ADD",
    "DROP",
    "BadArguments",
    "FormField",
    "Texts",
    "edited",
    "labels",
    "read_form",
    "read_json",
    "shown_form",
    "texts_of",
]

Texts: TypeAlias = Mapping[str, Sequence[str]]

ADD = "form-add"
"""The button that adds an entry; its value is the list's name."""
DROP = "form-drop"
"""The one that removes an entry; its value is the entry's name."""
SHAPE = "form-shape"
"""The one that shows the fields of what was chosen."""
_MOST_ENTRIES = 200


class BadArguments(Exception):
    """What was filled in stands for no JSON; ``errors`` by the name of the field."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("; ".join(errors.values()))
        self.errors = dict(errors)


@dataclass(frozen=True, slots=True)
class FormField:
    """A field as the page shows it. ``within``: an object's fields, a list's entries, the chosen variant."""

    name: str
    field: Field
    text: str = ""
    texts: tuple[str, ...] = ()
    within: tuple[FormField, ...] = ()

    @property
    def filled(self) -> bool:
        """Whether there is anything in it."""
        if self.field.kind in ("object", "list"):
            return any(each.filled for each in self.within)
        return bool(self.texts if self.field.kind == "several" else self.text.strip())


def shown_form(fields: Sequence[Field], texts: Texts, prefix: str = "arg") -> tuple[FormField, ...]:
    """The form, with what was filled in."""
    return tuple(_shown(each, f"{prefix}-{at}", texts) for at, each in enumerate(fields))


def _shown(field: Field, name: str, texts: Texts) -> FormField:
    held = tuple(texts.get(name, ()))
    text = held[-1] if held else ""
    within: tuple[FormField, ...] = ()
    if field.kind == "object":
        within = shown_form(field.fields, texts, name)
    elif field.kind == "list" and field.item is not None:
        within = tuple(_shown(field.item, f"{name}-e{entry}", texts) for entry in _entries(held))
    elif field.kind == "variant" and (text or field.required):
        at = _chosen(field, text)
        within = (_shown(field.variants[at], f"{name}-v{at}", texts),)
        text = str(at)
    return FormField(name, field, text, held, within)


def _entries(held: Sequence[str]) -> Iterator[str]:
    known = dict.fromkeys(each for each in held if each.isascii() and each.isdigit() and len(each) < 6)
    yield from list(known)[:_MOST_ENTRIES]


def _chosen(field: Field, text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and int(text[:3]) < len(field.variants) else 0


def edited(form: Posted, texts: Texts) -> dict[str, Sequence[str]] | None:
    """The texts after a button that only changes the form; None where no such button was pressed."""
    added, dropped = form.text(ADD), form.text(DROP)
    if added:
        held = list(_entries(texts.get(added, ())))
        following = 1 + max((int(each) for each in held), default=-1)
        return {**texts, added: [*held, str(following)]}
    if dropped:
        name, _, entry = dropped.rpartition("-e")
        return {**texts, name: [each for each in texts.get(name, ()) if each != entry]}
    return dict(texts) if form.flag(SHAPE) else None


def labels(fields: Sequence[FormField], before: str = "") -> dict[str, str]:
    """What the fields are called, by their names in the form."""
    found: dict[str, str] = {}
    for at, each in enumerate(fields):
        said = f"{before}{each.field.name or f'entry {at + 1}'}"
        found[each.name] = said
        found |= labels(each.within, f"{said}: " if each.field.kind != "variant" else before)
    return found


# From texts to JSON.


def read_form(
    fields: Sequence[Field], texts: Texts, prefix: str = "arg", *, blanks: bool = True
) -> dict[str, Any]:
    """The object that was filled in: what is empty and not required is left out. ``blanks``: a text that is
    required may be empty. Raises BadArguments."""
    errors: dict[str, str] = {}
    shown = shown_form(fields, texts, prefix)
    found = _object(shown, errors)
    if not blanks:
        errors |= {each.name: _required(each) for each in shown if each.field.required and not each.filled}
    if errors:
        raise BadArguments(errors)
    return found


def read_json(text: str) -> dict[str, Any]:
    """An object that was written as JSON. Raises BadArguments, for the field ``json``."""
    try:
        value: object = json.loads(text)
    except ValueError as error:
        raise BadArguments({"json": f"This is no valid JSON: {error}."}) from None
    except RecursionError:
        raise BadArguments({"json": "This JSON is nested too deeply."}) from None
    if not isinstance(value, dict):
        raise BadArguments({"json": 'Arguments are a JSON object, such as {"path": "notes.txt"}.'})
    return cast("dict[str, Any]", value)


def _object(fields: Sequence[FormField], errors: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in fields:
        if each.filled or each.field.required:
            value = _value(each, errors)
            if value is not _NOTHING:
                found[each.field.name] = value
    return found


_NOTHING = object()


def _value(each: FormField, errors: dict[str, str]) -> object:
    match each.field.kind:
        case "object":
            return _object(each.within, errors)
        case "variant":
            return _value(each.within[0], errors)
        case "list":
            values = [_value(entry, errors) for entry in each.within if entry.filled]
            return [value for value in values if value is not _NOTHING]
        case "several":
            return [value for text in each.texts if (value := _parsed(each, text, errors)) is not _NOTHING]
        case "fixed":
            return json.loads(each.field.options[0].value)
        case "text" | "long":
            # Browsers send the ends of lines in their own way.
            return each.text.replace("\r\n", "\n")
        case _:
            return _parsed(each, each.text, errors)


def _required(each: FormField) -> str:
    return f"“{each.field.title or each.field.name or 'The entry'}” is required."


def _parsed(each: FormField, text: str, errors: dict[str, str]) -> object:
    kind, said = each.field.kind, each.field.name or "The entry"
    if not text.strip():
        errors[each.name] = _required(each)
        return _NOTHING
    try:
        return _READERS.get(kind, json.loads)(text)
    except (ValueError, RecursionError):
        errors[each.name] = f"“{said}” is not {_WORDS.get(kind, 'valid JSON')}."
        return _NOTHING


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


_READERS: Mapping[str, Callable[[str], object]] = {"number": _number, "integer": _integer}
_WORDS = {
    "number": "a number",
    "integer": "a whole number",
    "flag": "true or false",
    "choice": "one of the choices",
    "several": "one of the choices",
}


# From JSON to texts.


def texts_of(
    fields: Sequence[Field], given: JsonObject | None = None, prefix: str = "arg"
) -> dict[str, Sequence[str]]:
    """The texts that stand for an object; without one, for what the schema proposes."""
    texts: dict[str, Sequence[str]] = {}
    for at, field in enumerate(fields):
        if given is None:
            _propose(field, f"{prefix}-{at}", texts)
        elif field.name in given:
            _write(field, f"{prefix}-{at}", given[field.name], texts)
    return texts


def _propose(field: Field, name: str, texts: dict[str, Sequence[str]]) -> None:
    if field.default is not None:
        _write(field, name, json.loads(field.default), texts)
    elif field.kind == "object":
        texts |= texts_of(field.fields, None, name)
    elif field.kind == "variant" and field.required:
        _propose(field.variants[0], f"{name}-v0", texts)
    elif field.kind == "list" and field.required and field.item is not None:
        texts[name] = ["0"]
        _propose(field.item, f"{name}-e0", texts)


def _write(field: Field, name: str, value: object, texts: dict[str, Sequence[str]]) -> None:
    match field.kind:
        case "object" if isinstance(value, Mapping):
            texts |= texts_of(field.fields, cast("JsonObject", value), name)
        case "list" if _is_list(value) and field.item is not None:
            texts[name] = [str(at) for at in range(min(len(value), _MOST_ENTRIES))]
            for at, entry in enumerate(value[:_MOST_ENTRIES]):
                _write(field.item, f"{name}-e{at}", entry, texts)
        case "several" if _is_list(value):
            texts[name] = [_json(each) for each in value]
        case "variant":
            at = _fitting(field, value)
            texts[name] = [str(at)]
            _write(field.variants[at], f"{name}-v{at}", value, texts)
        case "text" | "long" if isinstance(value, str):
            texts[name] = [value]
        case _:
            texts[name] = [_json(value)]


def _fitting(field: Field, value: object) -> int:
    """The variant that can say a value; the first where none can."""
    for at, variant in enumerate(field.variants):
        texts: dict[str, Sequence[str]] = {}
        _write(variant, "v", value, texts)
        errors: dict[str, str] = {}
        if _value(_shown(variant, "v", texts), errors) == value and not errors:
            return at
    return 0


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return ""
