"""Many connections: made when first used, shared by their users, closed for certain."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from toolyard import __version__
from toolyard.auth import AuthProvider
from toolyard.clients.callbacks import Callbacks
from toolyard.clients.connection import Connection
from toolyard.clients.dialing import Dialer
from toolyard.clients.handshake import EraMemory, Eras
from toolyard.clients.link import OnProgress
from toolyard.clients.listing import Listing
from toolyard.errors import ServerError, Unreachable
from toolyard.model.principal import LOCAL, Principal
from toolyard.model.server import Server, Timeouts
from toolyard.model.status import State, Status
from toolyard.transports.transport import MESSAGE_LIMIT, Transport
from toolyard.wire.client import Facts

__all__ = ["ClientManager"]

_PARALLEL = 16


class ClientManager:
    """One connection for each server and principal, made when first used.

    Belongs to the event loop that first uses it. ``close_all`` must be awaited at the end, or use it
    as an async context manager.
    """

    def __init__(
        self,
        servers: Iterable[Server],
        *,
        auth_providers: Mapping[str, AuthProvider] | None = None,
        callbacks: Callbacks | None = None,
        eras: EraMemory | None = None,
        parallel: int = _PARALLEL,
        client_info: Mapping[str, Any] | None = None,
        message_limit: int = MESSAGE_LIMIT,
        memory_servers: Mapping[str, Callable[[], Transport]] | None = None,
        on_told: Callable[[str, str, Mapping[str, Any]], None] | None = None,
    ) -> None:
        self._servers = {server.id: server for server in servers}
        self._connections: dict[tuple[str, str], Connection] = {}
        self._closed = False
        self._parallel = parallel
        self._on_told = on_told
        self._dialer = Dialer(
            info=client_info or {"name": "toolyard", "version": __version__},
            callbacks=callbacks or Callbacks(),
            auth_providers=auth_providers or {},
            eras=eras or Eras(),
            message_limit=message_limit,
            memory_servers=memory_servers or {},
        )

    async def __aenter__(self) -> ClientManager:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close_all()

    @property
    def servers(self) -> Mapping[str, Server]:
        return self._servers

    # Using servers.

    async def call(
        self,
        server_id: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        principal: Principal = LOCAL,
        repeatable: bool = False,
        timeouts: Timeouts | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The raw result of one tool call. Raises a ServerError, always within the timeouts."""
        return await self.request(
            server_id,
            "tools/call",
            {"name": tool, "arguments": {} if arguments is None else arguments},
            principal=principal,
            repeatable=repeatable,
            timeouts=timeouts,
            on_progress=on_progress,
            meta=meta,
        )

    async def request(
        self,
        server_id: str,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        principal: Principal = LOCAL,
        repeatable: bool = False,
        timeouts: Timeouts | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The result of any request."""
        return await self.connection(server_id, principal).request(
            method,
            params,
            repeatable=repeatable,
            timeouts=timeouts,
            on_progress=on_progress,
            meta=meta,
        )

    async def list_tools(self, server_id: str, *, principal: Principal = LOCAL) -> Listing:
        """All tools that the server lists right now."""
        return await self.connection(server_id, principal).list_tools()

    async def list_all(
        self, server_id: str, method: str, key: str, *, principal: Principal = LOCAL
    ) -> Listing:
        """All pages of another list, e.g. ``resources/list`` with ``resources``."""
        return await self.connection(server_id, principal).list_all(method, key)

    async def facts(self, server_id: str, *, principal: Principal = LOCAL) -> Facts:
        """Connect where needed; what the server says about itself."""
        return await self.connection(server_id, principal).ready()

    async def connect(
        self, server_ids: Iterable[str] | None = None, *, principal: Principal = LOCAL
    ) -> list[Status]:
        """Connect many in parallel, a bounded number at a time. Failures are in the records, not raised."""
        wanted = [
            self.connection(id, principal)
            for id in (self._servers if server_ids is None else server_ids)
            if id in self._servers and self._servers[id].enabled
        ]
        gate = asyncio.Semaphore(self._parallel)

        async def one(connection: Connection) -> Status:
            async with gate:
                with contextlib.suppress(ServerError):
                    await connection.ready()
            return connection.status()

        return list(await asyncio.gather(*(one(connection) for connection in wanted)))

    def connection(self, server_id: str, principal: Principal = LOCAL) -> Connection:
        """The connection of this server and principal. Nothing is started."""
        key = (server_id, principal.id)
        connection = self._connections.get(key)
        if connection is None:
            connection = self._connections[key] = self._make(server_id, principal)
        return connection

    def _make(self, server_id: str, principal: Principal) -> Connection:
        server = self._servers.get(server_id)
        if server is None:
            cause, hint = "there is no such server", "`toolyard servers` lists them"
            raise Unreachable(cause, server=server_id, hint=hint)
        if self._closed:
            raise Unreachable("the connection is closed", server=server_id)
        return Connection(server, principal, self._dialer, self._on_told)

    # Watching.

    def status(self, server_id: str, *, principal: Principal = LOCAL) -> Status:
        """The record of this server and principal."""
        return self.connection(server_id, principal).status()

    def state(self, server_id: str, principal: Principal = LOCAL) -> State:
        """The state alone, without making a record."""
        connection = self._connections.get((server_id, principal.id))
        if connection is not None:
            return connection.state
        server = self._servers.get(server_id)
        return State.IDLE if server is not None and server.enabled else State.DISABLED

    def statuses(self) -> list[Status]:
        """Every record there is, and a fresh one for each server that nobody has used."""
        used = {server_id for server_id, _ in self._connections}
        for server_id in self._servers:
            if server_id not in used and not self._closed:
                self.connection(server_id)
        return [connection.status() for _, connection in sorted(self._connections.items())]

    # Changing and closing.

    async def restart(self, server_id: str) -> None:
        """Close this server's connections; the next call connects anew, whatever happened before."""
        await _all(connection.restart() for connection in self._of(server_id))

    async def update(self, servers: Iterable[Server]) -> set[str]:
        """Take over new definitions. Only servers whose definition changed are closed; their ids."""
        new = {server.id: server for server in servers}
        touched = {
            server_id
            for server_id in self._servers.keys() | new.keys()
            if self._servers.get(server_id) != new.get(server_id)
        }
        self._servers = new
        await _all(self.close(server_id) for server_id in touched)
        return touched

    async def close(self, server_id: str) -> None:
        """Close this server's connections. A later call makes new ones."""
        keys = [key for key in self._connections if key[0] == server_id]
        await _all(self._connections.pop(key).close() for key in keys)

    async def close_all(self) -> None:
        """Close everything for good: connections, children, sockets. Bounded; may be called twice."""
        self._closed = True
        connections, self._connections = list(self._connections.values()), {}
        await _all(connection.close() for connection in connections)
        await self._dialer.close()

    def _of(self, server_id: str) -> list[Connection]:
        return [connection for key, connection in self._connections.items() if key[0] == server_id]


async def _all(work: Iterable[Any]) -> None:
    """Do all of it side by side; then raise what failed first, if anything did."""
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
