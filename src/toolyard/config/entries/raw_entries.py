"""Entries as they are written: checked for themselves, before variables are filled in and layers merged."""

from __future__ import annotations

from dataclasses import dataclass, field

from toolyard.config.problem_report import ProblemReport
from toolyard.config.sources.json_document import JsonPath
from toolyard.types.server import Bundle, Server

__all__ = ["ConfigLayer", "RawBundle", "RawServer"]


@dataclass(frozen=True, slots=True)
class RawServer:
    """A server with its texts as written. ``server`` is None where its entry cannot be used.

    ``transport_path`` is where the fields of the transport stand, which depends on the dialect.
    """

    server: Server | None
    path: JsonPath
    transport_path: JsonPath
    report: ProblemReport


@dataclass(frozen=True, slots=True)
class RawBundle:
    """A bundle, with the place of its entry. ``bundle`` is None where its entry cannot be used."""

    bundle: Bundle | None
    path: JsonPath
    report: ProblemReport


@dataclass(frozen=True, slots=True)
class ConfigLayer:
    """Everything that one source says. ``approved`` is False for a file that nobody has looked at yet."""

    report: ProblemReport
    servers: dict[str, RawServer] = field(default_factory=dict[str, RawServer])
    bundles: dict[str, RawBundle] = field(default_factory=dict[str, RawBundle])
    broken: bool = False
    """The source could not be read as JSON, so what it lacks says nothing."""
    approved: bool = True
