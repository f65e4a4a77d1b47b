"""Manages the connections of all servers and principals: creation on first use, status, and closing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from toolyard.auth import AuthProvider
from toolyard.clients.callbacks import Callbacks
from toolyard.clients.connection import Connection, initial_status
from toolyard.clients.connection_choice import ConnectionChoices, is_shared_process
from toolyard.clients.connector import AuthProviderFor, ConnectionManagerLimits, Connector
from toolyard.clients.dedicated_connections import DedicatedConnectionKey, DedicatedConnections
from toolyard.clients.handshake import EraCache, EraStore
from toolyard.clients.pagination import PagedList
from toolyard.clients.process_pool import Launch, OnConnectionNotification, ProcessKey, ProcessPool
from toolyard.clients.server_table import ServerChange, ServerTable
from toolyard.clients.unsolicited_traffic import TrafficLimits
from toolyard.concurrency.tasks import BackgroundTasks
from toolyard.errors import ServerError, Unreachable
from toolyard.net import OutboundHttp
from toolyard.protocol.handshake import HandshakeResult
from toolyard.tracing.tracer import Tracer
from toolyard.transports.transport import MAX_MESSAGE_BYTES, Transport
from toolyard.types.account import LOCAL_PRINCIPAL, Principal
from toolyard.types.call import Caller, McpRequest
from toolyard.types.server import Server, ServerProcess, SessionPolicy, State, Status, StdioSpec, Trust
from toolyard.types.version import __version__

__all__ = ["CallbacksFor", "ConnectionManager", "OnServerNotification"]

CallbacksFor: TypeAlias = Callable[[Principal, str | None], Callbacks]
"""Returns the callbacks for a principal's connections: the default one (None) or a chat's own (its id)."""

OnServerNotification: TypeAlias = Callable[[str, str, str, Mapping[str, Any]], None]
"""Called for each server notification: server id, principal id, method, params."""

_MAX_PARALLEL_CONNECTS = 16
_BROKEN_STATES = frozenset({State.FAILED, State.NEEDS_AUTH})


class ConnectionManager:
    """One connection for each pair of server and principal, created on first use.

    A server with ``shared`` has a single connection, that of the local user. A server with ``instance``
    exists only for its owner; for everyone else it is indistinguishable from one that does not exist.

    Bound to the event loop that first uses it. Await ``close_all`` at the end, or use it as an async context
    manager.
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
        limits: ConnectionManagerLimits = ConnectionManagerLimits(),  # noqa: B008 - frozen
        max_child_processes: int | None = None,
        processes: ProcessPool | None = None,
        memory_servers: Mapping[str, Callable[[], Transport]] | None = None,
        built_in_servers: Iterable[Server] = (),
        on_notification: Callable[[str, str, Mapping[str, Any]], None] | None = None,
    ) -> None:
        """Create a manager without connecting to anything.

        ``auth_provider_for`` returns credentials by principal, for HTTP servers that name no auth provider.
        ``callbacks_for`` returns callbacks by principal and chat and takes precedence over ``callbacks``. A
        ``net`` that is passed in is not closed here. ``built_in_servers`` are part of Toolyard: everyone can
        use them by id, and they appear in no list or status. ``traffic`` limits unsolicited messages.
        Managers with the same ``processes`` share the child processes of equal servers. A pool that is passed
        in is not closed here, and its limit applies in place of ``max_child_processes``.
        """
        self._built_in_servers = {server.id: server for server in built_in_servers}
        self._server_table = ServerTable(servers)
        self._servers: Mapping[str, Server] = self._server_table.servers_by_id
        self._connections: dict[tuple[str, str], Connection] = {}
        """Connections by server and principal id. An entry implies that the principal may use the server, so
        that a call needs no further check."""
        self._dedicated_connections = DedicatedConnections()
        """Connections that belong to one chat or gateway client."""
        self._callbacks_for = callbacks_for
        self._choices = ConnectionChoices(
            self.dedicated_connection, self.release_connections, self._make_callbacks
        )
        self._notification_listeners: list[OnServerNotification] = []
        self._limits = limits
        self._closing_tasks = BackgroundTasks()
        self._closed = False
        self._parallel = parallel
        self._on_notification = on_notification
        self._owns_processes = processes is None
        self._processes = processes or ProcessPool(max_child_processes)
        self._processes.add_manager(self, self._list_connections)
        self._connector = Connector(
            client_info=client_info or {"name": "toolyard", "version": __version__},
            callbacks=callbacks or Callbacks(),
            auth_providers=auth_providers or {},
            auth_provider_for=auth_provider_for,
            net=net,
            eras=eras or EraCache(),
            process_supervisor=self._processes.supervisor,
            message_limit=message_limit,
            traffic_limits=traffic,
            connection_limits=limits,
            memory_servers=memory_servers or {},
            free_process_slot=self._processes.stop_idle_processes,
        )

    async def __aenter__(self) -> ConnectionManager:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close_all()

    @property
    def tracer(self) -> Tracer:
        return self._connector.tracer

    @property
    def servers(self) -> Mapping[str, Server]:
        """All definitions, including the instances of every owner. For the operator only."""
        return self._servers

    def visible_servers(self, principal: Principal) -> Mapping[str, Server]:
        """Return the definitions that exist for this principal."""
        return self._server_table.visible_servers(principal.id)

    def find(self, server_id: str, principal: Principal) -> Server | None:
        """Return the definition, or None if it does not exist for this principal."""
        server = self._servers.get(server_id)
        # Does not use visible_servers(), which builds a dict: every call comes through here.
        if server is None:
            return self._built_in_servers.get(server_id)
        return server if server.instance is None or server.instance.owner == principal.id else None

    # Requests.

    def send(self, server_id: str, caller: Caller, request: McpRequest) -> Awaitable[dict[str, Any]]:
        """Return the result of a request, over a connection of the chat or client alone where the server
        needs one. Raise a ServerError, always within the timeouts."""
        chat = caller.chat
        connection = self._connections.get((server_id, caller.principal.id))
        if connection is None or (chat is not None and not _is_shared_by_chats(connection.server)):
            connection = self.connection(server_id, caller.principal, chat)
        return self._choices.for_server(connection.server).send(connection, caller, request)

    async def list_tools(
        self, server_id: str, *, principal: Principal = LOCAL_PRINCIPAL, chat: str | None = None
    ) -> PagedList:
        """Fetch all tools from the server."""
        return await self.connection(server_id, principal, chat).list_tools()

    async def list_all(
        self, server_id: str, method: str, key: str, *, principal: Principal = LOCAL_PRINCIPAL
    ) -> PagedList:
        """Fetch all pages of another list, e.g. ``resources/list`` with key ``resources``."""
        return await self.connection(server_id, principal).list_all(method, key)

    async def ensure_connected(
        self, server_id: str, *, principal: Principal = LOCAL_PRINCIPAL, chat: str | None = None
    ) -> HandshakeResult:
        """Connect if needed and return the handshake result."""
        return await self.connection(server_id, principal, chat).ensure_connected()

    async def connect(
        self, server_ids: Iterable[str] | None = None, *, principal: Principal = LOCAL_PRINCIPAL
    ) -> list[Status]:
        """Connect several servers, a bounded number at a time. Failures are in the statuses, not raised."""
        visible = self.visible_servers(principal)
        enabled = [
            id
            for id in (visible if server_ids is None else server_ids)
            if id in visible and visible[id].enabled
        ]
        semaphore = asyncio.Semaphore(self._parallel)

        async def connect_one(server_id: str) -> Status | None:
            async with semaphore:
                with contextlib.suppress(ServerError):
                    connection = self.connection(server_id, principal)
                    with contextlib.suppress(ServerError):
                        await connection.ensure_connected()
                    return connection.status()
            return None  # The server was removed in the meantime.

        statuses = await asyncio.gather(*(connect_one(server_id) for server_id in enabled))
        return [status for status in statuses if status is not None]

    def connection(
        self, server_id: str, principal: Principal = LOCAL_PRINCIPAL, chat: str | None = None
    ) -> Connection:
        """Return the connection of this server and principal without connecting it. A chat has dedicated
        connections to instances and to servers with a session per client, closed by ``release_connections``.

        Use the result at once: an unused connection may be replaced by another. Raise Unreachable if the
        server does not exist for the principal.
        """
        if chat is not None:
            dedicated = self._chat_connection(server_id, principal, chat)
            if dedicated is not None:
                return dedicated
        connection = self._connections.get((server_id, principal.id))
        return self._make_connection(server_id, principal) if connection is None else connection

    def _chat_connection(self, server_id: str, principal: Principal, chat: str) -> Connection | None:
        """Return the chat's own connection, or None for a server that chats share."""
        key = (server_id, principal.id, chat)
        if (existing := self._dedicated_connections.find(key)) is not None:
            return existing
        server = self.find(server_id, principal)
        if server is None or _is_shared_by_chats(server):
            return None
        self._close_in_background(self._dedicated_connections.prune(self._limits.chat_connections))
        connection = self._make_dedicated_connection(
            server, principal, self._make_callbacks(principal, chat), isolated_context=True
        )
        self._dedicated_connections.put(key, connection, transient=True)
        return connection

    def forget_chat_capabilities(self) -> None:
        """Find out again what each chat can answer: the models of its owner may have changed."""
        self._choices.forget_chats()

    def _make_callbacks(self, principal: Principal, chat: str | None = None) -> Callbacks | None:
        return None if self._callbacks_for is None else self._callbacks_for(principal, chat)

    def _make_connection(self, server_id: str, principal: Principal) -> Connection:
        server = self.find(server_id, principal)
        if server is None:
            raise _server_not_found(server_id)
        # Not stored under this principal as well, so that there is one entry to close and one state to show.
        if server.shared and principal.id != LOCAL_PRINCIPAL.id:
            return self.connection(server_id, LOCAL_PRINCIPAL)
        if self._closed:
            raise Unreachable("the connection is closed", server=server_id)
        if len(self._connections) >= self._limits.connections:
            self._prune_connections()
        idle_timeout = (
            None
            if principal.id == LOCAL_PRINCIPAL.id or server.instance is not None
            else self._limits.idle_seconds
        )

        serves_clients = is_shared_process(server)
        callbacks = self._make_callbacks(principal)
        if callbacks is not None and isinstance(server.transport, StdioSpec):
            if server.shared or server.trust is Trust.UNTRUSTED or not serves_clients:
                callbacks = Callbacks()
        elif callbacks is not None:
            callbacks = replace(callbacks, shared=None)

        def make(on_notification: OnConnectionNotification | None) -> Connection:
            return Connection(
                server,
                principal,
                self._connector,
                on_notification,
                stop_when_idle=idle_timeout,
                callbacks=callbacks,
                isolated_context=True,
                serves_clients=serves_clients,
            )

        on_notification, spec = self._make_notification_handler(principal), server.transport
        if isinstance(spec, StdioSpec) and server.id not in self._built_in_servers:
            key = ProcessKey(principal.id, server_id, Launch.resolve(spec), server.trust)
            connection = self._processes.acquire(key, self, on_notification, make)
        else:
            connection = make(on_notification)
        self._connections[server_id, principal.id] = connection
        return connection

    def dedicated_connection(
        self, server_id: str, principal: Principal, holder: str, callbacks: Callbacks
    ) -> Connection:
        """Return a connection for ``holder`` alone, with its own callbacks and capabilities.

        Nothing is started. It stops when idle, and ``release_connections`` closes it. Raise
        Unreachable if the server does not exist for the principal.
        """
        existing = self._dedicated_connections.find((server_id, principal.id, holder))
        if existing is not None:
            return existing
        server = self.find(server_id, principal)
        if server is None:
            raise _server_not_found(server_id)
        connection = self._make_dedicated_connection(
            server, LOCAL_PRINCIPAL if server.shared else principal, callbacks
        )
        self._dedicated_connections.put((server_id, principal.id, holder), connection)
        return connection

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
            stop_when_idle=self._limits.idle_seconds,
            callbacks=callbacks,
            isolated_context=isolated_context,
        )

    def list_dedicated_connections(self, holder: str) -> list[Connection]:
        """Return the dedicated connections of a holder (a gateway client or a chat)."""
        return self._dedicated_connections.for_holder(holder)

    def notify_roots_changed(self, holder: str) -> None:
        """Tell the servers that know a client's roots that these have changed."""
        offered = (each for each in self._connections.values() if "roots" in each.offered_capabilities)
        for connection in (*self.list_dedicated_connections(holder), *offered):
            connection.notify("notifications/roots/list_changed")

    async def release_connections(self, holder: str) -> None:
        """Close the dedicated connections of a gateway client or chat, and forget it as a user of shared
        ones. A later call creates new ones."""
        for connection in self._connections.values():
            connection.clients.release(holder)
        self._choices.forget_chats(holder)
        await self._close_connections(
            self._dedicated_connections.remove_matching(lambda key: key[2] == holder)
        )

    def subscribe(self, listener: OnServerNotification) -> Callable[[], None]:
        """Report the server notifications of connections created from now on to ``listener``. Return a
        function that ends the subscription."""
        self._notification_listeners.append(listener)
        return lambda: self._notification_listeners.remove(listener)

    def _make_notification_handler(self, principal: Principal) -> OnConnectionNotification | None:
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
        for listener in self._notification_listeners:
            listener(server_id, principal_id, method, params)

    def _prune_connections(self) -> None:
        """Close the least recently used half of the disposable connections."""
        disposable = [
            key
            for key, connection in self._connections.items()
            if key[1] != LOCAL_PRINCIPAL.id and connection.is_disposable
        ]
        disposable.sort(key=lambda key: self._connections[key].last_used)
        # Half of them at once: dropping one for each new connection would sort the whole table every time.
        oldest = disposable[: (len(disposable) + 1) // 2]
        self._close_in_background([self._connections.pop(key) for key in oldest])

    def _list_connections(self) -> list[Connection]:
        dedicated = (self._dedicated_connections.find(key) for key in self._dedicated_connections)
        return [*self._connections.values(), *(each for each in dedicated if each is not None)]

    async def _close_connections(self, connections: Iterable[Connection]) -> None:
        await _run_all(self._processes.release(connection, self) for connection in connections)

    def _close_in_background(self, connections: Collection[Connection]) -> None:
        if connections:
            self._closing_tasks.spawn(self._close_connections(connections))

    # Status.

    def status(self, server_id: str, *, principal: Principal = LOCAL_PRINCIPAL) -> Status:
        """Return the status for this server and principal without creating a connection.

        Raise Unreachable if the server does not exist for the principal.
        """
        server = self.find(server_id, principal)
        if server is None:
            raise _server_not_found(server_id)
        return self._build_status(server, principal)

    def state(self, server_id: str, principal: Principal = LOCAL_PRINCIPAL) -> State:
        """Return the state alone, without building a status. DISABLED for an unknown server."""
        connection = self._connections.get((server_id, principal.id))
        # Fast path for policy, which asks for the state at every call. The state of an instance may be newer
        # on a dedicated connection.
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
        """Return the connection that best represents the state of an instance: the default one, or the
        dedicated one whose state changed later."""
        default = self._connections.get((server_id, principal.id))
        dedicated = self._dedicated_connections.newest(server_id, principal.id)
        if default is None or dedicated is None:
            return default or dedicated
        return (
            dedicated
            if default.state is State.IDLE or dedicated.state_since > default.state_since
            else default
        )

    def statuses(self, principal: Principal | None = None) -> list[Status]:
        """Return the statuses of all servers that exist for a principal.

        Without a principal, for the operator: the statuses of all connections of everyone, and an initial one
        for each configured server without a connection.
        """
        if principal is not None:
            visible = self.visible_servers(principal)
            return [self._build_status(visible[server_id], principal) for server_id in sorted(visible)]
        used = {server_id for server_id, _ in self._connections}
        for server in self.servers.values():
            if server.id not in used and server.instance is None and not self._closed:
                self.connection(server.id)
        keys = sorted(key for key in self._connections if key[0] not in self._built_in_servers)
        return [self._with_processes(self._connections[key].status()) for key in keys]

    def _with_processes(self, status: Status) -> Status:
        """Return the status with all processes of its server and principal."""
        server = self._servers.get(status.server)
        if server is None or not isinstance(server.transport, StdioSpec):
            return status
        launches = self._processes.describe_launches(status.principal, status.server)
        dedicated = self._dedicated_connections.for_server(status.server, status.principal)
        status.processes = tuple(
            ServerProcess(pid, tuple(connection.list_client_names()), launches.get(connection))
            for connection in (*launches, *dedicated)
            if (pid := connection.pid) is not None
        )
        return status

    def _build_status(self, server: Server, principal: Principal) -> Status:
        owner = LOCAL_PRINCIPAL if server.shared else principal
        if server.instance is not None:
            connection = self._most_recent_connection(server.id, owner)
        else:
            connection = self._connections.get((server.id, owner.id))
            broken = self._dedicated_connections.newest(server.id, owner.id, _BROKEN_STATES)
            if broken is not None and (connection is None or broken.state_since > connection.state_since):
                # Show the failure: calls over the dedicated connection fail even if the default one works.
                connection = broken
        return self._with_processes(
            initial_status(server, owner) if connection is None else connection.status()
        )

    # Changes and closing.

    async def restart(self, server_id: str, principal: Principal | None = None) -> None:
        """Close this server's connections and forget their failures; the next call connects again.

        Subscribers are told that the lists of prompts and resources changed, because those may belong to
        other credentials. With a principal only the connections of that principal. Raise Unreachable if the
        server does not exist for them.
        """
        told_id = LOCAL_PRINCIPAL.id
        if principal is not None:
            server = self.find(server_id, principal)
            owners = (
                {principal.id, LOCAL_PRINCIPAL.id} if server is not None and server.shared else {principal.id}
            )
            dedicated = self._dedicated_connections.remove_matching(
                lambda key: key[0] == server_id and key[1] in owners
            )
            connections = [self.connection(server_id, principal)]
            if server is None or not server.shared:
                told_id = principal.id
        else:
            dedicated = self._dedicated_connections.remove_matching(lambda key: key[0] == server_id)
            connections = [self._connections[key] for key in self._find_connection_keys({server_id})]
        await _run_all((*(each.restart() for each in connections), self._close_connections(dedicated)))
        for kind in ("prompts", "resources"):
            self._dispatch_notification(told_id, server_id, f"notifications/{kind}/list_changed", {})

    async def update(self, servers: Iterable[Server]) -> set[str]:
        """Replace the configured servers; instances stay. Return the ids of changed servers.

        Only connections that depend on a changed field are closed.
        """
        return await self._apply_changes(self._server_table.update(servers))

    def has_instances(self, owner: str) -> bool:
        """Return True if there are instances of this owner."""
        return owner in self._server_table.instances_by_owner

    async def sync_instances(self, owner: str, servers: Iterable[Server]) -> set[str]:
        """Replace all instances of one owner. Return the ids of added, changed and removed ones.

        Connections of removed instances, and of changed ones where the change affects them, are closed. Raise
        ValueError for a server that is not an instance of this owner.
        """
        return await self._apply_changes(self._server_table.sync_instances(owner, servers))

    async def _apply_changes(self, changes: Mapping[str, ServerChange]) -> set[str]:
        """Close or update the connections of changed servers. Return the ids of the changed servers."""
        if not changes:
            return set()
        # All affected connections are removed from the tables before the first await, so that no call in
        # between can get a connection with an old definition.
        closing: list[Connection] = []
        for key in self._find_connection_keys(changes):
            change = changes[key[0]]
            if change.after is not None and change.can_keep_connection:
                self._connections[key].replace_definition(change.after)
            else:
                closing.append(self._connections.pop(key))
        updated: set[DedicatedConnectionKey] = set()
        for key, connection in self._dedicated_connections.transient_connections():
            change = changes.get(key[0])
            if change is not None and change.after is not None and change.can_keep_connection:
                connection.replace_definition(change.after)
                updated.add(key)
        # Other holders keep their Connection object and may depend on any field of the definition: theirs are
        # closed, and the next request gets a new one.
        closing += self._dedicated_connections.remove_matching(
            lambda key: key[0] in changes and key not in updated
        )
        self._choices.forget_servers(changes)
        await self._close_connections(closing)
        return set(changes)

    async def close(self, server_id: str) -> None:
        """Close this server's connections. A later call creates new ones."""
        dedicated = self._dedicated_connections.remove_matching(lambda key: key[0] == server_id)
        await self._close_connections(
            [*(self._connections.pop(key) for key in self._find_connection_keys({server_id})), *dedicated]
        )

    async def close_principal(self, principal_id: str) -> None:
        """Close the connections of one principal. A later call creates new ones."""
        keys = [key for key in self._connections if key[1] == principal_id]
        dedicated = self._dedicated_connections.remove_matching(lambda key: key[1] == principal_id)
        await self._close_connections([*(self._connections.pop(key) for key in keys), *dedicated])

    async def close_all(self) -> None:
        """Close all connections, child processes and sockets for good, in bounded time. May be called
        twice."""
        # Before the first await: a call in between must not create a connection that would never be closed.
        self._closed = True
        dedicated = self._dedicated_connections.remove_matching(lambda _: True)
        connections, self._connections = [*self._connections.values(), *dedicated], {}
        await _run_all((self._close_connections(connections), self._closing_tasks.wait()))
        # Last, since it ends the watchdog and the HTTP sessions that connections need for their own close.
        await self._connector.close()
        self._processes.remove_manager(self)
        if self._owns_processes:
            await self._processes.close()

    def _find_connection_keys(self, server_ids: Collection[str]) -> list[tuple[str, str]]:
        return [key for key in self._connections if key[0] in server_ids]


def _is_shared_by_chats(server: Server) -> bool:
    return server.instance is None and server.sessions is SessionPolicy.SHARED


def _server_not_found(server_id: str) -> Unreachable:
    return Unreachable("not configured", server=server_id, hint="`toolyard servers` lists them")


async def _run_all(awaitables: Iterable[Any]) -> None:
    """Await all concurrently, wait for every one to end, then raise the first exception if there is one."""
    # With return_exceptions, because gather would otherwise return at the first failure and leave the other
    # connections closing without anyone to wait for them.
    for result in await asyncio.gather(*awaitables, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
