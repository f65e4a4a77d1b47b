"""Conversion of a tool definition into the request format of one model provider.

Anthropic's requirements beyond JSON Schema draft 2020-12 are few and applied here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from toolyard.catalog.schemas.gemini import gemini_schema
from toolyard.catalog.schemas.normalize import normalize_schema
from toolyard.catalog.schemas.openai import (
    ArgumentPath,
    NotStrictError,
    openai_schema,
    remove_added_nulls,
    strict_schema,
)
from toolyard.catalog.schemas.schema_merge import Schema, convert_root, printable_excerpt
from toolyard.types.tool import Definition

__all__ = ["ProviderApi", "ProviderTool", "anthropic_schema", "build_provider_tool"]


_ALLOWED_PROPERTY_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def anthropic_schema(root: Schema) -> tuple[Schema, list[str]]:
    """Return the schema without properties whose names make the API refuse the whole request."""
    refused = [name for name in root["properties"] if not _ALLOWED_PROPERTY_NAME.fullmatch(name)]
    if not refused:
        return root, []
    properties = {name: schema for name, schema in root["properties"].items() if name not in refused}
    result = {**root, "properties": properties}
    if "required" in root:
        result["required"] = [name for name in root["required"] if name not in refused]
    return result, [
        f"the argument '{printable_excerpt(name)}' was left out: the API refuses its name" for name in refused
    ]


class ProviderApi(StrEnum):
    """API of a model provider, and the form of its tools."""

    OPENAI = "openai"
    """Chat Completions, also of compatible servers such as Ollama, llama.cpp and vLLM."""
    OPENAI_STRICT = "openai-strict"
    """Chat Completions with ``strict``: the model's arguments always match the schema."""
    OPENAI_RESPONSES = "openai-responses"
    """The Responses API. Tools are strict by default there, so ``strict`` is set to False."""
    ANTHROPIC = "anthropic"
    """The Messages API."""
    GEMINI = "gemini"
    """A function declaration in Gemini's subset of OpenAPI."""


@dataclass(frozen=True, slots=True)
class ProviderTool:
    """A tool in a provider's format.

    ``tool`` is the object for the request. ``notes`` describe the parts of the schema that were lost.
    """

    provider: ProviderApi
    tool: dict[str, Any]
    notes: tuple[str, ...] = ()
    strict: bool = False
    added_nulls: frozenset[ArgumentPath] = frozenset()

    def arguments(self, model_arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments for the server, from the arguments that a model produced for this tool.

        In strict mode every property is required and optional ones may be null; nulls that the server's
        schema does not allow are removed.
        """
        return remove_added_nulls(model_arguments, self.added_nulls)


def build_provider_tool(definition: Definition, name: str, provider: ProviderApi) -> ProviderTool:
    """Return the tool under its exposed ``name`` for ``provider``. Never raises."""
    plain, notes = normalize_schema(definition.input_schema)
    schema, more = convert_root(plain)
    notes += more
    description = definition.description or definition.title or ""
    if provider is ProviderApi.OPENAI_STRICT:
        return _build_strict_tool(name, description, schema, notes)
    build, convert = _CONVERTERS_BY_PROVIDER[provider]
    converted, more = convert(schema)
    return ProviderTool(provider, build(name, description, converted), tuple(dict.fromkeys([*notes, *more])))


def _build_strict_tool(name: str, description: str, schema: Schema, notes: list[str]) -> ProviderTool:
    try:
        # A schema that was merged or truncated may not describe all valid arguments. That is only a hint to
        # the model otherwise, but strict decoding would make those arguments impossible.
        if notes:
            raise NotStrictError(notes[0])
        strict, added = strict_schema(schema)
    except NotStrictError as reason:
        converted, more = openai_schema(schema)
        tool = _chat_completions_tool(name, description, converted)
        tool["function"]["strict"] = False
        notes = list(dict.fromkeys([f"not strict: {reason}", *notes, *more]))
        return ProviderTool(ProviderApi.OPENAI_STRICT, tool, tuple(notes))
    tool = _chat_completions_tool(name, description, strict)
    tool["function"]["strict"] = True
    return ProviderTool(ProviderApi.OPENAI_STRICT, tool, strict=True, added_nulls=added)


def _chat_completions_tool(name: str, description: str, schema: Schema) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": schema},
    }


def _responses_tool(name: str, description: str, schema: Schema) -> dict[str, Any]:
    return {
        "type": "function",
        "name": name,
        "description": description,
        "parameters": schema,
        "strict": False,
    }


def _plain_tool(name: str, description: str, schema: Schema, *, schema_key: str) -> dict[str, Any]:
    return {"name": name, "description": description, schema_key: schema}


_CONVERTERS_BY_PROVIDER: Mapping[
    ProviderApi,
    tuple[Callable[[str, str, Schema], dict[str, Any]], Callable[[Schema], tuple[Schema, list[str]]]],
] = {
    ProviderApi.OPENAI: (_chat_completions_tool, openai_schema),
    ProviderApi.OPENAI_RESPONSES: (_responses_tool, openai_schema),
    ProviderApi.ANTHROPIC: (partial(_plain_tool, schema_key="input_schema"), anthropic_schema),
    ProviderApi.GEMINI: (partial(_plain_tool, schema_key="parameters"), gemini_schema),
}
