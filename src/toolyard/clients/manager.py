"""Many connections: made when first used, one for each principal, closed for certain."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias

from toolyard import __version__
from toolyard.auth import AuthProvider
from toolyard.clients.callbacks import Callbacks
from toolyard.clients.connection import Connection, initial_status
from toolyard.clients.connector import AuthProviderFor, Connector
from toolyard.clients.dedicated_connections import DedicatedConnectionKey, DedicatedConnections
from toolyard.clients.handshake import EraCache, EraStore
from toolyard.clients.pagination import PagedList
from toolyard.clients.server_table import ServerChange, ServerTable
from toolyard.clients.session import OnProgress
from toolyard.clients.unsolicited_traffic import TrafficLimits
from toolyard.errors import ServerError, Unreachable
from toolyard.net import OutboundHttp
from toolyard.protocol.client import HandshakeResult
from toolyard.transports.stdio.supervisor import ProcessSupervisor
from toolyard.transports.transport import MAX_MESSAGE_BYTES, Transport
from toolyard.types.principal import LOCAL_PRINCIPAL, Principal
from toolyard.types.server import Server, StdioSpec, Timeouts
from toolyard.types.status import State, Status

__all__ = ["CallbacksFor", "ConnectionManager", "OnServerNotification"]

CallbacksFor: TypeAlias = Callable[[Principal, str | None], Callbacks]
"""What somebody can do for the servers of a principal's connections: the usual ones (None), or those that are
a chat's own (its id)."""

OnServerNotification: TypeAlias = Callable[[str, str, str, Mapping[str, Any]], None]
"""Told what servers say unasked: the server's id, the principal's id, the method, the parameters."""

_MAX_PARALLEL_CONNECTS = 16
_IDLE_TIMEOUT_SECONDS = 300.0
"""Seconds. For the connections of others than the local user to servers that set nothing: people leave
without a word."""
_MAX_CONNECTIONS_BEFORE_PRUNING = 1024
"""Connections to keep; beyond them those go that are not connected and whose user is not the local one."""
_BROKEN_STATES = frozenset({State.FAILED, State.NEEDS_AUTH})
_MAX_CHAT_CONNECTIONS_BEFORE_PRUNING = 256
"""Connections of chats to keep; beyond them those go that are not connected."""


