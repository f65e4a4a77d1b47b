"""Parse entries of ``bundles``."""

from __future__ import annotations

from toolyard.config.entries.allowlists import read_allow_tools
from toolyard.config.entries.checked_object import CheckedObject
from toolyard.config.entries.raw_entries import RawBundle
from toolyard.types.server import Bundle

__all__ = ["read_bundle"]


def read_bundle(bundle_id: str, entry: CheckedObject) -> RawBundle:
    """Parse one bundle. Its server is checked later, when all sources have been read."""
    server_id = entry.text("serverId", required=True)
    mode = entry.choice("mode", ("direct", "meta"), required=True)
    label = entry.text("label")
    allow, deny = read_allow_tools(entry), entry.patterns("denyTools")
    entry.report_unknown_keys()
    bundle = None
    if server_id is not None and mode is not None:
        bundle = Bundle(
            id=bundle_id,
            server_id=server_id,
            mode="direct" if mode == "direct" else "meta",
            label=label,
            allow_tools=allow,
            deny_tools=deny or (),
            provenance=entry.report.provenance(entry.path),
        )
    return RawBundle(bundle, entry.path, entry.report)
