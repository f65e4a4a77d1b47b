"""Listings of servers: the raw response, its validated form, and the catalogue returned by the cache."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from toolyard.types.tool import Definition, JsonObject

__all__ = ["CacheScope", "Catalogue", "QuarantinedTool", "RawListing", "ToolRemark", "ValidatedListing"]


class CacheScope(StrEnum):
    """Audience of a cached listing, as declared by the server (``cacheScope``)."""

    PUBLIC = "public"
    """May be shared by all principals."""
    PRIVATE = "private"
    """Valid only for the principal whose credentials fetched it."""


@dataclass(frozen=True, slots=True)
class RawListing:
    """Complete listing of a server, all pages joined, neither validated nor changed.

    ``ttl`` (seconds) and ``scope`` are the cache hints of the server; None if it sent none.
    """

    tools: tuple[object, ...] = ()
    prompts: tuple[object, ...] = ()
    resources: tuple[object, ...] = ()
    resource_templates: tuple[object, ...] = ()
    server_info: JsonObject = field(default_factory=dict[str, Any])
    capabilities: JsonObject = field(default_factory=dict[str, Any])
    protocol_version: str | None = None
    instructions: str | None = None
    ttl: float | None = None
    scope: CacheScope | None = None


@dataclass(frozen=True, slots=True)
class QuarantinedTool:
    """A tool excluded because its definition is invalid. ``name`` is None if it has no usable name."""

    server_id: str
    name: str | None
    reason: str
    raw: object = field(repr=False)

    def __str__(self) -> str:
        label = "a tool without a name" if self.name is None else f"tool '{self.name}'"
        return f"{label} of server '{self.server_id}' is quarantined: {self.reason}"


@dataclass(frozen=True, slots=True)
class ToolRemark:
    """Warning about a definition that is used without its invalid part."""

    server_id: str
    tool: str
    text: str

    def __str__(self) -> str:
        return f"tool '{self.tool}' of server '{self.server_id}': {self.text}"


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ValidatedListing:
    """A listing after validation.

    ``definitions`` are sorted by name; ``content_hash`` is a hash of the listing.
    """

    server_id: str
    content_hash: str
    listing: RawListing
    definitions: tuple[Definition, ...]
    quarantined: tuple[QuarantinedTool, ...] = ()
    remarks: tuple[ToolRemark, ...] = ()


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Listing of one server for one principal, as returned by the cache.

    ``age`` is in seconds, at the time of return. ``stale`` is true if the listing is older than its ``ttl``
    and was not refreshed; ``failure`` is the reason if a refresh failed.
    """

    contents: ValidatedListing
    fetched_at: float
    ttl: float
    age: float = 0.0
    stale: bool = False
    failure: str | None = None

    @property
    def server_id(self) -> str:
        """Id of the server."""
        return self.contents.server_id

    @property
    def content_hash(self) -> str:
        """Hash that is equal if and only if the listings are equal byte for byte."""
        return self.contents.content_hash

    @property
    def listing(self) -> RawListing:
        """Unchanged response of the server: prompts, resources, server info, instructions."""
        return self.contents.listing

    @property
    def definitions(self) -> tuple[Definition, ...]:
        """Valid tools, sorted by name."""
        return self.contents.definitions

    @property
    def quarantined(self) -> tuple[QuarantinedTool, ...]:
        """Tools with invalid definitions, each with the reason."""
        return self.contents.quarantined

    @property
    def remarks(self) -> tuple[ToolRemark, ...]:
        """Warnings about valid tools."""
        return self.contents.remarks

    def find(self, tool: str) -> Definition | None:
        """Return the definition with this name (the server's own, not the exposed one), or None."""
        definitions = self.contents.definitions
        index = bisect_left(definitions, tool, key=lambda definition: definition.name)
        if index < len(definitions) and definitions[index].name == tool:
            return definitions[index]
        return None
