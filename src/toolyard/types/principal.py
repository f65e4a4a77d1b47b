"""Identity on whose behalf a call is made."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LOCAL_PRINCIPAL", "Principal"]


@dataclass(frozen=True, slots=True)
class Principal:
    """The user on whose behalf tools are called. Connection pools, caches and records are keyed by ``id``."""

    id: str
    name: str = ""
    admin: bool = False


LOCAL_PRINCIPAL = Principal("local", name="local user", admin=True)
"""The only user of the library, of the command line and of authentication mode ``none``."""
