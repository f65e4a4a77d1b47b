"""The rules that need more than one entry: a bundle and its server, an untrusted server and its bundles."""

from __future__ import annotations

from collections.abc import Mapping

from toolyard.config.entries.allowlists import report_bare_stars
from toolyard.config.entries.raw_entries import RawBundle, RawServer
from toolyard.config.suggestions import did_you_mean
from toolyard.types.server import Bundle, Server, Trust

__all__ = ["check_references"]


def check_references(servers: Mapping[str, RawServer], bundles: Mapping[str, RawBundle]) -> None:
    """Report what is wrong between the merged entries, each at the entry that has to change."""
    of_server: dict[str, list[Bundle]] = {}
    for draft in bundles.values():
        if draft.bundle is None:
            continue
        target = servers.get(draft.bundle.server_id)
        if target is None:
            draft.report.problem(
                (*draft.path, "serverId"),
                f"there is no server '{draft.bundle.server_id}'",
                hint=did_you_mean(draft.bundle.server_id, servers),
            )
            continue
        of_server.setdefault(draft.bundle.server_id, []).append(draft.bundle)
        if target.server is not None and target.server.trust is Trust.UNTRUSTED:
            _check_untrusted_bundle(draft, draft.bundle)
    for server_id, draft in servers.items():
        if draft.server is not None and draft.server.trust is Trust.UNTRUSTED:
            _check_untrusted_server(draft, draft.server, of_server.get(server_id, []))


def _check_untrusted_bundle(draft: RawBundle, bundle: Bundle) -> None:
    report_bare_stars(bundle.allow_tools, draft.path, draft.report)
    if bundle.mode == "direct":
        draft.report.problem(
            (*draft.path, "mode"),
            f'expected "meta", found "direct": the server \'{bundle.server_id}\' is untrusted',
            hint="models reach an untrusted server through meta mode only",
        )


def _check_untrusted_server(draft: RawServer, server: Server, bundles: list[Bundle]) -> None:
    if server.allow_tools is not None:
        return
    if bundles and all(bundle.allow_tools is not None for bundle in bundles):
        return
    draft.report.problem(
        draft.path,
        "an untrusted server needs 'allowTools', on itself or on every bundle of it; found neither",
        hint='add "allowTools" with the names of the tools you need',
        at_key=True,
    )
