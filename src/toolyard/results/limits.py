"""Limits on the part of a result that is passed to a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

__all__ = ["ResultLimits"]


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
