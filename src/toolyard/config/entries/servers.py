"""Parse entries of ``servers`` (Toolyard's dialect) and ``mcpServers`` (that of other clients).

Keys common to both are read by the same function. The dialects differ in the location of the transport, in
the key that disables a server, and in whether ``trust`` is required.
"""

from __future__ import annotations

from toolyard.config.entries.allowlists import read_allow_tools, report_bare_stars
from toolyard.config.entries.checked_object import CheckedObject
from toolyard.config.entries.oauth import read_oauth
from toolyard.config.entries.raw_entries import RawServer
from toolyard.config.entries.transports import read_flat_transport, read_nested_transport
from toolyard.config.sources.json_document import JsonPath
from toolyard.types.server import (
    ProtocolEra,
    RestartPolicy,
    Server,
    StdioSpec,
    Timeouts,
    TransportSpec,
    Trust,
)

__all__ = ["read_compatible_server", "read_strict_server"]

_PLACEHOLDER_TRANSPORT = StdioSpec(command="")
"""Replacement for an invalid transport, so that the other keys are still checked."""
_DEFAULT_SERVER = Server(id="", transport=_PLACEHOLDER_TRANSPORT)
_DEFAULT_TIMEOUTS, _DEFAULT_CACHE_TTL_SECONDS = _DEFAULT_SERVER.timeouts, _DEFAULT_SERVER.cache_ttl


def read_strict_server(server_id: str, entry: CheckedObject) -> RawServer:
    """Parse an entry of ``servers``: ``trust`` and ``transport`` are required, unknown keys are problems."""
    trust = entry.enum_member("trust", Trust, required=True)
    transport = read_nested_transport(entry)
    enabled = entry.flag("enabled")
    return _read_server(server_id, entry, transport, trust, enabled, (*entry.path, "transport"))


def read_compatible_server(server_id: str, entry: CheckedObject) -> RawServer:
    """Parse an entry of ``mcpServers``: it contains the transport's keys itself, unknown keys are hints."""
    trust = entry.enum_member("trust", Trust)
    nested = isinstance(entry.value.get("transport"), dict)
    transport = read_nested_transport(entry) if nested else read_flat_transport(entry)
    path = (*entry.path, "transport") if nested else entry.path
    return _read_server(server_id, entry, transport, trust, _read_enabled(entry), path)


def _read_server(
    server_id: str,
    entry: CheckedObject,
    transport: TransportSpec | None,
    trust: Trust | None,
    enabled: bool | None,
    transport_path: JsonPath,
) -> RawServer:
    """Parse the keys common to both dialects, even if the transport is invalid."""
    server = Server(
        id=server_id,
        transport=transport or _PLACEHOLDER_TRANSPORT,
        trust=trust or Trust.TRUSTED,
        enabled=enabled is not False,
        label=entry.text("label"),
        description=entry.text("description"),
        shared=entry.flag("shared") or False,
        protocol=entry.enum_member("protocol", ProtocolEra) or ProtocolEra.AUTO,
        timeouts=_read_timeouts(entry),
        stop_when_idle=entry.seconds("stopWhenIdle"),
        restart=entry.enum_member("restart", RestartPolicy) or RestartPolicy.NEVER,
        cache_ttl=_read_cache_ttl(entry),
        allow_tools=read_allow_tools(entry),
        deny_tools=entry.patterns("denyTools") or (),
        private_addresses=entry.flag("privateAddresses"),
        oauth=read_oauth(entry),
        provenance=entry.report.provenance(entry.path),
    )
    entry.report_unknown_keys()
    if server.trust is Trust.UNTRUSTED:
        report_bare_stars(server.allow_tools, entry.path, entry.report)
    if server.oauth is not None and isinstance(transport, StdioSpec):
        entry.report.hint((*entry.path, "oauth"), "has no effect on a stdio server")
    usable = server if transport is not None else None
    return RawServer(usable, entry.path, transport_path, entry.report)


def _read_timeouts(entry: CheckedObject) -> Timeouts:
    inner = entry.child_object("timeouts")
    if inner is None:
        return _DEFAULT_TIMEOUTS
    timeouts = Timeouts(
        connect=inner.seconds("connect") or _DEFAULT_TIMEOUTS.connect,
        silence=inner.seconds("silence") or _DEFAULT_TIMEOUTS.silence,
        call=inner.seconds("call") or _DEFAULT_TIMEOUTS.call,
    )
    inner.report_unknown_keys()
    return timeouts


def _read_cache_ttl(entry: CheckedObject) -> float:
    inner = entry.child_object("cache")
    if inner is None:
        return _DEFAULT_CACHE_TTL_SECONDS
    ttl = inner.seconds("ttl", allow_zero=True)
    inner.report_unknown_keys()
    return _DEFAULT_CACHE_TTL_SECONDS if ttl is None else ttl


def _read_enabled(entry: CheckedObject) -> bool | None:
    """Read ``enabled``, or ``disabled`` as other clients write it. If both are present, they must agree."""
    enabled, disabled = entry.flag("enabled"), entry.flag("disabled")
    if enabled is not None and disabled is not None and enabled is disabled:
        entry.report.problem(
            (*entry.path, "disabled"),
            "contradicts 'enabled'",
            hint="keep one of the two",
        )
    if enabled is None and disabled is not None:
        return not disabled
    return enabled
