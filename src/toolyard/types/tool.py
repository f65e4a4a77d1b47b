"""Tools: their definitions and listings, the tools offered to a caller, and the results of calls."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Literal, TypeAlias, TypedDict, cast

__all__ = [
    "CacheScope",
    "Catalogue",
    "ContentBlock",
    "Definition",
    "ErrorView",
    "JsonObject",
    "Media",
    "QuarantinedTool",
    "RawListing",
    "ResourceLink",
    "Result",
    "ResultLimits",
    "TextBlock",
    "TextResource",
    "Tool",
    "ToolRemark",
    "ValidatedListing",
]


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
    id: str = field(init=False, repr=False, compare=False)
    """Canonical id, ``server/tool``."""
    read_only_hint: bool | None = field(init=False, repr=False, compare=False)
    """The server's claim that the tool changes nothing; None if it is missing or not a boolean."""

    def __post_init__(self) -> None:
        value = self.annotations.get("readOnlyHint")
        object.__setattr__(self, "id", f"{self.server_id}/{self.name}")
        object.__setattr__(self, "read_only_hint", value if isinstance(value, bool) else None)

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

    def find(self, tool: str) -> Definition | None:
        """Return the definition with this name (the server's own, not the exposed one), or None."""
        definitions = self.contents.definitions
        index = bisect_left(definitions, tool, key=lambda definition: definition.name)
        if index < len(definitions) and definitions[index].name == tool:
            return definitions[index]
        return None


@dataclass(frozen=True, slots=True)
class ResultLimits:
    """Limits for one result.

    ``characters`` limits the text, including notes and fences; ``media`` limits the bytes of each image or
    sound.
    """

    characters: int = 64_000
    media_bytes: int = 5_000_000

    MIN_CHARACTERS: ClassVar[int] = 1_000
    """Minimum of ``characters``: a shorter text would consist mostly of notes."""
    UNLIMITED_CHARACTERS: ClassVar[int] = 2**31
    """Value of ``characters`` from which nothing is truncated and no file is stored separately."""

    def __post_init__(self) -> None:
        if self.characters < self.MIN_CHARACTERS:
            raise ValueError(
                f"a result limit must be at least {self.MIN_CHARACTERS} characters, not {self.characters}"
            )


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Text content."""

    text: str


@dataclass(frozen=True, slots=True)
class Media:
    """Image, audio or file. ``data`` is base64; ``size`` is the number of decoded bytes."""

    kind: Literal["image", "audio", "file"]
    mime: str
    data: str
    size: int
    uri: str | None = None
    """URI of the embedded resource; None for other content."""
    handle: str | None = None
    """Handle in the result store, for media that models cannot take as they are; None: not stored."""
    digest: str | None = None
    """First digits of the SHA-256 of its bytes, if stored."""

    def __str__(self) -> str:
        return self.describe(f'result_read with handle "{self.handle}" reads it' if self.handle else None)

    def describe(self, location_hint: str | None) -> str:
        """Return a one-line description.

        ``location_hint`` explains how to read the bytes, if they are stored.
        """
        uri = f" {self.uri}" if self.uri else ""
        digest = f", sha256 {self.digest}" if self.digest else ""
        suffix = f"; {location_hint}" if location_hint else ""
        return f"[{self.kind}{uri}: {self.mime}, {self.size:,} bytes{digest}{suffix}]"


@dataclass(frozen=True, slots=True)
class TextResource:
    """Embedded resource with text contents."""

    uri: str
    mime: str | None
    text: str


@dataclass(frozen=True, slots=True)
class ResourceLink:
    """Link to a resource that was not fetched."""

    uri: str
    name: str
    mime: str | None = None


ContentBlock: TypeAlias = TextBlock | Media | TextResource | ResourceLink


class ErrorView(TypedDict, total=False):
    """Model's view of a failed call. ``cause`` is present if the server could not be reached."""

    error: Literal[True]
    output: str
    cause: str


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one call, in two views.

    ``raw`` is the unchanged response of the server; None if it sent none. The other fields are the model's
    view: ``text`` is limited in length and, for an untrusted server, marked as untrusted. ``blocks`` are the
    complete content blocks for pages and programs; a model receives the media among them, and the others as
    part of ``text``.
    """

    raw: object
    text: str
    is_error: bool = False
    blocks: tuple[ContentBlock, ...] = ()
    warnings: tuple[str, ...] = ()
    truncated: bool = False
    handle: str | None = None
    """Handle of the complete text in the result store, if it was truncated; None: not stored."""
    cause: str | None = None
    """Reason why the server could not be reached."""

    @property
    def media(self) -> tuple[Media, ...]:
        """Images, audio and files, in the order of the response."""
        return tuple(block for block in self.blocks if isinstance(block, Media))

    @property
    def structured(self) -> object:
        """Structured content of the response, any JSON value; None if there is none."""
        raw: object = self.raw
        return cast(JsonObject, raw).get("structuredContent") if isinstance(raw, dict) else None

    def for_model(self) -> str | ErrorView:
        """Return the text, or an error object for a failed call. Media must be sent separately."""
        if not self.is_error:
            return self.text
        view: ErrorView = {"error": True, "output": self.text}
        if self.cause is not None:
            view["cause"] = self.cause
        return view
