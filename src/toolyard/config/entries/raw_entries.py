"""Parsed entries before variables are expanded and layers are merged."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from toolyard.config.problem_report import ProblemReport
from toolyard.config.sources.json_document import JsonPath
from toolyard.types.server import Bundle, Server

__all__ = ["ConfigLayer", "RawBundle", "RawServer"]


@dataclass(frozen=True, slots=True)
class RawServer:
    """A server with unexpanded variables. ``server`` is None if its transport is invalid.

    ``transport_path`` is the location of the transport's keys, which depends on the dialect.
    """

    server: Server | None
    path: JsonPath
    transport_path: JsonPath
    report: ProblemReport
    fallback: Server | None = None
    """Definition that is listed if the entry is invalid. None in the strict dialect, where an invalid entry
    makes the whole configuration invalid. ``report`` then belongs to this entry alone."""


@dataclass(frozen=True, slots=True)
class RawBundle:
    """A bundle with the location of its entry. ``bundle`` is None if its entry is invalid."""

    bundle: Bundle | None
    server_id: str | None
    path: JsonPath
    report: ProblemReport


@dataclass(frozen=True, slots=True)
class ConfigLayer:
    """All entries of one source. ``approved`` is False for a discovered file that is not approved yet."""

    report: ProblemReport
    servers: dict[str, RawServer] = field(default_factory=dict[str, RawServer])
    bundles: dict[str, RawBundle] = field(default_factory=dict[str, RawBundle])
    broken: bool = False
    """The source is not valid JSON, so references to missing entries are not reported."""
    approved: bool = True
    folder: Path | None = None
    """Project folder of a discovered file, in which its stdio servers run."""
