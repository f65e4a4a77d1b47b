"""A tool as its server published it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Definition", "JsonObject", "Tool"]

JsonObject = Mapping[str, Any]
"""A JSON object as it came over the wire. What is inside is unchecked."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One tool of one server. ``raw`` is the server's own object, never altered."""

    server_id: str
    name: str
    title: str | None = None
    description: str = ""
    input_schema: JsonObject = field(default_factory=dict[str, Any])
    output_schema: JsonObject | None = None
    annotations: JsonObject = field(default_factory=dict[str, Any])
    raw: JsonObject = field(default_factory=dict[str, Any])

    @property
    def id(self) -> str:
        """The canonical id, ``server/tool``."""
        return f"{self.server_id}/{self.name}"

    @property
    def read_only_hint(self) -> bool | None:
        """What the server claims; None where it says nothing, or nothing that is a boolean."""
        return _read_bool_annotation(self.annotations, "readOnlyHint")

    @property
    def idempotent_hint(self) -> bool | None:
        """What the server claims about calling twice with the same arguments."""
        return _read_bool_annotation(self.annotations, "idempotentHint")


def _read_bool_annotation(annotations: JsonObject, key: str) -> bool | None:
    value = annotations.get(key)
    return value if isinstance(value, bool) else None


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as a caller sees it. ``name`` is what to call it by, ``id`` what names it for good."""

    name: str
    id: str
    server: str
    title: str | None
    description: str
    input_schema: JsonObject
    output_schema: JsonObject | None
    annotations: JsonObject
