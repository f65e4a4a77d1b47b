"""Status records of a user's servers, shared by the API, the pages and the live stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, cast
from urllib.parse import quote

from toolyard.catalog.token_costs import estimate_definition_tokens
from toolyard.clients import ConnectionManager
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.core.instance_sync import InstanceSync
from toolyard.core.server_updates import ServerUpdates
from toolyard.policy.rules import scope_covers_server
from toolyard.types.account import Principal
from toolyard.types.call import Caller
from toolyard.types.registry import Audience, Instance, InstanceState, RegistryServer, spec
from toolyard.types.server import Server, ServerProcess, State, Status, TransportName, Trust
from toolyard.web.servers.icons import find_icon_urls
from toolyard.web.servers.live_updates import LiveUpdates

__all__ = [
    "ServerRecord",
    "ServerRecords",
    "StatusUpdates",
]

_MAX_STDERR_LINES = 5
_shown = partial(spec, shown_to=Audience.USERS)
"""Facts about a field that the API shows."""

ServerState: TypeAlias = Literal[
    "disabled", "idle", "connecting", "ready", "needs_auth", "failed", "closed", "pending", "needs_reauth"
]


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """Status of one server for one user. ``id`` identifies a configured server or an instance."""

    kind: Literal["config", "instance"] = field(
        metadata=_shown(description="Configured server, or one of your instances.")
    )
    id: str = field(metadata=_shown(description="Id of the configured server or of the instance."))
    label: str = field(metadata=_shown())
    description: str = field(metadata=_shown())
    transport: TransportName = field(metadata=_shown())
    trust: Trust = field(metadata=_shown())
    enabled: bool = field(metadata=_shown())
    state: ServerState = field(
        metadata=_shown(description="State. Instances are pending, ready, needs_reauth, failed or disabled.")
    )
    reason: str | None = field(metadata=_shown(description="Reason for the state, as a stable identifier."))
    cause: str | None = field(metadata=_shown(description="Reason for the state, in one sentence."))
    hint: str | None = field(metadata=_shown(description="Suggested next step."))
    since: float | None = field(metadata=_shown())
    protocol_version: str | None = field(metadata=_shown())
    server_name: str | None = field(metadata=_shown())
    server_version: str | None = field(metadata=_shown())
    tool_count: int | None = field(
        metadata=_shown(description="Number of tools; null if they were never listed.")
    )
    token_cost: int | None = field(
        metadata=_shown(description="Estimated size of all tool definitions, in tokens.")
    )
    provenance: str | None = field(
        metadata=_shown(description="Source of the entry; for admins with file and line.")
    )
    shared: bool = field(metadata=_shown())
    restarts: int = field(default=0, metadata=_shown())
    next_retry: float | None = field(default=None, metadata=_shown())
    pid: int | None = field(default=None, metadata=_shown(description="Process id. Shown to admins only."))
    processes: tuple[ServerProcess, ...] = field(
        default=(),
        metadata=_shown(description="All processes of a stdio server for you. Shown to admins only."),
    )
    stderr: tuple[str, ...] = field(
        default=(),
        metadata=_shown(description="Last lines of standard error after a failure. Shown to admins only."),
    )
    slug: str | None = field(default=None, metadata=_shown(description="Slug of the instance."))
    registry_id: str | None = field(
        default=None, metadata=_shown(description="Registry server of the instance.")
    )
    icon: str = ""
    """Path of the icon that the server publishes, or empty. The API does not show it."""
    last_call: float | None = field(
        default=None,
        compare=False,
        metadata=_shown(
            description="Time of the last request to the server. A change of it alone sends no event."
        ),
    )
    """Not compared, because a request does not change the status.

    Shown for shared servers to admins only, because it reveals the activity of other users.
    """


@dataclass(frozen=True, slots=True)
class ServerRecords:
    """Builds status records of servers."""

    _instances: InstanceSync
    _manager: ConnectionManager
    _tool_directory: ToolDirectory
    _updates: ServerUpdates

    async def list_server_records(self, caller: Caller) -> list[ServerRecord]:
        """Return the configured servers, then the caller's instances, as far as their token covers them."""
        instances = await self._instances.sync_covered(caller.principal, caller.scope)
        visible = self._manager.visible_servers(caller.principal).values()
        return [
            *(
                self.build_config_record(caller, server)
                for server in visible
                if server.instance is None and scope_covers_server(caller.scope, server)
            ),
            *(self.build_instance_record(caller, *each) for each in instances),
        ]

    def build_config_record(self, caller: Caller, server: Server) -> ServerRecord:
        """Return the record of a configured server. File, process id and stderr are included for admins."""
        status = self._updates.get_status(server, caller.principal)
        state, reason = self._resolve_state(caller, server, status)
        details: dict[str, Any] = {"provenance": server.provenance.source}
        if caller.principal.admin:
            details = {
                "provenance": str(server.provenance),
                "pid": status.pid,
                "processes": status.processes,
                "stderr": status.stderr[-_MAX_STDERR_LINES:] if state is State.FAILED else (),
            }
        elif server.problems:
            # Only admins see where the file is.
            reason = reason._replace(cause=server.disabled_reason)
        return self._build_record(caller, server, status, state, reason, **details)

    def build_instance_record(
        self, caller: Caller, instance: Instance, registered: RegistryServer
    ) -> ServerRecord:
        """Return the record of a synchronised instance, with the stored state that all replicas share."""
        server = self._instances.get_server(instance, registered)
        status = self._updates.get_status(server, caller.principal)
        return self._build_record(
            caller,
            server,
            status,
            *_resolve_stored_state(instance, registered, server, status),
            kind="instance",
            id=instance.id,
            label=instance.name,
            slug=instance.slug,
            registry_id=registered.id,
            provenance="registry",
        )

    def find_icon_urls(self, caller: Caller, server: Server) -> tuple[str, ...]:
        """Return the addresses of the icons that a server is known to publish."""
        return find_icon_urls(self._get_server_info(caller, server))

    def find_instance_icon_path(self, caller: Caller, instance: Instance, registered: RegistryServer) -> str:
        """Return the path of the icon of an instance's server, or an empty string."""
        server = self._instances.get_server(instance, registered)
        return _build_icon_path(server, self._get_server_info(caller, server))

    def find_icon_path(self, principal: Principal, server_id: str) -> str:
        """Return the path of the icon of a server whose tools a person has listed; empty if there is none.

        It may be called from a thread.
        """
        catalogue = self._tool_directory.known_listing(principal).catalogues.get(server_id)
        if catalogue is None or "icons" not in catalogue.listing.server_info:
            return ""
        server = self._manager.find(server_id, principal)
        return "" if server is None else _build_icon_path(server, catalogue.listing.server_info)

    def _get_server_info(self, caller: Caller, server: Server) -> Mapping[str, Any]:
        catalogue = self._tool_directory.known_listing(caller.principal).catalogues.get(server.id)
        status = self._updates.get_status(server, caller.principal)
        return status.server_info or ({} if catalogue is None else catalogue.listing.server_info)

    def _resolve_state(self, caller: Caller, server: Server, status: Status) -> tuple[State, _StateReason]:
        failure = self._tool_directory.known_listing(caller.principal).failures.get(server.id)
        if failure is not None and status.state is State.READY:
            # A server that is connected but cannot list its tools is of no use to the caller.
            return State.FAILED, _StateReason(failure.kind, failure.cause, failure.hint)
        return status.state, _StateReason(status.reason, status.cause, status.hint)

    def _build_record(
        self,
        caller: Caller,
        server: Server,
        status: Status,
        state: str,
        reason: _StateReason,
        **more: Any,
    ) -> ServerRecord:
        catalogue = self._tool_directory.known_listing(caller.principal).catalogues.get(server.id)
        listed = None if catalogue is None else catalogue.listing
        info = status.server_info or ({} if listed is None else listed.server_info)
        identity: dict[str, Any] = {
            "kind": "config",
            "id": server.id,
            "label": server.label or server.id,
            **more,
        }
        return ServerRecord(
            description=server.description or "",
            transport=server.transport.type,
            trust=server.trust,
            enabled=server.enabled,
            state=cast("ServerState", str(state)),
            reason=reason.reason,
            cause=reason.cause,
            hint=reason.hint,
            # A connection that was never opened has no meaningful start time.
            since=status.since
            if status.connects or not (server.problems or status.state in _UNCONNECTED_STATES)
            else None,
            protocol_version=status.protocol_version or (listed and listed.protocol_version),
            server_name=_get_nonempty_text(info.get("title")) or _get_nonempty_text(info.get("name")),
            server_version=_get_nonempty_text(info.get("version")),
            tool_count=None if catalogue is None else len(catalogue.definitions),
            token_cost=None
            if catalogue is None
            else sum(map(estimate_definition_tokens, catalogue.definitions)),
            shared=server.shared,
            icon=_build_icon_path(server, info),
            restarts=status.restarts,
            next_retry=status.next_retry,
            last_call=status.last_call if caller.principal.admin or not server.shared else None,
            **identity,
        )


