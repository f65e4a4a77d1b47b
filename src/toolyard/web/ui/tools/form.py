"""The form of one tool's arguments: fields from its schema, or JSON written by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from toolyard.types.tool import JsonObject
from toolyard.web.ui.components.forms import Posted
from toolyard.web.ui.tools.schema_fields import Field, fields_of
from toolyard.web.ui.tools.schema_form import (
    BadArguments,
    FormField,
    Texts,
    edited,
    labels,
    read_form,
    read_json,
    shown_form,
    texts_of,
)

__all__ = ["ToolForm"]


@dataclass(frozen=True, slots=True)
class ToolForm:
    """What was filled in, and what was wrong with it."""

    fields: tuple[Field, ...]
    texts: Texts
    written: str = ""
    """Arguments as JSON. Where there are any, the fields do not count."""
    errors: Mapping[str, str] = field(default_factory=dict[str, str])
    prefix: str = "arg"
    takes_any: bool = False
    """Whether the schema has properties, though none that make a form."""
    blanks: bool = True
    """Whether a text that is required may be empty. To a tool that may mean something."""
    only_changed: bool = False
    """Whether a button was pressed that changes the form and sends nothing."""

    @classmethod
    def of(cls, schema: JsonObject, given: JsonObject | None = None) -> ToolForm:
        """The form of a tool: with what its schema proposes, or with arguments that were given before."""
        fields = fields_of(schema)
        made = cls(fields, texts_of(fields, given), takes_any=_takes_any(schema))
        return made if given is None or made._says(given) else replace(made, written=_pretty(given))

    @classmethod
    def question(cls, schema: JsonObject, prefix: str) -> ToolForm:
        """The form of what a server asks a person."""
        fields = fields_of(schema)
        return cls(fields, texts_of(fields, None, prefix), prefix=prefix, blanks=False)

    def sent(self, form: Posted) -> ToolForm:
        """The same form with what was sent."""
        texts = form.under(f"{self.prefix}-")
        changed = edited(form, texts)
        return replace(
            self,
            texts=texts if changed is None else changed,
            written=form.text("json"),
            only_changed=changed is not None,
        )

    def wrong(self, error: BadArguments) -> ToolForm:
        """The same form with what was wrong."""
        return replace(self, errors=error.errors)

    def arguments(self) -> dict[str, Any]:
        """What it stands for. Raises BadArguments."""
        if self.written.strip():
            return read_json(self.written)
        return read_form(self.fields, self.texts, self.prefix, blanks=self.blanks)

    @property
    def shown(self) -> tuple[FormField, ...]:
        """The fields, for the page."""
        return shown_form(self.fields, self.texts, self.prefix)

    @property
    def labels(self) -> dict[str, str]:
        """The fields' names for people."""
        return {"json": "Arguments as JSON", **labels(self.shown)}

    def _says(self, given: JsonObject) -> bool:
        try:
            return read_form(self.fields, self.texts, self.prefix) == given
        except BadArguments:
            return False


def _takes_any(schema: JsonObject) -> bool:
    return bool(schema.get("properties")) or schema.get("additionalProperties") not in (None, False)


def _pretty(given: JsonObject) -> str:
    return json.dumps(given, indent=2, ensure_ascii=False)
