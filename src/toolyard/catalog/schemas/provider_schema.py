"""A definition, ready for one provider's API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from toolyard.catalog.schemas.anthropic import anthropic_schema
from toolyard.catalog.schemas.gemini import gemini_schema
from toolyard.catalog.schemas.normalize import normal
from toolyard.catalog.schemas.openai import openai_schema
from toolyard.catalog.schemas.openai_strict import NotStrict, Path, strict_schema, without_added_nulls
from toolyard.catalog.schemas.root_object import object_root
from toolyard.catalog.schemas.schema_merge import Schema
from toolyard.types.tool import Definition

__all__ = ["Provider", "View", "view"]


class Provider(StrEnum):
    """Whose API, and which form of a tool."""

    OPENAI = "openai"
    """Chat Completions, also as Ollama, llama.cpp, vLLM and others speak it."""
    OPENAI_STRICT = "openai-strict"
    """Chat Completions with ``strict``: the model cannot leave the schema."""
    OPENAI_RESPONSES = "openai-responses"
    """The Responses API, where a tool is strict unless it says otherwise; it says otherwise."""
    ANTHROPIC = "anthropic"
    """The Messages API."""
    GEMINI = "gemini"
    """A function declaration in Gemini's subset of OpenAPI."""


@dataclass(frozen=True, slots=True)
class View:
    """``tool`` goes into the request as it is. ``notes`` say what of the schema could not be carried over."""

    provider: Provider
    tool: dict[str, Any]
    notes: tuple[str, ...] = ()
    strict: bool = False
    added_nulls: frozenset[Path] = frozenset()

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments to call the server with, from those that a model gave for this view.

        A strict view makes every property required and lets optional ones be null; a null that the server's
        own schema does not know is taken out again.
        """
        return without_added_nulls(given, self.added_nulls)


def view(definition: Definition, name: str, provider: Provider) -> View:
    """The tool under its exposed ``name``, for ``provider``. Never raises; the definition is not altered."""
    plain, notes = normal(definition.input_schema)
    schema, more = object_root(plain)
    notes += more
    description = definition.description or definition.title or ""
    if provider is Provider.OPENAI_STRICT:
        return _strict(name, description, schema, notes)
    build, convert = _FORMS[provider]
    converted, more = convert(schema)
    return View(provider, build(name, description, converted), tuple(dict.fromkeys([*notes, *more])))


def _strict(name: str, description: str, schema: Schema, notes: list[str]) -> View:
    try:
        # What was merged or cut on the way is a promise that strict decoding would turn into a prison.
        if notes:
            raise NotStrict(notes[0])
        strict, added = strict_schema(schema)
    except NotStrict as reason:
        converted, more = openai_schema(schema)
        tool = _chat(name, description, converted)
        tool["function"]["strict"] = False
        notes = list(dict.fromkeys([f"not strict: {reason}", *notes, *more]))
        return View(Provider.OPENAI_STRICT, tool, tuple(notes))
    tool = _chat(name, description, strict)
    tool["function"]["strict"] = True
    return View(Provider.OPENAI_STRICT, tool, strict=True, added_nulls=added)


def _chat(name: str, description: str, schema: Schema) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": schema},
    }


def _responses(name: str, description: str, schema: Schema) -> dict[str, Any]:
    return {
        "type": "function",
        "name": name,
        "description": description,
        "parameters": schema,
        "strict": False,
    }


def _anthropic(name: str, description: str, schema: Schema) -> dict[str, Any]:
    return {"name": name, "description": description, "input_schema": schema}


def _gemini(name: str, description: str, schema: Schema) -> dict[str, Any]:
    return {"name": name, "description": description, "parameters": schema}


_FORMS: Mapping[
    Provider,
    tuple[Callable[[str, str, Schema], dict[str, Any]], Callable[[Schema], tuple[Schema, list[str]]]],
] = {
    Provider.OPENAI: (_chat, openai_schema),
    Provider.OPENAI_RESPONSES: (_responses, openai_schema),
    Provider.ANTHROPIC: (_anthropic, anthropic_schema),
    Provider.GEMINI: (_gemini, gemini_schema),
}
