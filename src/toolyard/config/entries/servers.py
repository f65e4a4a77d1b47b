"""An entry of ``servers`` or ``mcpServers`` becomes a server.

What both dialects share is read by the same lines; they differ in where the transport stands, in how a server
is switched off, and in whether ``trust`` may be left out.
"""

from __future__ import annotations

from toolyard.config.entries.allowlists import read_allow_tools, report_bare_stars
from toolyard.config.entries.checked_object import Entry
from toolyard.config.entries.oauth import read_oauth
from toolyard.config.entries.raw_entries import ServerDraft
from toolyard.config.entries.transports import flat_transport, nested_transport
from toolyard.config.sources.json_document import Steps
from toolyard.types.server import (
    Protocol,
    Restart,
    Server,
    StdioSpec,
    Timeouts,
    TransportSpec,
    Trust,
)

__all__ = ["compatible_server", "strict_server"]

_NOWHERE = StdioSpec(command="")
"""Stands in for a transport that could not be read, so that the other keys are still checked."""
_DEFAULTS = Server(id="", transport=_NOWHERE)
_TIMEOUTS, _CACHE_TTL = _DEFAULTS.timeouts, _DEFAULTS.cache_ttl


def strict_server(server_id: str, entry: Entry) -> ServerDraft:
    """An entry of ``servers``: ``trust`` and ``transport`` are required, unknown keys are problems."""
    trust = entry.member("trust", Trust, required=True)
    transport = nested_transport(entry)
    enabled = entry.flag("enabled")
    return _draft(server_id, entry, transport, trust, enabled, (*entry.path, "transport"))


def compatible_server(server_id: str, entry: Entry) -> ServerDraft:
    """An entry of ``mcpServers``: the transport's keys stand in the entry, unknown keys are hints."""
    trust = entry.member("trust", Trust)
    nested = isinstance(entry.value.get("transport"), dict)
    transport = nested_transport(entry) if nested else flat_transport(entry)
    path = (*entry.path, "transport") if nested else entry.path
    return _draft(server_id, entry, transport, trust, _enabled(entry), path)


def _draft(
    server_id: str,
    entry: Entry,
    transport: TransportSpec | None,
    trust: Trust | None,
    enabled: bool | None,
    transport_path: Steps,
) -> ServerDraft:
    """Read the keys that mean the same in both dialects, also where the transport could not be read."""
    server = Server(
        id=server_id,
        transport=transport or _NOWHERE,
        trust=trust or Trust.TRUSTED,
        enabled=enabled is not False,
        label=entry.text("label"),
        description=entry.text("description"),
        shared=entry.flag("shared") or False,
        protocol=entry.member("protocol", Protocol) or Protocol.AUTO,
        timeouts=_timeouts(entry),
        stop_when_idle=entry.seconds("stopWhenIdle"),
        restart=entry.member("restart", Restart) or Restart.NEVER,
        cache_ttl=_cache_ttl(entry),
        allow_tools=read_allow_tools(entry),
        deny_tools=entry.patterns("denyTools") or (),
        private_addresses=entry.flag("privateAddresses"),
        oauth=read_oauth(entry),
        provenance=entry.report.provenance(entry.path),
    )
    entry.finish()
    if server.trust is Trust.UNTRUSTED:
        report_bare_stars(server.allow_tools, entry.path, entry.report)
    if server.oauth is not None and isinstance(transport, StdioSpec):
        entry.report.hint((*entry.path, "oauth"), "has no effect on a stdio server")
    usable = server if transport is not None else None
    return ServerDraft(usable, entry.path, transport_path, entry.report)


def _timeouts(entry: Entry) -> Timeouts:
    inner = entry.inner("timeouts")
    if inner is None:
        return _TIMEOUTS
    timeouts = Timeouts(
        connect=inner.seconds("connect") or _TIMEOUTS.connect,
        silence=inner.seconds("silence") or _TIMEOUTS.silence,
        call=inner.seconds("call") or _TIMEOUTS.call,
    )
    inner.finish()
    return timeouts


def _cache_ttl(entry: Entry) -> float:
    inner = entry.inner("cache")
    if inner is None:
        return _CACHE_TTL
    ttl = inner.seconds("ttl", zero=True)
    inner.finish()
    return _CACHE_TTL if ttl is None else ttl


def _enabled(entry: Entry) -> bool | None:
    """Other clients write ``disabled``; both may stand there if they agree."""
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
