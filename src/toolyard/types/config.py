"""Validated configuration, with the provenance of each entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from toolyard.errors import Problem
from toolyard.types.server import Bundle, Server

__all__ = ["Configuration"]


@dataclass(frozen=True, slots=True)
class Configuration:
    """Servers and bundles by id, merged from all sources.

    ``hints`` are warnings that do not prevent loading: ignored keys, a file that needs approval.
    ``file`` is the configuration file in use, ``waiting`` a file (or a changed version of it) that is not
    approved yet.
    """

    servers: Mapping[str, Server] = field(default_factory=dict[str, Server])
    bundles: Mapping[str, Bundle] = field(default_factory=dict[str, Bundle])
    hints: tuple[Problem, ...] = ()
    file: str | None = None
    waiting: str | None = None
