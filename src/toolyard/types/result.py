"""Results of tool calls: the server's raw response and the view for models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, TypedDict, cast

from toolyard.types.tool import JsonObject

__all__ = [
    "ContentBlock",
    "ErrorView",
    "Media",
    "ResourceLink",
    "Result",
    "ResultLimits",
    "TextBlock",
    "TextResource",
]


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
