"""Subscriptions to the resources of servers: kept as long as somebody watches, whatever happens to them.

A server that was restarted knows nothing of them. They are made anew then, and whoever watches is told that
the resources may have changed, since nobody heard what happened meanwhile. That a legacy server was restarted
shows when it forgot our session; one that gave us none is taken for restarted when the stream on which it
speaks was lost and came back. If it was not, it hears of the same subscription twice, which does no harm.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

from toolyard.clients import ClientManager
from toolyard.clients.connection import Connection
from toolyard.errors import RpcError, ToolyardError
from toolyard.types.principal import LOCAL, Principal
from toolyard.types.server import Timeouts

__all__ = ["ACKNOWLEDGED", "UPDATED", "Following"]

log = logging.getLogger("toolyard.gateway")

UPDATED: Final = "notifications/resources/updated"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_LONG = Timeouts(silence=30 * 86400.0, call=30 * 86400.0)
_SHORT = Timeouts(silence=30.0, call=30.0)
_AGAIN = 5.0
"""Seconds until a server is tried again that could not be subscribed to, or ended it."""
_LOOK = 5.0
"""Seconds after which a legacy server is asked whether it is still the one that was subscribed to. Over HTTP
nothing else tells; and whoever is asked is not idle, and so is not disconnected."""

Told: TypeAlias = Callable[[str, str, str, Mapping[str, Any]], None]
"""As servers are heard: the server's id, the principal's id, the method, the parameters."""


@dataclass(slots=True, eq=False)
class _Followed:
    """What is watched of one server, over one principal's connection."""

    server_id: str
    principal: Principal
    uris: Counter[str] = field(default_factory=Counter[str])
    keeper: asyncio.Task[None] | None = None
    made_on: tuple[Connection, tuple[int, int]] | None = None
    """The connection over which a legacy server was told of all of them, and which of the server's lives it
    was; None where it may not know them."""
    lost: bool = False
    """A modern server is being subscribed to again."""


class Following:
    """Each resource is subscribed to once for each connection, however many watch it."""

    def __init__(self, manager: ClientManager, told: Told) -> None:
        """``told`` gets what is to be passed on in a server's name."""
        self._manager = manager
        self._told = told
        self._followed: dict[tuple[str, str], _Followed] = {}

    async def follow(self, server_id: str, principal: Principal, uri: str) -> None:
        """One more who watches a resource. Raises a ServerError."""
        followed = self._of(server_id, principal)
        first = not followed.uris
        followed.uris[uri] += 1
        try:
            connection = self._manager.connection(server_id, followed.principal)
            modern = (await connection.ready()).modern
            if not modern and followed.uris[uri] == 1:
                if first:
                    followed.made_on = _mark(connection)
                await connection.request("resources/subscribe", {"uri": uri}, repeatable=True)
        except BaseException:
            self._take(followed, uri)
            # Another one may have relied on this.
            followed.made_on = None
            raise
        if followed.keeper is None or (modern and followed.uris[uri] == 1):
            self._keep_from_now(followed)

    async def leave(self, server_id: str, principal: Principal, uri: str) -> None:
        """One less. A server that is not connected need not know. Raises a ServerError."""
        # The server may be gone by now, and nobody knows whether it was shared.
        places = (self._followed.get((server_id, whose)) for whose in (principal.id, LOCAL.id))
        followed = next((each for each in places if each is not None and uri in each.uris), None)
        if followed is None or not self._take(followed, uri):
            return
        connection = self._manager.connection(server_id, followed.principal)
        facts = connection.facts
        if facts is not None and facts.modern and followed.uris:
            self._keep_from_now(followed)
        if facts is not None and not facts.modern:
            await connection.request("resources/unsubscribe", {"uri": uri}, repeatable=True)

    def acknowledged(self, server_id: str, principal_id: str, params: Mapping[str, Any]) -> None:
        """A modern server listens to what we want to know: tell what may have changed before."""
        followed = self._followed.get((server_id, principal_id))
        wanted = params.get("notifications")
        about = isinstance(wanted, dict) and "resourceSubscriptions" in cast("dict[str, Any]", wanted)
        if followed is not None and followed.lost and about:
            followed.lost = False
            self._may_have_changed(followed)

    async def close(self) -> None:
        """End all of it."""
        tasks = [each.keeper for each in self._followed.values() if each.keeper is not None]
        self._followed.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _of(self, server_id: str, principal: Principal) -> _Followed:
        server = self._manager.servers.get(server_id)
        whose = LOCAL if server is not None and server.shared else principal
        key = (server_id, whose.id)
        if key not in self._followed:
            self._followed[key] = _Followed(server_id, whose)
        return self._followed[key]

    def _take(self, followed: _Followed, uri: str) -> bool:
        """Whether nobody watches the resource any more."""
        followed.uris[uri] -= 1
        if followed.uris[uri] > 0:
            return False
        del followed.uris[uri]
        if not followed.uris:
            self._followed.pop((followed.server_id, followed.principal.id), None)
            if followed.keeper is not None:
                followed.keeper.cancel()
        return True

    def _keep_from_now(self, followed: _Followed) -> None:
        if followed.keeper is not None:
            followed.keeper.cancel()
        followed.keeper = asyncio.get_running_loop().create_task(self._keep(followed))

    async def _keep(self, followed: _Followed) -> None:
        while True:
            try:
                facts = await self._manager.facts(followed.server_id, principal=followed.principal)
                await (self._listen(followed) if facts.modern else self._hold(followed))
            except ToolyardError as error:
                log.debug("resources of '%s' cannot be watched: %s", followed.server_id, error)
            await asyncio.sleep(_AGAIN)
            followed.lost = True

    async def _listen(self, followed: _Followed) -> None:
        """In the modern era one long request names all that is watched; it is made anew when that changes."""
        params = {"notifications": {"resourceSubscriptions": sorted(followed.uris)}}
        await self._manager.request(
            followed.server_id,
            "subscriptions/listen",
            params,
            principal=followed.principal,
            timeouts=_LONG,
        )

    async def _hold(self, followed: _Followed) -> None:
        """In the legacy era a server is told once in each of its lives."""
        while True:
            connection = self._manager.connection(followed.server_id, followed.principal)
            await connection.ready()
            if (mark := _mark(connection)) != followed.made_on:
                for uri in sorted(followed.uris):
                    with contextlib.suppress(RpcError):
                        await connection.request("resources/subscribe", {"uri": uri}, repeatable=True)
                followed.made_on = mark
                self._may_have_changed(followed)
            await asyncio.sleep(_LOOK)
            with contextlib.suppress(RpcError):
                await connection.request("ping", repeatable=True, timeouts=_SHORT)

    def _may_have_changed(self, followed: _Followed) -> None:
        for uri in sorted(followed.uris):
            self._told(followed.server_id, followed.principal.id, UPDATED, {"uri": uri})


def _mark(connection: Connection) -> tuple[Connection, tuple[int, int]]:
    return connection, connection.lives
