"""What servers say unasked, passed on to the clients that want to know, and no others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolyard.clients import ClientManager
from toolyard.errors import ServerError
from toolyard.gateway.upstream_subscriptions import ACKNOWLEDGED, UPDATED, Following
from toolyard.types.principal import LOCAL, Principal

__all__ = ["KINDS", "Hub", "Watch"]

KINDS = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}


@dataclass(slots=True, eq=False)
class Watch:
    """What one client wants to know. ``tell`` gets method and parameters."""

    principal: Principal
    concerns: Callable[[str], bool]
    """Whether the client sees anything of a server."""
    tell: Callable[[str, Mapping[str, Any]], None]
    kinds: set[str] = field(default_factory=set[str])
    """``tools``, ``prompts``, ``resources``: whose lists it watches."""
    uris: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """Watched resources: the server and its own URI, and what the client calls it."""
    only: str | None = None
    """The server that the client sees at most, where it is at the address of one."""


class Hub:
    """Watches of everyone."""

    def __init__(self, manager: ClientManager) -> None:
        self._manager = manager
        self._watches: set[Watch] = set()
        self._following = Following(manager, self.heard)
        self._stop = manager.hear(self.heard)

    def add(self, watch: Watch) -> None:
        self._watches.add(watch)

    async def remove(self, watch: Watch) -> None:
        """Nobody is told any more; what it alone was subscribed to is given up."""
        self._watches.discard(watch)
        for server_id, uri in list(watch.uris):
            with contextlib.suppress(ServerError):
                await self.unsubscribe(watch, server_id, uri)

    def heard(self, server_id: str, principal_id: str, method: str, params: Mapping[str, Any]) -> None:
        """A server spoke, on a connection of this principal."""
        if method == ACKNOWLEDGED:
            self._following.acknowledged(server_id, principal_id, params)
            return
        server = self._manager.servers.get(server_id)
        common = principal_id == LOCAL.id and server is not None and server.shared
        for watch in list(self._watches):
            if not common and watch.principal.id != principal_id:
                continue
            if method == UPDATED:
                uri = params.get("uri")
                if isinstance(uri, str) and (name := watch.uris.get((server_id, uri))) is not None:
                    watch.tell(method, {**params, "uri": name})
            elif KINDS.get(method) in watch.kinds and watch.concerns(server_id):
                watch.tell(method, {})

    def tools_changed(self) -> None:
        """What callers may see is different now, whatever servers say: those who watch list again."""
        for watch in list(self._watches):
            if "tools" in watch.kinds:
                watch.tell("notifications/tools/list_changed", {})

    def watching(self) -> list[Principal]:
        """Whose clients watch anything."""
        return list({watch.principal.id: watch.principal for watch in self._watches}.values())

    def servers_changed(self, principal: Principal | None, server_ids: Collection[str]) -> None:
        """Other definitions of these servers count now, for one principal or for everyone, or there are new
        ones, or some are gone: whatever they list is different."""
        for watch in list(self._watches):
            mine = principal is None or watch.principal.id == principal.id
            if server_ids and mine and (watch.only is None or watch.only in server_ids):
                for method, kind in KINDS.items():
                    if kind in watch.kinds:
                        watch.tell(method, {})

    # Resources.

    async def subscribe(self, watch: Watch, server_id: str, uri: str, name: str) -> None:
        """Tell this watch when a resource changes. Raises a ServerError."""
        if (server_id, uri) in watch.uris:
            return
        # Before the server is asked: it may speak at once.
        watch.uris[server_id, uri] = name
        try:
            await self._following.follow(server_id, watch.principal, uri)
        except BaseException:
            watch.uris.pop((server_id, uri), None)
            raise

    async def unsubscribe(self, watch: Watch, server_id: str, uri: str) -> None:
        """No longer. Raises a ServerError."""
        if watch.uris.pop((server_id, uri), None) is not None:
            await self._following.leave(server_id, watch.principal, uri)

    async def close(self) -> None:
        """End all of it."""
        self._stop()
        await self._following.close()
