"""Who is calling."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LOCAL_PRINCIPAL", "Principal"]


@dataclass(frozen=True, slots=True)
class Principal:
    """A person or a token. Every pool, cache and record is keyed by ``id``."""

    id: str
    name: str = ""
    admin: bool = False


LOCAL_PRINCIPAL = Principal("local", name="local user", admin=True)
"""The one user of the library, of the command line and of mode ``none``."""
