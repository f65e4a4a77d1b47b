"""The configuration as every room sees it: validated, frozen, each entry with its provenance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from toolyard.errors import Problem
from toolyard.types.server import Bundle, Server

__all__ = ["Configuration"]


@dataclass(frozen=True, slots=True)
class Configuration:
    """Servers and bundles by id, merged from every source.

    ``hints`` are remarks that stop nothing: ignored keys, a file that waits for approval.
    ``file`` is the one configuration file in use, ``waiting`` a file (or its change) that was not approved.
    """

    servers: Mapping[str, Server] = field(default_factory=dict[str, Server])
    bundles: Mapping[str, Bundle] = field(default_factory=dict[str, Bundle])
    hints: tuple[Problem, ...] = ()
    file: str | None = None
    waiting: str | None = None