class _StateReason(NamedTuple):
    """Reason for a state: a stable identifier, a sentence, and a hint."""

    reason: str | None = None
    cause: str | None = None
    hint: str | None = None


def _resolve_stored_state(
    instance: Instance, registered: RegistryServer, server: Server, status: Status
) -> tuple[str, _StateReason]:
    cause = server.disabled_reason or instance.reason
    if not instance.enabled or not registered.enabled:
        return "disabled", _StateReason("disabled", cause)
    if instance.state is InstanceState.READY:
        return "ready", _StateReason()
    name, hint = instance.state.value, _HINTS_BY_STATE[instance.state]
    # The connection of this replica failed in the way that was stored, so its details apply.
    if status.cause == cause and status.reason is not None:
        return name, _StateReason(status.reason, cause, status.hint or hint)
    return name, _StateReason(name, cause, hint)


_HINTS_BY_STATE = {
    InstanceState.PENDING: "sign in, or enter the key, to connect",
    InstanceState.NEEDS_REAUTH: "sign in again, or enter the key again, to reconnect",
    InstanceState.FAILED: "test the connection; the next call retries, too",
}


def _build_icon_path(server: Server, server_info: Mapping[str, Any]) -> str:
    if not find_icon_urls(server_info):
        return ""
    if server.instance is not None:
        return f"/ui/mcp/{server.instance.id}/icon"
    return f"/ui/servers/{quote(server.id, safe='')}/icon"


_UNCONNECTED_STATES = (State.IDLE, State.DISABLED)


def _get_nonempty_text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


class StatusUpdates(LiveUpdates[Caller, ServerRecord]):
    """Live updates of the status records of each caller."""

    def __init__(self, records: ServerRecords) -> None:
        async def fetch_records(caller: Caller) -> dict[str, ServerRecord]:
            return {f"{each.kind}:{each.id}": each for each in await records.list_server_records(caller)}

        super().__init__(fetch_records)
