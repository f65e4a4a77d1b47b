"""Tools: the definition published by a server, and the tool offered to a caller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Definition", "JsonObject", "Tool"]

JsonObject = Mapping[str, Any]
"""JSON object as received. Its contents are not validated."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One tool of one server. ``raw`` is the object that the server sent, never changed."""

    server_id: str
    name: str
    title: str | None = None
    description: str = ""
    input_schema: JsonObject = field(default_factory=dict[str, Any])
    output_schema: JsonObject | None = None
    annotations: JsonObject = field(default_factory=dict[str, Any])
    raw: JsonObject = field(default_factory=dict[str, Any])
    tokens: int | None = field(default=None, compare=False)
    """Estimated tokens of name, description and input schema; None if the tool is not from a listing."""

    @property
    def id(self) -> str:
        """Canonical id, ``server/tool``."""
        return f"{self.server_id}/{self.name}"

    @property
    def read_only_hint(self) -> bool | None:
        """The server's claim that the tool changes nothing; None if it is missing or not a boolean."""
        value = self.annotations.get("readOnlyHint")
        return value if isinstance(value, bool) else None

    @property
    def idempotent_hint(self) -> bool | None:
        """The server's claim that repeating a call with the same arguments has no further effect, or None."""
        value = self.annotations.get("idempotentHint")
        return value if isinstance(value, bool) else None


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as offered to a caller.

    ``name`` is the exposed name for calls, ``id`` the permanent canonical id.
    """

    name: str
    id: str
    server: str
    title: str | None
    description: str
    input_schema: JsonObject
    output_schema: JsonObject | None
    annotations: JsonObject
