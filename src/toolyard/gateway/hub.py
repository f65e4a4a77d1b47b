"""What servers say unasked, passed on to the clients that want to know, and no others."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolyard.clients import ClientManager
from toolyard.errors import ServerError
from toolyard.model.principal import LOCAL, Principal
from toolyard.model.server import Timeouts

__all__ = ["KINDS", "Hub", "Watch"]

KINDS = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}
_UPDATED = "notifications/resources/updated"
_LONG = Timeouts(silence=30 * 86400.0, call=30 * 86400.0)
_AGAIN = 5.0
"""Seconds until a subscription is tried again that a server ended."""


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


class Hub:
    """Watches of everyone. A resource is subscribed to once for each principal, however many watch it."""

    def __init__(self, manager: ClientManager) -> None:
        self._manager = manager
        self._watches: set[Watch] = set()
        self._wanted: dict[tuple[str, str], Counter[str]] = {}
        """The URIs that somebody watches, by server and principal."""
        self._listening: dict[tuple[str, str], asyncio.Task[None]] = {}
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
        server = self._manager.servers.get(server_id)
        common = principal_id == LOCAL.id and server is not None and server.shared
        for watch in list(self._watches):
            if not common and watch.principal.id != principal_id:
                continue
            if method == _UPDATED:
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

    # Resources.

    async def subscribe(self, watch: Watch, server_id: str, uri: str, name: str) -> None:
        """Tell this watch when a resource changes. Raises a ServerError."""
        key = (server_id, watch.principal.id)
        if (server_id, uri) in watch.uris:
            return
        # Before the server is asked: it may speak at once.
        watch.uris[server_id, uri] = name
        wanted = self._wanted.setdefault(key, Counter())
        wanted[uri] += 1
        try:
            if wanted[uri] == 1:
                await self._ask(key, watch.principal, "resources/subscribe", uri)
            await self._listen(key, watch.principal)
        except BaseException:
            watch.uris.pop((server_id, uri), None)
            wanted[uri] -= 1
            raise

    async def unsubscribe(self, watch: Watch, server_id: str, uri: str) -> None:
        """No longer. Raises a ServerError."""
        if watch.uris.pop((server_id, uri), None) is None:
            return
        key = (server_id, watch.principal.id)
        wanted = self._wanted[key]
        wanted[uri] -= 1
        if not wanted[uri]:
            del wanted[uri]
            await self._ask(key, watch.principal, "resources/unsubscribe", uri)
            await self._listen(key, watch.principal)

    async def _ask(self, key: tuple[str, str], principal: Principal, method: str, uri: str) -> None:
        facts = await self._manager.facts(key[0], principal=principal)
        if not facts.modern:
            await self._manager.request(key[0], method, {"uri": uri}, principal=principal, repeatable=True)

    async def _listen(self, key: tuple[str, str], principal: Principal) -> None:
        """In the modern era one long request names all that is watched; it is made anew when that changes."""
        facts = await self._manager.facts(key[0], principal=principal)
        before = self._listening.pop(key, None)
        if before is not None:
            before.cancel()
        uris = sorted(self._wanted.get(key, ()))
        if facts.modern and uris:
            self._listening[key] = asyncio.ensure_future(self._keep_listening(key[0], principal, uris))

    async def _keep_listening(self, server_id: str, principal: Principal, uris: list[str]) -> None:
        params = {"notifications": {"resourceSubscriptions": uris}}
        while True:
            with contextlib.suppress(ServerError):
                await self._manager.request(
                    server_id, "subscriptions/listen", params, principal=principal, timeouts=_LONG
                )
            await asyncio.sleep(_AGAIN)

    async def close(self) -> None:
        """End all of it."""
        self._stop()
        tasks = list(self._listening.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
