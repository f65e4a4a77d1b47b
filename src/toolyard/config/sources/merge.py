"""Layers become one configuration: merged by id, resolved, and checked against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from toolyard.config.entries.cross_checks import check_references
from toolyard.config.entries.raw_entries import ConfigLayer, RawBundle, RawServer
from toolyard.config.sources.server_variables import resolve_variables
from toolyard.errors import ConfigError, Problem
from toolyard.types.config import Configuration
from toolyard.types.server import Server

__all__ = ["merge_layers"]


def merge_layers(
    layers: Sequence[ConfigLayer],
    env: Mapping[str, str],
    *,
    file: str | None = None,
    waiting: str | None = None,
    unapproved_reason: str | None = None,
    hints: Sequence[Problem] = (),
    complete: bool = True,
) -> Configuration:
    """Merge ``layers``, the lowest first: an entry replaces the whole entry of the same id below it.

    ``unapproved`` is what the servers of a layer that is not approved say about themselves. Not ``whole``:
    other layers are left out, so an entry may refer to one that is not here.
    Raises ConfigError with everything that is wrong in any layer.
    """
    drafts: dict[str, RawServer] = {}
    bundles: dict[str, RawBundle] = {}
    reasons: dict[str, str | None] = {}
    for layer in layers:
        drafts |= layer.servers
        bundles |= layer.bundles
        reasons |= dict.fromkeys(layer.servers, None if layer.approved else unapproved_reason)

    servers: dict[str, Server] = {}
    for server_id, draft in drafts.items():
        if draft.server is not None:
            servers[server_id] = resolve_variables(
                draft, draft.server, env, unapproved_reason=reasons[server_id]
            )
    if complete and not any(layer.broken for layer in layers):
        check_references(drafts, bundles)

    reports = [layer.report for layer in layers]
    problems = [problem for report in reports for problem in report.problems]
    if problems:
        raise ConfigError(problems)
    return Configuration(
        servers=MappingProxyType(servers),
        bundles=MappingProxyType({key: draft.bundle for key, draft in bundles.items() if draft.bundle}),
        hints=(*hints, *(hint for report in reports for hint in report.hints)),
        file=file,
        waiting=waiting,
    )
