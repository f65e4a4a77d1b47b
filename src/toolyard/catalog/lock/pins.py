"""A definition that was accepted, as a lock keeps it: whole, so that a change can be shown anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, TypeAlias, cast

from toolyard.catalog.hashes import definition_hash
from toolyard.types.tool import Definition, JsonObject

__all__ = ["Pin", "PinsByServer", "ServerPins", "text_hash"]


@dataclass(frozen=True, slots=True)
class Pin:
    """One accepted tool. ``definition`` has what the hash is made of, without what is absent."""

    hash: str
    definition: JsonObject

    @classmethod
    def from_definition(cls, definition: Definition) -> Pin:
        """The pin of a definition."""
        fields = {
            "name": definition.name,
            "title": definition.title,
            "description": definition.description,
            "inputSchema": definition.input_schema,
            "outputSchema": definition.output_schema,
            "annotations": definition.annotations or None,
        }
        return cls(
            definition_hash(definition), {key: value for key, value in fields.items() if value is not None}
        )

    @property
    def is_intact(self) -> bool:
        """Whether the hash is that of the definition beside it."""
        return self.hash == definition_hash(_definition_from_fields(self.definition))

    @property
    def body_hash(self) -> str:
        """The hash of all but the name: equal for a tool that was only renamed."""
        return definition_hash(_definition_from_fields({**self.definition, "name": ""}))

    @property
    def schema_hash(self) -> str:
        """The hash of what it takes: equal for tools with the same input schema."""
        return definition_hash(_definition_from_fields({"inputSchema": self.definition.get("inputSchema")}))


def _definition_from_fields(fields: JsonObject) -> Definition:
    def text(key: str) -> str | None:
        value: object = fields.get(key)
        return value if isinstance(value, str) else None

    def mapping(key: str) -> dict[str, Any] | None:
        value: object = fields.get(key)
        return cast("dict[str, Any]", value) if isinstance(value, dict) else None

    return Definition(
        "",
        text("name") or "",
        text("title"),
        text("description") or "",
        mapping("inputSchema") or {},
        mapping("outputSchema"),
        mapping("annotations") or {},
    )


@dataclass(frozen=True, slots=True)
class ServerPins:
    """What was accepted of one server. ``package`` is what its command fetches, where it fetches one."""

    tools: Mapping[str, Pin] = field(default_factory=dict[str, Pin])
    instructions: str | None = None
    package: str | None = None


PinsByServer: TypeAlias = Mapping[str, ServerPins]
"""By server id."""


def text_hash(text: str) -> str:
    """The hash that stands beside a server's instructions."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
