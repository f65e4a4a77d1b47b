"""How much of a result a model gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

__all__ = ["ResultLimits"]


@dataclass(frozen=True, slots=True)
class ResultLimits:
    """``characters`` bounds a result's text together with every note and fence around it, ``media`` the bytes
    of each picture and sound that goes beside it."""

    characters: int = 64_000
    media: int = 5_000_000

    MIN_CHARACTERS: ClassVar[int] = 1_000
    """Below this there would be room for the notes and little else."""
    UNLIMITED_CHARACTERS: ClassVar[int] = 2**31
    """From here on somebody reads all of it: nothing is too long, and no file is put aside."""

    def __post_init__(self) -> None:
        if self.characters < self.MIN_CHARACTERS:
            raise ValueError(
                f"a result needs at least {self.MIN_CHARACTERS} characters, not {self.characters}"
            )