class ConnectionManager:
    """One connection for each server and principal, made when first used.

    A server with ``shared`` has one for everyone, the local user's. A server with ``instance`` exists for its
    owner only: for anyone else it answers like one that there is not.

    Belongs to the event loop that first uses it. ``close_all`` must be awaited at the end, or use it
    as an async context manager.
    """

    def __init__(
        self,
        servers: Iterable[Server],
        *,
        auth_providers: Mapping[str, AuthProvider] | None = None,
        auth_provider_for: AuthProviderFor | None = None,
        net: OutboundHttp | None = None,
        callbacks: Callbacks | None = None,
        callbacks_for: CallbacksFor | None = None,
        eras: EraStore | None = None,
        parallel: int = _MAX_PARALLEL_CONNECTS,
        client_info: Mapping[str, Any] | None = None,
        message_limit: int = MAX_MESSAGE_BYTES,
        traffic: TrafficLimits = TrafficLimits(),  # noqa: B008 - frozen
        max_child_processes: int | None = None,
        memory_servers: Mapping[str, Callable[[], Transport]] | None = None,
        built_in_servers: Iterable[Server] = (),
        on_notification: Callable[[str, str, Mapping[str, Any]], None] | None = None,
    ) -> None:
        """``auth_for`` gives credentials by principal, for HTTP servers that name no auth provider.
        ``callbacks_for`` gives callbacks by principal and chat, in place of ``callbacks`` for all. A ``net``
        that is given is not closed here. ``built_in`` servers are ours: everyone can use them by their ids,
        and no list or status speaks of them. ``traffic`` bounds what a server sends without being asked."""
        self._built_in_servers = {server.id: server for server in built_in_servers}
        self._server_table = ServerTable(servers)
        self._servers: Mapping[str, Server] = self._server_table.servers_by_id
        self._connections: dict[tuple[str, str], Connection] = {}
        """By server and principal. What is in here its principal may use: a call need not ask again."""
        self._dedicated_connections = DedicatedConnections()
        """Connections beside these."""
        self._callbacks_for = callbacks_for
        self.offers = callbacks_for is not None or bool((callbacks or Callbacks()).capabilities())
        """Whether servers may be told, over the usual connections, that somebody can do something."""
        self._notification_listeners: list[OnServerNotification] = []
        self._closing_tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._parallel = parallel
        self._on_notification = on_notification
        self._connector = Connector(
            client_info=client_info or {"name": "toolyard", "version": __version__},
            callbacks=callbacks or Callbacks(),
            auth_providers=auth_providers or {},
            auth_provider_for=auth_provider_for,
            net=net,
            eras=eras or EraCache(),
            process_supervisor=ProcessSupervisor(max_child_processes),
            message_limit=message_limit,
            traffic_limits=traffic,
            memory_servers=memory_servers or {},
            free_process_slot=self._stop_idle_processes,
        )

    async def __aenter__(self) -> ConnectionManager:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close_all()

    @property
    def servers(self) -> Mapping[str, Server]:
        """Every definition, with the instances of everyone: for the operator."""
        return self._servers

    def visible_servers(self, principal: Principal) -> Mapping[str, Server]:
        """The definitions that exist for this principal."""
        return self._server_table.visible_servers(principal.id)

    def find(self, server_id: str, principal: Principal) -> Server | None:
        """The definition, where it exists for this principal."""
        server = self._servers.get(server_id)
        # Not by visible_to(): every call comes through here.
        if server is None:
            return self._built_in_servers.get(server_id)
        return server if server.instance is None or server.instance.owner == principal.id else None

    # Using servers.

    async def call(
        self,
        server_id: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        principal: Principal = LOCAL_PRINCIPAL,
        chat: str | None = None,
        repeatable: bool = False,
        timeouts: Timeouts | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The raw result of one tool call, over the connection that is right for a chat, where it is one's.
        Raises a ServerError, always within the timeouts."""
        return await self.request(
            server_id,
            "tools/call",
            {"name": tool, "arguments": {} if arguments is None else arguments},
            principal=principal,
            chat=chat,
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
        principal: Principal = LOCAL_PRINCIPAL,
        chat: str | None = None,
        repeatable: bool = False,
        timeouts: Timeouts | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The result of any request."""
        return await self.connection(server_id, principal, chat).request(
            method,
            params,
            repeatable=repeatable,
            timeouts=timeouts,
            on_progress=on_progress,
            meta=meta,
        )

    async def list_tools(
        self, server_id: str, *, principal: Principal = LOCAL_PRINCIPAL, chat: str | None = None
    ) -> PagedList:
        """All tools that the server lists right now."""
        return await self.connection(server_id, principal, chat).list_tools()

    async def list_all(
        self, server_id: str, method: str, key: str, *, principal: Principal = LOCAL_PRINCIPAL
    ) -> PagedList:
        """All pages of another list, e.g. ``resources/list`` with ``resources``."""
        return await self.connection(server_id, principal).list_all(method, key)

    async def ensure_connected(
        self, server_id: str, *, principal: Principal = LOCAL_PRINCIPAL, chat: str | None = None
    ) -> HandshakeResult:
        """Connect where needed; what the server says about itself."""
        return await self.connection(server_id, principal, chat).ensure_connected()

    async def connect(
        self, server_ids: Iterable[str] | None = None, *, principal: Principal = LOCAL_PRINCIPAL
    ) -> list[Status]:
        """Connect many in parallel, a bounded number at a time. Failures are in the records, not raised."""
        there = self.visible_servers(principal)
        wanted = [
            id for id in (there if server_ids is None else server_ids) if id in there and there[id].enabled
        ]
        gate = asyncio.Semaphore(self._parallel)

        async def connect_one(server_id: str) -> Status | None:
            async with gate:
                with contextlib.suppress(ServerError):
                    connection = self.connection(server_id, principal)
                    with contextlib.suppress(ServerError):
                        await connection.ensure_connected()
                    return connection.status()
            return None  # Taken away while it waited for its turn.

        statuses = await asyncio.gather(*(connect_one(server_id) for server_id in wanted))
        return [status for status in statuses if status is not None]

    def connection(
        self, server_id: str, principal: Principal = LOCAL_PRINCIPAL, chat: str | None = None
    ) -> Connection:
        """The connection of this server and principal. Nothing is started. A chat has connections of its own
        to instances, which ``end_lanes`` closes.

        For use at once: one that nobody uses may be replaced by another.
        """
        if chat is not None and (lane := self._chat_connection(server_id, principal, chat)) is not None:
            return lane
        connection = self._connections.get((server_id, principal.id))
        return self._make_connection(server_id, principal) if connection is None else connection

    def _chat_connection(self, server_id: str, principal: Principal, chat: str) -> Connection | None:
        """The chat's own connection; None to a server that it shares with everything else."""
        key = (server_id, principal.id, chat)
        if (found := self._dedicated_connections.find(key)) is not None:
            return found
        server = self.find(server_id, principal)
        if server is None or server.instance is None:
            return None
        self._close_in_background(self._dedicated_connections.prune(_MAX_CHAT_CONNECTIONS_BEFORE_PRUNING))
        made = self._make_dedicated_connection(
            server, principal, self._make_callbacks(principal, chat), isolated_context=True
        )
        self._dedicated_connections.put(key, made, transient=True)
        return made

    def _make_callbacks(self, principal: Principal, chat: str | None = None) -> Callbacks | None:
        return None if self._callbacks_for is None else self._callbacks_for(principal, chat)

    def _make_connection(self, server_id: str, principal: Principal) -> Connection:
        server = self.find(server_id, principal)
        if server is None:
            raise _server_not_found(server_id)
        if server.shared and principal.id != LOCAL_PRINCIPAL.id:
            return self.connection(server_id, LOCAL_PRINCIPAL)
        if self._closed:
            raise Unreachable("the connection is closed", server=server_id)
        if len(self._connections) >= _MAX_CONNECTIONS_BEFORE_PRUNING:
            self._prune_connections()
        idle = (
            None
            if principal.id == LOCAL_PRINCIPAL.id or server.instance is not None
            else _IDLE_TIMEOUT_SECONDS
        )
        made = Connection(
            server,
            principal,
            self._connector,
            self._make_notification_handler(principal),
            stop_when_idle=idle,
            callbacks=self._make_callbacks(principal),
            isolated_context=True,
        )
        self._connections[server_id, principal.id] = made
        return made

    def dedicated_connection(
        self, server_id: str, principal: Principal, holder: str, callbacks: Callbacks
    ) -> Connection:
        """A connection beside the usual one, whose questions and logs are those of ``key`` alone, and whose
        server is told what ``callbacks`` can do. Nothing is started; it stops by itself when idle, and
        ``end_lanes`` ends it. Raises Unreachable where there is no such server for this principal."""
        found = self._dedicated_connections.find((server_id, principal.id, holder))
        if found is not None:
            return found
        server = self.find(server_id, principal)
        if server is None:
            raise _server_not_found(server_id)
        made = self._make_dedicated_connection(
            server, LOCAL_PRINCIPAL if server.shared else principal, callbacks
        )
        self._dedicated_connections.put((server_id, principal.id, holder), made)
        return made

    def _make_dedicated_connection(
        self,
        server: Server,
        principal: Principal,
        callbacks: Callbacks | None,
        *,
        isolated_context: bool = False,
    ) -> Connection:
        if self._closed:
            raise Unreachable("the connection is closed", server=server.id)
        return Connection(
            server,
            principal,
            self._connector,
            self._make_notification_handler(principal),
            stop_when_idle=_IDLE_TIMEOUT_SECONDS,
            callbacks=callbacks,
            isolated_context=isolated_context,
        )

    def list_dedicated_connections(self, holder: str) -> list[Connection]:
        """Those that were made for a key, or a chat, and are still there."""
        return self._dedicated_connections.for_holder(holder)

    async def close_dedicated_connections(self, holder: str) -> None:
        """Close the lanes of a key, or of a chat. A later call makes new ones."""
        await _close_connections(self._dedicated_connections.remove_matching(lambda each: each[2] == holder))

    def subscribe(self, listener: OnServerNotification) -> Callable[[], None]:
        """Tell somebody what servers say unasked on the connections that are made from now on; call what
        comes back to end that."""
        self._notification_listeners.append(listener)
        return lambda: self._notification_listeners.remove(listener)

    def _make_notification_handler(
        self, principal: Principal
    ) -> Callable[[str, str, Mapping[str, Any]], None] | None:
        return (
            None
            if self._on_notification is None and not self._notification_listeners
            else partial(self._dispatch_notification, principal.id)
        )

    def _dispatch_notification(
        self, principal_id: str, server_id: str, method: str, params: Mapping[str, Any]
    ) -> None:
        if self._on_notification is not None:
            self._on_notification(server_id, method, params)
        for heard in self._notification_listeners:
            heard(server_id, principal_id, method, params)

    def _prune_connections(self) -> None:
        """Let go of half of those that nobody uses, the longest unused first."""
        spare = [
            key
            for key, connection in self._connections.items()
            if key[1] != LOCAL_PRINCIPAL.id and connection.is_disposable
        ]
        spare.sort(key=lambda key: self._connections[key].last_used)
        self._close_in_background([self._connections.pop(key) for key in spare[: (len(spare) + 1) // 2]])

    async def _stop_idle_processes(self) -> None:
        """Where as many children run as may, stop those that rest and would be stopped for it, the longest
        unused first."""
        while self._connector.process_supervisor.is_full:
            lanes = (self._dedicated_connections.find(key) for key in self._dedicated_connections)
            resting = {
                connection: since
                for connection in (*self._connections.values(), *lanes)
                if connection is not None
                and isinstance(connection.server.transport, StdioSpec)
                and (since := connection.idle_since) is not None
            }
            if not resting:
                return
            await min(resting, key=resting.__getitem__).stop_idle()

    def _close_in_background(self, connections: Collection[Connection]) -> None:
        if connections:
            task = asyncio.get_running_loop().create_task(_close_connections(connections))
            self._closing_tasks.add(task)
            task.add_done_callback(self._closing_tasks.discard)

    # Watching.

    def status(self, server_id: str, *, principal: Principal = LOCAL_PRINCIPAL) -> Status:
        """The record of this server and principal; looking makes no connection.

        Raises Unreachable where there is no such server for them.
        """
        server = self.find(server_id, principal)
        if server is None:
            raise _server_not_found(server_id)
        return self._build_status(server, principal)

    def state(self, server_id: str, principal: Principal = LOCAL_PRINCIPAL) -> State:
        """The state alone, without making a record."""
        connection = self._connections.get((server_id, principal.id))
        if connection is not None and connection.server.instance is None:
            return connection.state
        server = self.find(server_id, principal)
        if server is None or not server.enabled:
            return State.DISABLED
        if server.shared:
            connection = self._connections.get((server_id, LOCAL_PRINCIPAL.id))
        elif server.instance is not None:
            connection = self._most_recent_connection(server_id, principal)
        return State.IDLE if connection is None else connection.state

    def _most_recent_connection(self, server_id: str, principal: Principal) -> Connection | None:
        """The connection that knows best how an instance is: the usual one, or a chat's or client's own."""
        usual = self._connections.get((server_id, principal.id))
        lane = self._dedicated_connections.newest(server_id, principal.id)
        if usual is None or lane is None:
            return usual or lane
        return lane if usual.state is State.IDLE or lane.since > usual.since else usual

    def statuses(self, principal: Principal | None = None) -> list[Status]:
        """The records of all servers that exist for a principal. Without one, for the operator: every record
        there is, of everyone, and a fresh one for each server of the configuration that nobody has used."""
        if principal is not None:
            there = self.visible_servers(principal)
            return [self._build_status(there[server_id], principal) for server_id in sorted(there)]
        used = {server_id for server_id, _ in self._connections}
        for server in self.servers.values():
            if server.id not in used and server.instance is None and not self._closed:
                self.connection(server.id)
        there = sorted(key for key in self._connections if key[0] not in self._built_in_servers)
        return [self._connections[key].status() for key in there]

    def _build_status(self, server: Server, principal: Principal) -> Status:
        whose = LOCAL_PRINCIPAL if server.shared else principal
        if server.instance is not None:
            connection = self._most_recent_connection(server.id, whose)
        else:
            connection = self._connections.get((server.id, whose.id))
            broken = self._dedicated_connections.newest(server.id, whose.id, _BROKEN_STATES)
            if broken is not None and (connection is None or broken.since > connection.since):
                # Whoever uses it so fails, however well the rest fare.
                connection = broken
        return initial_status(server, whose) if connection is None else connection.status()

    # Changing and closing.

    async def restart(self, server_id: str, principal: Principal | None = None) -> None:
        """Close this server's connections; the next call connects anew, whatever happened before.

        With a principal only the one that they use. Raises Unreachable where the server does not exist for
        them.
        """
        if principal is not None:
            server = self.find(server_id, principal)
            whose = (
                {principal.id, LOCAL_PRINCIPAL.id} if server is not None and server.shared else {principal.id}
            )
            lanes = self._dedicated_connections.remove_matching(
                lambda key: key[0] == server_id and key[1] in whose
            )
            await _run_all((self.connection(server_id, principal).restart(), _close_connections(lanes)))
            return
        lanes = self._dedicated_connections.remove_matching(lambda key: key[0] == server_id)
        await _run_all(
            (
                *(self._connections[key].restart() for key in self._find_connection_keys({server_id})),
                _close_connections(lanes),
            )
        )

    async def update(self, servers: Iterable[Server]) -> set[str]:
        """Take over new definitions of the configuration; instances stay. The ids of those that changed.

        Only connections that depend on what changed are closed.
        """
        return await self._apply_changes(self._server_table.update(servers))

    async def sync_instances(self, owner: str, servers: Iterable[Server]) -> set[str]:
        """Take over the instances of one owner: all that there are now. The ids of those that were added,
        changed or removed; the connections of the last two are closed, where they depend on it.

        Raises ValueError for a server that is no instance of this owner.
        """
        return await self._apply_changes(self._server_table.sync_instances(owner, servers))

    async def _apply_changes(self, changes: Mapping[str, ServerChange]) -> set[str]:
        """Nothing is awaited before all that has to close is out of reach."""
        closing: list[Connection] = []
        for key in self._find_connection_keys(changes):
            change = changes[key[0]]
            if change.after is not None and change.can_keep_connection:
                self._connections[key].replace_definition(change.after)
            else:
                closing.append(self._connections.pop(key))
        stay: set[DedicatedConnectionKey] = set()
        for key, lane in self._dedicated_connections.transient_connections():
            change = changes.get(key[0])
            if change is not None and change.after is not None and change.can_keep_connection:
                lane.replace_definition(change.after)
                stay.add(key)
        # Whoever else has a lane gets another one; what it goes by may be anything of the definition.
        closing += self._dedicated_connections.remove_matching(
            lambda key: key[0] in changes and key not in stay
        )
        await _close_connections(closing)
        return set(changes)

    async def close(self, server_id: str) -> None:
        """Close this server's connections. A later call makes new ones."""
        lanes = self._dedicated_connections.remove_matching(lambda key: key[0] == server_id)
        await _close_connections(
            [*(self._connections.pop(key) for key in self._find_connection_keys({server_id})), *lanes]
        )

    async def close_principal(self, principal_id: str) -> None:
        """Close the connections that are one principal's own. A later call makes new ones."""
        keys = [key for key in self._connections if key[1] == principal_id]
        lanes = self._dedicated_connections.remove_matching(lambda key: key[1] == principal_id)
        await _close_connections([*(self._connections.pop(key) for key in keys), *lanes])

    async def close_all(self) -> None:
        """Close everything for good: connections, children, sockets. Bounded; may be called twice."""
        self._closed = True
        lanes = self._dedicated_connections.remove_matching(lambda _: True)
        connections, self._connections = [*self._connections.values(), *lanes], {}
        await _run_all((_close_connections(connections), *self._closing_tasks))
        await self._connector.close()

    def _find_connection_keys(self, server_ids: Collection[str]) -> list[tuple[str, str]]:
        return [key for key in self._connections if key[0] in server_ids]


def _server_not_found(server_id: str) -> Unreachable:
    return Unreachable("there is no such server", server=server_id, hint="`toolyard servers` lists them")


async def _close_connections(connections: Iterable[Connection]) -> None:
    await _run_all(connection.close() for connection in connections)


async def _run_all(awaitables: Iterable[Any]) -> None:
    """Do all of it side by side; then raise what failed first, if anything did."""
    for result in await asyncio.gather(*awaitables, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
