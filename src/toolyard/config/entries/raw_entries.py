"""Entries as they are written: checked for themselves, before variables are filled in and layers merged."""

from __future__ import annotations

from dataclasses import dataclass, field

from toolyard.config.problem_report import Report
from toolyard.config.sources.json_document import Steps
from toolyard.types.server import Bundle, Server

__all__ = ["BundleDraft", "Layer", "ServerDraft"]


@dataclass(frozen=True, slots=True)
class ServerDraft:
    """A server with its texts as written. ``server`` is None where its entry cannot be used.

    ``transport_path`` is where the fields of the transport stand, which depends on the dialect.
    """

    server: Server | None
    path: Steps
    transport_path: Steps
    report: Report


@dataclass(frozen=True, slots=True)
class BundleDraft:
    """A bundle, with the place of its entry. ``bundle`` is None where its entry cannot be used."""

    bundle: Bundle | None
    path: Steps
    report: Report


@dataclass(frozen=True, slots=True)
class Layer:
    """Everything that one source says. ``approved`` is False for a file that nobody has looked at yet."""

    report: Report
    servers: dict[str, ServerDraft] = field(default_factory=dict[str, ServerDraft])
    bundles: dict[str, BundleDraft] = field(default_factory=dict[str, BundleDraft])
    broken: bool = False
    """The source could not be read as JSON, so what it lacks says nothing."""
    approved: bool = True
