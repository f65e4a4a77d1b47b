"""What a call came to: as the server sent it, and as a model reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, TypedDict, cast

from toolyard.types.tool import JsonObject

__all__ = ["ContentBlock", "ErrorView", "Media", "ResourceLink", "Result", "TextBlock", "TextResource"]


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A piece of text."""

    text: str


@dataclass(frozen=True, slots=True)
class Media:
    """An image, a sound or a file. ``data`` is base64; ``size`` counts the bytes it stands for."""

    kind: Literal["image", "audio", "file"]
    mime: str
    data: str
    size: int
    uri: str | None = None
    """Where it came from, for one that was embedded as a resource."""
    handle: str | None = None
    """Where its bytes can be read, if no model can take it as it is and somebody keeps it."""
    digest: str | None = None
    """The beginning of the SHA-256 of its bytes, of one that is kept."""

    def __str__(self) -> str:
        return self.told(f'result_read with handle "{self.handle}" reads it' if self.handle else None)

    def told(self, location_hint: str | None) -> str:
        """What it is, in one line, and where its bytes can be read, if anywhere."""
        place = f" {self.uri}" if self.uri else ""
        digest = f", sha256 {self.digest}" if self.digest else ""
        after = f"; {location_hint}" if location_hint else ""
        return f"[{self.kind}{place}: {self.mime}, {self.size:,} bytes{digest}{after}]"


@dataclass(frozen=True, slots=True)
class TextResource:
    """An embedded resource whose contents are text."""

    uri: str
    mime: str | None
    text: str


@dataclass(frozen=True, slots=True)
class ResourceLink:
    """A resource that the server names and that was not fetched."""

    uri: str
    name: str
    mime: str | None = None


ContentBlock: TypeAlias = TextBlock | Media | TextResource | ResourceLink


class ErrorView(TypedDict, total=False):
    """What a model gets of a failed call. ``cause`` is there for a server that could not be reached."""

    error: Literal[True]
    output: str
    cause: str


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one call, in two views.

    ``raw`` is what the server sent, untouched; None where it sent nothing. The rest is the model's view:
    ``text`` is bounded and, for an untrusted server, fenced. ``blocks`` are the whole parts, for pages and
    programs; a model gets the media among them, and the others through ``text``.
    """

    raw: object
    text: str
    is_error: bool = False
    blocks: tuple[ContentBlock, ...] = ()
    warnings: tuple[str, ...] = ()
    truncated: bool = False
    handle: str | None = None
    """Where the whole text can be read, if it was too long and somebody keeps it."""
    cause: str | None = None
    """Why the server could not be reached."""

    @property
    def media(self) -> tuple[Media, ...]:
        """Images, sounds and files in the order in which they came."""
        return tuple(block for block in self.blocks if isinstance(block, Media))

    @property
    def structured(self) -> object:
        """The server's structured content, any JSON value; None where it sent none."""
        raw: object = self.raw
        return cast(JsonObject, raw).get("structuredContent") if isinstance(raw, dict) else None

    def for_model(self) -> str | ErrorView:
        """The text, or the error object that stands in its place. Media go beside it."""
        if not self.is_error:
            return self.text
        view: ErrorView = {"error": True, "output": self.text}
        if self.cause is not None:
            view["cause"] = self.cause
        return view
