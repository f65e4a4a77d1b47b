"""The form of one tool's arguments: fields from its schema, or JSON written by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from toolyard.types.tool import JsonObject
from toolyard.web.ui.components.forms import SubmittedForm
from toolyard.web.ui.tools.schema_fields import SchemaField, read_schema_fields
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


@dataclass(frozen=True, slots=True)
class ToolForm:
    """What was filled in, and what was wrong with it."""

    fields: tuple[SchemaField, ...]
    texts: FormTexts
    written: str = ""
    """Arguments as JSON. Where there are any, the fields do not count."""
    errors: Mapping[str, str] = field(default_factory=dict[str, str])
    prefix: str = "arg"
    takes_any: bool = False
    """Whether the schema has properties, though none that make a form."""
    allow_blank: bool = True
    """Whether a text that is required may be empty. To a tool that may mean something."""
    only_changed: bool = False
    """Whether a button was pressed that changes the form and sends nothing."""

    @classmethod
    def from_schema(cls, schema: JsonObject, previous_arguments: JsonObject | None = None) -> ToolForm:
        """The form of a tool: with what its schema proposes, or with arguments that were given before."""
        fields = read_schema_fields(schema)
        made = cls(
            fields, build_form_texts(fields, previous_arguments), takes_any=_can_take_arguments(schema)
        )
        return (
            made
            if previous_arguments is None or made._can_represent(previous_arguments)
            else replace(made, written=_format_json(previous_arguments))
        )

    @classmethod
    def from_question(cls, schema: JsonObject, prefix: str) -> ToolForm:
        """The form of what a server asks a person."""
        fields = read_schema_fields(schema)
        return cls(fields, build_form_texts(fields, None, prefix), prefix=prefix, allow_blank=False)

    def with_submission(self, form: SubmittedForm) -> ToolForm:
        """The same form with what was sent."""
        texts = form.fields_with_prefix(f"{self.prefix}-")
        changed = apply_edit_button(form, texts)
        return replace(
            self,
            texts=texts if changed is None else changed,
            written=form.text("json"),
            only_changed=changed is not None,
        )

    def with_errors(self, error: BadArguments) -> ToolForm:
        """The same form with what was wrong."""
        return replace(self, errors=error.errors)

    def arguments(self) -> dict[str, Any]:
        """What it stands for. Raises BadArguments."""
        if self.written.strip():
            return read_json(self.written)
        return read_form(self.fields, self.texts, self.prefix, allow_blank=self.allow_blank)

    @property
    def shown(self) -> tuple[FormField, ...]:
        """The fields, for the page."""
        return build_form_fields(self.fields, self.texts, self.prefix)

    @property
    def labels(self) -> dict[str, str]:
        """The fields' names for people."""
        return {"json": "Arguments as JSON", **build_field_labels(self.shown)}

    def _can_represent(self, expected: JsonObject) -> bool:
        try:
            return read_form(self.fields, self.texts, self.prefix) == expected
        except BadArguments:
            return False


def _can_take_arguments(schema: JsonObject) -> bool:
    return bool(schema.get("properties")) or schema.get("additionalProperties") not in (None, False)


def _format_json(given: JsonObject) -> str:
    return json.dumps(given, indent=2, ensure_ascii=False)
