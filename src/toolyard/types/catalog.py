"""What a server has: its listing as it came, and the catalogue that was made of it."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from toolyard.types.tool import Definition, JsonObject

__all__ = ["CacheScope", "Catalogue", "QuarantinedTool", "RawListing", "ToolRemark", "ValidatedListing"]


class CacheScope(StrEnum):
    """Who may be shown a stored listing, in the server's own words (``cacheScope``)."""

    PUBLIC = "public"
    """The same for everyone."""
    PRIVATE = "private"
    """Only for the one whose credentials fetched it."""


@dataclass(frozen=True, slots=True)
class RawListing:
    """What a server answered when it was asked what it has: all pages, unjudged and unaltered.

    ``ttl`` (seconds) and ``scope`` are the server's own cache hints; None where it gave none.
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
    """A definition that cannot be used, set apart alone. ``name`` is None where it has no usable one."""

    server_id: str
    name: str | None
    reason: str
    raw: object = field(repr=False)

    def __str__(self) -> str:
        what = "a tool without a name" if self.name is None else f"tool '{self.name}'"
        return f"{what} of server '{self.server_id}' is quarantined: {self.reason}"


@dataclass(frozen=True, slots=True)
class ToolRemark:
    """Something odd in a definition that is used all the same, without the odd part."""

    server_id: str
    tool: str
    text: str

    def __str__(self) -> str:
        return f"tool '{self.tool}' of server '{self.server_id}': {self.text}"


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ValidatedListing:
    """A listing, judged. ``definitions`` are sorted by name; ``content_hash`` names the listing's bytes."""

    server_id: str
    content_hash: str
    listing: RawListing
    definitions: tuple[Definition, ...]
    quarantined: tuple[QuarantinedTool, ...] = ()
    remarks: tuple[ToolRemark, ...] = ()


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What one server has, for one caller, at one moment.

    ``age`` is in seconds, as of the moment it was handed out. ``stale`` says that it is past its ``ttl``
    and was not asked for again; ``failure`` says why asking again did not work.
    """

    contents: ValidatedListing
    fetched_at: float
    ttl: float
    age: float = 0.0
    stale: bool = False
    failure: str | None = None

    @property
    def server_id(self) -> str:
        """Whose catalogue it is."""
        return self.contents.server_id

    @property
    def content_hash(self) -> str:
        """Equal for equal listings, byte for byte."""
        return self.contents.content_hash

    @property
    def listing(self) -> RawListing:
        """The server's answer, unaltered: prompts, resources, server info, instructions."""
        return self.contents.listing

    @property
    def definitions(self) -> tuple[Definition, ...]:
        """The usable tools, sorted by name."""
        return self.contents.definitions

    @property
    def quarantined(self) -> tuple[QuarantinedTool, ...]:
        """The tools that cannot be used, each with its reason."""
        return self.contents.quarantined

    @property
    def remarks(self) -> tuple[ToolRemark, ...]:
        """What is odd about usable tools."""
        return self.contents.remarks

    def find(self, tool: str) -> Definition | None:
        """The definition with the server's own name ``tool``."""
        definitions = self.contents.definitions
        place = bisect_left(definitions, tool, key=lambda definition: definition.name)
        if place < len(definitions) and definitions[place].name == tool:
            return definitions[place]
        return None
