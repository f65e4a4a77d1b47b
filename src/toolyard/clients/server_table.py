"""Table of all servers, their visibility per principal, and the difference made by new definitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from toolyard.types.server import Provenance, Server, StdioSpec, Trust

__all__ = ["ServerChange", "ServerTable"]

_NO_PROVENANCE = Provenance("code")


@dataclass(frozen=True, slots=True)
class ServerChange:
    """One server before and after a change. None: it did not exist before, or does not exist afterwards."""

    before: Server | None
    after: Server | None

    @property
    def can_keep_connection(self) -> bool:
        """True if no field that affects a connection has changed."""
        if self.before is None or self.after is None:
            return False
        return _connection_fields(self.before) == _connection_fields(self.after)


class ServerTable:
    """Configured servers, visible to everyone, and each owner's instances."""

    def __init__(self, servers: Iterable[Server]) -> None:
        self.servers_by_id: dict[str, Server] = {server.id: server for server in servers}
        """All servers, including the instances of every owner."""
        self._configured: dict[str, Server] = {}
        self.instances_by_owner: dict[str, dict[str, Server]] = {}
        for server in self.servers_by_id.values():
            if server.instance is None:
                self._configured[server.id] = server
            else:
                self.instances_by_owner.setdefault(server.instance.owner, {})[server.id] = server

    def visible_servers(self, principal_id: str) -> Mapping[str, Server]:
        """Return the servers that exist for a principal."""
        own = self.instances_by_owner.get(principal_id)
        return self._configured if own is None else {**self._configured, **own}

    def update(self, servers: Iterable[Server]) -> dict[str, ServerChange]:
        """Replace the configured servers and return the changes by id. Raise ValueError for an instance."""
        new = {server.id: server for server in servers}
        if any(server.instance is not None for server in new.values()):
            raise ValueError("instances are replaced with sync_instances")
        return self._replace_servers(self._configured, new)

    def sync_instances(self, owner: str, servers: Iterable[Server]) -> dict[str, ServerChange]:
        """Replace the instances of one owner and return the changes by id. Raise ValueError for other
        servers."""
        new = {server.id: server for server in servers}
        for server in new.values():
            if server.instance is None or server.instance.owner != owner:
                raise ValueError(f"the instance '{server.id}' does not belong to '{owner}'")
        changes = self._replace_servers(self.instances_by_owner.setdefault(owner, {}), new)
        if not new:
            del self.instances_by_owner[owner]
        return changes

    def _replace_servers(
        self, current: dict[str, Server], new: Mapping[str, Server]
    ) -> dict[str, ServerChange]:
        changes: dict[str, ServerChange] = {}
        for server_id in {**current, **new}:
            before, after = current.get(server_id), new.get(server_id)
            # An equal definition keeps the old object: caches compare definitions by identity.
            if before == after:
                continue
            if after is None:
                del current[server_id], self.servers_by_id[server_id]
            else:
                current[server_id] = self.servers_by_id[server_id] = after
            if _without_provenance(before) != _without_provenance(after):
                changes[server_id] = ServerChange(before, after)
        return changes


def _without_provenance(server: Server | None) -> Server | None:
    """Return the definition without its source location: moving it to another line is not a change."""
    return server and replace(server, provenance=_NO_PROVENANCE)


def _connection_fields(server: Server) -> Server:
    """Return the definition with all fields reset that affect only lists, policy and display."""
    # A stdio server learns once what its clients can do, which is nothing if it is untrusted.
    trust = server.trust if isinstance(server.transport, StdioSpec) else Trust.TRUSTED
    return replace(
        server,
        label=None,
        description=None,
        trust=trust,
        cache_ttl=0.0,
        allow_tools=None,
        deny_tools=(),
        provenance=_NO_PROVENANCE,
        instance=None if server.instance is None else replace(server.instance, tool_filter=None),
    )
