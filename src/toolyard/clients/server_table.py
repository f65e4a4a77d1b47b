"""Which servers there are, for whom each of them exists, and what a new definition changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from toolyard.types.server import Provenance, Server, Trust

__all__ = ["Change", "Definitions"]

_ANYWHERE = Provenance("code")


@dataclass(frozen=True, slots=True)
class Change:
    """One server before and after: None where it was not there, or no longer is."""

    before: Server | None
    after: Server | None

    @property
    def same_way(self) -> bool:
        """Whether a connection may stay: nothing that it goes by is different."""
        if self.before is None or self.after is None:
            return False
        return _way(self.before) == _way(self.after)


class Definitions:
    """The servers of the configuration, which everyone has, and each owner's instances."""

    def __init__(self, servers: Iterable[Server]) -> None:
        self.all: dict[str, Server] = {server.id: server for server in servers}
        """With the instances of everyone."""
        self._common: dict[str, Server] = {}
        self._instances: dict[str, dict[str, Server]] = {}
        for server in self.all.values():
            if server.instance is None:
                self._common[server.id] = server
            else:
                self._instances.setdefault(server.instance.owner, {})[server.id] = server

    def visible(self, principal_id: str) -> Mapping[str, Server]:
        """Those that exist for a principal."""
        own = self._instances.get(principal_id)
        return self._common if own is None else {**self._common, **own}

    def update(self, servers: Iterable[Server]) -> dict[str, Change]:
        """Take over those of the configuration; what changed, by id. Raises ValueError for an instance."""
        new = {server.id: server for server in servers}
        if any(server.instance is not None for server in new.values()):
            raise ValueError("instances are taken over by sync")
        return self._replace(self._common, new)

    def sync(self, owner: str, servers: Iterable[Server]) -> dict[str, Change]:
        """Take over the instances of one owner; what changed, by id. Raises ValueError for anything else."""
        new = {server.id: server for server in servers}
        for server in new.values():
            if server.instance is None or server.instance.owner != owner:
                raise ValueError(f"'{server.id}' is no instance of '{owner}'")
        changes = self._replace(self._instances.setdefault(owner, {}), new)
        if not new:
            del self._instances[owner]
        return changes

    def _replace(self, place: dict[str, Server], new: Mapping[str, Server]) -> dict[str, Change]:
        changes: dict[str, Change] = {}
        for server_id in {**place, **new}:
            before, after = place.get(server_id), new.get(server_id)
            # What is equal stays the same object: others keep what they prepared for it.
            if before == after:
                continue
            if after is None:
                del place[server_id], self.all[server_id]
            else:
                place[server_id] = self.all[server_id] = after
            if _placeless(before) != _placeless(after):
                changes[server_id] = Change(before, after)
        return changes


def _placeless(server: Server | None) -> Server | None:
    """A definition wherever it stands: one that only moved to another line has not changed."""
    return server and replace(server, provenance=_ANYWHERE)


def _way(server: Server) -> Server:
    """The part of a definition that a connection goes by: the rest is for lists, policy and people."""
    return replace(
        server,
        label=None,
        description=None,
        trust=Trust.TRUSTED,
        cache_ttl=0.0,
        allow_tools=None,
        deny_tools=(),
        provenance=_ANYWHERE,
        instance=None if server.instance is None else replace(server.instance, tool_filter=None),
    )
