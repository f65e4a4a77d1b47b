"""Submitted forms, and validation errors by form field."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.datastructures import UploadFile

from toolyard.accounts import errors as people
from toolyard.errors import Problem, ToolyardError
from toolyard.registry import errors as registry
from toolyard.types.registry import FieldSpec, record_fields
from toolyard.web.access.form_data import parse_form
from toolyard.web.ui.components.formatting import sentence

__all__ = [
    "FORM_ERRORS",
    "FormDep",
    "SubmittedForm",
    "field_errors",
    "form_specs",
    "format_field_error",
    "format_sentence",
    "parse_number",
    "read_form",
    "safe_redirect_path",
]


_INDEX_PATTERN = re.compile(r"\[(\d+)\]")

FORM_ERRORS = (registry.Invalid, registry.Taken, people.Invalid, people.NameTaken)
"""Errors shown beside the fields of a form. All others lead to an error page."""


class SubmittedForm:
    """Text fields of a submitted form. Missing fields are empty."""

    def __init__(self, fields: Mapping[str, Sequence[str]]) -> None:
        self._fields = fields

    def text(self, name: str, default: str = "") -> str:
        """Return the last value of a field."""
        values = self._fields.get(name)
        return values[-1] if values else default

    def all_values(self, name: str) -> tuple[str, ...]:
        """Return all values of a field, as a group of checkboxes sends them."""
        return tuple(self._fields.get(name, ()))

    def is_checked(self, name: str) -> bool:
        """Return True if a checkbox is checked."""
        return name in self._fields

    def words(self, name: str) -> tuple[str, ...]:
        """Return the lines of a text area without blanks and commas around them. Empty lines are left out."""
        return tuple(word for line in self.text(name).splitlines() if (word := line.strip().strip(",")))

    def read_fields(self, record: type[Any], prefix: str = "") -> dict[str, Any]:
        """Return the values of a registry record's fields that the form has, as its draft has them."""
        values: dict[str, Any] = {}
        for each in record_fields(record):
            name = f"{prefix}{each.name}"
            if each.name not in form_specs(record):
                continue
            if each.type is bool:
                values[each.name] = self.is_checked(name)
            elif each.item_type is not None:
                values[each.name] = self.words(name)
            elif each.optional:
                values[each.name] = self.text(name).strip() or None
            else:
                values[each.name] = self.text(name, each.default if each.allowed_values else "")
        return values

    def next_path(self, default: str) -> str:
        """Return the page to go to after the form: its field ``next`` if that is a page of this app."""
        return safe_redirect_path(self.text("next"), default)

    def names(self) -> tuple[str, ...]:
        """Return the names of all fields."""
        return tuple(self._fields)

    def fields_with_prefix(self, prefix: str) -> dict[str, Sequence[str]]:
        """Return the values of all fields whose names start with ``prefix``."""
        return {name: values for name, values in self._fields.items() if name.startswith(prefix)}


def safe_redirect_path(requested: str, default: str) -> str:
    """Return ``requested`` if it is a page of this app, else ``default``.

    Control characters and backslashes are rejected, because browsers normalise them: ``/\\evil.test`` would
    lead to another site (open redirect).
    """
    has_unsafe_character = any(ord(char) < 0x21 or char == "\\" for char in requested)
    return requested if requested.startswith("/ui/") and not has_unsafe_character else default


def form_specs(record: type[Any]) -> dict[str, FieldSpec]:
    """Return the facts about the fields of a registry record that people enter, by name."""
    return {each.name: each.spec for each in record_fields(record) if each.spec.label}


async def read_form(
    request: Request, save_file: Callable[[UploadFile], Awaitable[str]] | None = None
) -> SubmittedForm:
    """Read the form of a request. Raises an HTTP error if it has too many fields or files.

    ``save_file`` stores an uploaded file and returns the value of its field. Without it, files are ignored.
    """
    fields: dict[str, list[str]] = {}
    form = await parse_form(request)
    try:
        for name, value in form.multi_items():
            if isinstance(value, str):
                fields.setdefault(name, []).append(value)
            elif save_file is not None:
                fields.setdefault(name, []).append(await save_file(value))
    finally:
        await form.close()
    return SubmittedForm(fields)


async def _read_texts(request: Request) -> SubmittedForm:
    return await read_form(request)


FormDep = Annotated[SubmittedForm, Depends(_read_texts)]
"""The form of the request. As a parameter it follows the user, so that the form of a stranger is not read."""


def field_errors(error: ToolyardError, labels: Mapping[str, str]) -> dict[str, str]:
    """Return error messages by form field name. Errors of the whole form have the empty name.

    ``labels`` maps the fields of the form to the names that people see, which start the messages.
    """
    if isinstance(error, registry.Taken):
        # The error knows which of its fields must be unique.
        return {error.field: format_sentence(error.cause, error.hint)}
    if isinstance(error, people.NameTaken):
        return {"name": format_sentence(error.cause, error.hint)}
    messages: dict[str, str] = {}
    if isinstance(error, registry.Invalid | people.Invalid):
        for problem in error.problems:
            name, text = _format_problem(problem, labels)
            messages[name] = f"{messages[name]}\n{text}" if name in messages else text
    return messages or {"": format_sentence(error.cause, error.hint)}


def _format_problem(problem: Problem, labels: Mapping[str, str]) -> tuple[str, str]:
    """Return the form field and message of a problem. The path ``choices[1].key`` is the field
    ``choices-1-key``; entries of a list belong to the field of the list."""
    name = _INDEX_PATTERN.sub(r"-\1", problem.path).replace(".", "-")
    entry = ""
    if name not in labels and (tail := re.fullmatch(r"(.+)-(\d+)", name)) and tail[1] in labels:
        name, entry = tail[1], f" (entry {int(tail[2]) + 1})"
    label = labels.get(name)
    # The problem has no field in this form, so it is shown above the form with its path.
    if label is None:
        return "", format_sentence(f"{problem.path}: {problem.message}", problem.hint)
    return name, format_field_error(f"{label}{entry}", problem.message, problem.hint)


def format_field_error(label: str, message: str, hint: str | None = None) -> str:
    """Return an error of one field as complete sentences.

    A message that is a predicate (``is required``) gets ``label`` as its subject. Others are sentences.
    """
    return format_sentence(f"{label} {message}" if _is_predicate(message) else message, hint)


def _is_predicate(message: str) -> bool:
    return message.split(" ", 1)[0] in ("is", "holds", "has", "must", "names", "does")


def format_sentence(text: str, hint: str | None) -> str:
    """Return a message and its hint, if there is one, as sentences."""
    return " ".join(sentence(part) for part in (text, hint) if part)


def parse_number(text: str | None, max_digits: int = 9) -> int | None:
    """Return a whole number without a sign; None for any other text, also one with too many digits.

    Larger numbers than expected do not fit the integers of the database.
    """
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) <= max_digits
    return int(text) if is_number and text is not None else None
