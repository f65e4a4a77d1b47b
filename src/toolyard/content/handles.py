"""Where texts that were too long are kept, and under which name."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from toolyard.model.server import Trust

__all__ = ["Handles", "Kept", "handle_of"]


@dataclass(frozen=True, slots=True)
class Kept:
    """A whole text, and what must be known to show a part of it: an untrusted server's is fenced again."""

    text: str
    trust: Trust
    server: str = ""


class Handles(Protocol):
    """The store that shaping needs. It is made for one principal: a handle is no secret."""

    async def keep(self, handle: str, kept: Kept) -> None:
        """Keep a text under a handle. The same handle always comes with the same text."""
        ...

    async def read(self, handle: str) -> Kept | None:
        """What is kept under the handle; None where nothing is, or no longer."""
        ...

    async def has_any(self) -> bool:
        """Whether anything can be read."""
        ...


def handle_of(kept: Kept) -> str:
    """The handle that follows from what is kept, so that a repeated call reads the same in a prompt."""
    words = "\0".join((kept.trust.value, kept.server, kept.text))
    return f"r{sha256(words.encode('utf-8', 'surrogatepass')).hexdigest()[:20]}"
