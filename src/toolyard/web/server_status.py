"""One record for each server that a visitor has: how it is, for API, pages and live stream alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from toolyard.catalog.token_estimate import estimate_definition
from toolyard.policy.rules.token_scope import covers
from toolyard.types.call import Caller
from toolyard.types.catalog import Catalogue
from toolyard.types.registry import Instance, InstanceState, RegistryServer
from toolyard.types.server import Server
from toolyard.types.status import State, Status

if TYPE_CHECKING:
    from toolyard.web.services import Site

__all__ = ["Costs", "ServerRecord", "config_record", "instance_record", "records_of"]

_LAST_WORDS = 5


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """How one server is, for one person. ``id`` is a config server's own, or an instance's."""

    kind: Literal["config", "instance"]
    id: str
    label: str
    description: str
    transport: Literal["stdio", "http", "sse"]
    trust: str
    enabled: bool
    state: str
    """A connection's state; for an instance pending, ready, needs_reauth, failed or disabled."""
    reason: str | None
    """Why, as a stable word."""
    cause: str | None
    """Why, in one sentence."""
    hint: str | None
    since: float | None
    protocol_version: str | None
    server_name: str | None
    server_version: str | None
    tool_count: int | None
    token_cost: int | None
    provenance: str | None
    shared: bool
    restarts: int = 0
    next_retry: float | None = None
    pid: int | None = None
    stderr: tuple[str, ...] = ()
    slug: str | None = None
    registry_id: str | None = None
    """The registry server that an instance is of."""
    last_call: float | None = field(default=None, compare=False)
    """When it was last asked something, which is no change of how it is. Of one that people share it is for
    admins: it tells what others do."""


class Costs:
    """What the definitions of a catalogue cost a model, estimated once for each content."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def of(self, catalogue: Catalogue) -> int:
        """In tokens."""
        cost = self._known.get(catalogue.content_hash)
        if cost is None:
            if len(self._known) > 4096:
                self._known.clear()
            cost = sum(map(estimate_definition, catalogue.definitions))
            self._known[catalogue.content_hash] = cost
        return cost


async def records_of(site: Site, caller: Caller) -> list[ServerRecord]:
    """All servers of the configuration, then the caller's instances, as far as their token reaches."""
    found = await site.holdings.covered(caller.principal, caller.scope)
    visible = site.parts.manager.visible(caller.principal).values()
    return [
        *(
            config_record(site, caller, server)
            for server in visible
            if server.instance is None and covers(caller.scope, server)
        ),
        *(instance_record(site, caller, *each) for each in found),
    ]


def config_record(site: Site, caller: Caller, server: Server) -> ServerRecord:
    """One server of the configuration. Where it comes from, and what it prints, is for admins."""
    status = site.status(server, caller.principal)
    state, why = _state(site, caller, server, status)
    if not caller.principal.admin:
        return _record(site, caller, server, status, state, why, provenance=server.provenance.source)
    lines = status.stderr[-_LAST_WORDS:] if state is State.FAILED else ()
    origin = str(server.provenance)
    return _record(site, caller, server, status, state, why, provenance=origin, pid=status.pid, stderr=lines)


def instance_record(
    site: Site, caller: Caller, instance: Instance, registered: RegistryServer
) -> ServerRecord:
    """One instance, which the core knows. Its state is the stored one, which all replicas share."""
    server = site.holdings.server(instance, registered)
    status = site.status(server, caller.principal)
    return _record(
        site,
        caller,
        server,
        status,
        *_stored_state(instance, registered, server, status),
        kind="instance",
        id=instance.id,
        label=instance.name,
        slug=instance.slug,
        registry_id=registered.id,
        provenance="registry",
    )


class _Why(NamedTuple):
    """Why a state is what it is: a stable word, a sentence, what to do."""

    reason: str | None = None
    cause: str | None = None
    hint: str | None = None


def _state(site: Site, caller: Caller, server: Server, status: Status) -> tuple[State, _Why]:
    failure = site.parts.rosters.known(caller.principal).failures.get(server.id)
    if failure is not None and status.state is State.READY:
        # One that answers, but cannot tell its tools, has failed for whoever wants them.
        return State.FAILED, _Why(failure.kind, failure.cause, failure.hint)
    return status.state, _Why(status.reason, status.cause, status.hint)


def _stored_state(
    instance: Instance, registered: RegistryServer, server: Server, status: Status
) -> tuple[str, _Why]:
    cause = server.disabled_reason or instance.reason
    if not instance.enabled or not registered.enabled:
        return "disabled", _Why("disabled", cause)
    if instance.state is InstanceState.READY:
        return "ready", _Why()
    if status.cause == cause and status.reason is not None:
        return instance.state.value, _Why(status.reason, cause, status.hint or _HINTS[instance.state])
    return instance.state.value, _Why(instance.state.value, cause, _HINTS[instance.state])


_HINTS = {
    InstanceState.PENDING: "connect it: sign in, or enter the value",
    InstanceState.NEEDS_REAUTH: "reconnect it: sign in again, or enter the value anew",
    InstanceState.FAILED: "test it again; the next use tries again, too",
}


def _record(
    site: Site, caller: Caller, server: Server, status: Status, state: str, why: _Why, **more: Any
) -> ServerRecord:
    catalogue = site.parts.rosters.known(caller.principal).catalogues.get(server.id)
    listed = None if catalogue is None else catalogue.listing
    info = status.server_info or ({} if listed is None else listed.server_info)
    told: dict[str, Any] = {"kind": "config", "id": server.id, "label": server.label or server.id, **more}
    return ServerRecord(
        description=server.description or "",
        transport=server.transport.type,
        trust=server.trust.value,
        enabled=server.enabled,
        state=str(state),
        reason=why.reason,
        cause=why.cause,
        hint=why.hint,
        # A connection that was never used has no beginning.
        since=status.since if status.connects or status.state not in _AT_REST else None,
        protocol_version=status.protocol_version or (listed and listed.protocol_version),
        server_name=_word(info.get("title")) or _word(info.get("name")),
        server_version=_word(info.get("version")),
        tool_count=None if catalogue is None else len(catalogue.definitions),
        token_cost=None if catalogue is None else site.costs.of(catalogue),
        shared=server.shared,
        restarts=status.restarts,
        next_retry=status.next_retry,
        last_call=status.last_call if caller.principal.admin or not server.shared else None,
        **told,
    )


_AT_REST = (State.IDLE, State.DISABLED)


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
