"""Form for the arguments of a tool: fields generated from its schema, or JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import orjson

from toolyard.catalog.schemas.form_fields import SchemaField, read_schema_fields
from toolyard.types.tool import JsonObject
from toolyard.web.ui.components.forms import SubmittedForm
from toolyard.web.ui.tools.schema_form import (
    BadArguments,
    FormField,
    FormTexts,
    apply_edit_button,
    build_field_labels,
    build_form_fields,
    build_form_texts,
    read_form,
    read_json,
)

__all__ = ["ToolForm"]

_MAX_CACHED_SCHEMA_BYTES = 20_000


@dataclass(frozen=True, slots=True)
class ToolForm:
    """Form with entered values and error messages."""

    fields: tuple[SchemaField, ...]
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
    def from_schema(cls, schema: JsonObject, previous_arguments: JsonObject | None = None) -> ToolForm:
        """Return the form of a tool, filled with the defaults of its schema or with previous arguments.

        Previous arguments that the fields cannot represent are shown as JSON.
        """
        fields = _read_fields(schema)
        form = cls(
            fields, build_form_texts(fields, previous_arguments), takes_any=_can_take_arguments(schema)
        )
        return (
            form
            if previous_arguments is None or form._can_represent(previous_arguments)
            else replace(form, written=_format_json(previous_arguments))
        )

    @classmethod
    def from_question(cls, schema: JsonObject, prefix: str) -> ToolForm:
        """Return the form of an elicitation request."""
        fields = _read_fields(schema)
        return cls(fields, build_form_texts(fields, None, prefix), prefix=prefix, strict=True)

    def with_submission(self, form: SubmittedForm) -> ToolForm:
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


def _read_fields(schema: JsonObject) -> tuple[SchemaField, ...]:
    try:
        text = orjson.dumps(schema)
    except orjson.JSONEncodeError:
        return read_schema_fields(schema)
    return _read_encoded(text) if len(text) <= _MAX_CACHED_SCHEMA_BYTES else read_schema_fields(schema)


@lru_cache(maxsize=256)
def _read_encoded(schema: bytes) -> tuple[SchemaField, ...]:
    """Return the fields of a schema. People run one tool several times, and a page renders its form again."""
    return read_schema_fields(orjson.loads(schema))


def _can_take_arguments(schema: JsonObject) -> bool:
    return bool(schema.get("properties")) or schema.get("additionalProperties") not in (None, False)


def _format_json(arguments: JsonObject) -> str:
    return json.dumps(arguments, indent=2, ensure_ascii=False)
