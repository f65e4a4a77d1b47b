"""Which servers there are, for whom each of them exists, and what a new definition changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from toolyard.types.server import Provenance, Server, Trust

__all__ = ["ServerChange", "ServerTable"]

_NO_PROVENANCE = Provenance("code")


@dataclass(frozen=True, slots=True)
class ServerChange:
    """One server before and after: None where it was not there, or no longer is."""

    before: Server | None
    after: Server | None

    @property
    def can_keep_connection(self) -> bool:
        """Whether a connection may stay: nothing that it goes by is different."""
        if self.before is None or self.after is None:
            return False
        return _connection_fields(self.before) == _connection_fields(self.after)


class ServerTable:
    """The servers of the configuration, which everyone has, and each owner's instances."""

    def __init__(self, servers: Iterable[Server]) -> None:
        self.servers_by_id: dict[str, Server] = {server.id: server for server in servers}
        """With the instances of everyone."""
        self._configured: dict[str, Server] = {}
        self._instances_by_owner: dict[str, dict[str, Server]] = {}
        for server in self.servers_by_id.values():
            if server.instance is None:
                self._configured[server.id] = server
            else:
                self._instances_by_owner.setdefault(server.instance.owner, {})[server.id] = server

    def visible_servers(self, principal_id: str) -> Mapping[str, Server]:
        """Those that exist for a principal."""
        own = self._instances_by_owner.get(principal_id)
        return self._configured if own is None else {**self._configured, **own}

    def update(self, servers: Iterable[Server]) -> dict[str, ServerChange]:
        """Take over those of the configuration; what changed, by id. Raises ValueError for an instance."""
        new = {server.id: server for server in servers}
        if any(server.instance is not None for server in new.values()):
            raise ValueError("instances are taken over by sync")
        return self._replace_servers(self._configured, new)

    def sync_instances(self, owner: str, servers: Iterable[Server]) -> dict[str, ServerChange]:
        """Take over the instances of one owner; what changed, by id. Raises ValueError for anything else."""
        new = {server.id: server for server in servers}
        for server in new.values():
            if server.instance is None or server.instance.owner != owner:
                raise ValueError(f"'{server.id}' is no instance of '{owner}'")
        changes = self._replace_servers(self._instances_by_owner.setdefault(owner, {}), new)
        if not new:
            del self._instances_by_owner[owner]
        return changes

    def _replace_servers(
        self, current: dict[str, Server], new: Mapping[str, Server]
    ) -> dict[str, ServerChange]:
        changes: dict[str, ServerChange] = {}
        for server_id in {**current, **new}:
            before, after = current.get(server_id), new.get(server_id)
            # What is equal stays the same object: others keep what they prepared for it.
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
    """A definition wherever it stands: one that only moved to another line has not changed."""
    return server and replace(server, provenance=_NO_PROVENANCE)


def _connection_fields(server: Server) -> Server:
    """The part of a definition that a connection goes by: the rest is for lists, policy and people."""
    return replace(
        server,
        label=None,
        description=None,
        trust=Trust.TRUSTED,
        cache_ttl=0.0,
        allow_tools=None,
        deny_tools=(),
        provenance=_NO_PROVENANCE,
        instance=None if server.instance is None else replace(server.instance, tool_filter=None),
    )
