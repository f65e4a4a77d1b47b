"""Processes of stdio servers: one for each principal, server and launch, shared by connection managers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from toolyard.clients.connection import Connection
from toolyard.transports.stdio.supervisor import (
    SIGTERM_GRACE_SECONDS,
    ProcessSupervisor,
    build_child_environment,
)
from toolyard.types.server import StdioSpec, Trust

__all__ = ["Launch", "OnConnectionNotification", "ProcessKey", "ProcessPool"]

OnConnectionNotification: TypeAlias = Callable[[str, str, Mapping[str, Any]], None]
"""Called for each notification from a server: its id, method, params."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Resolved command, arguments, folder and environment of a stdio server."""

    command: str
    args: tuple[str, ...]
    folder: str
    environment: tuple[tuple[str, str], ...] = field(repr=False)

    @classmethod
    def resolve(cls, spec: StdioSpec) -> Launch:
        """Look up the command on PATH, and complete folder and environment as for a start."""
        environment = build_child_environment(spec.env, spec.inherited)
        command = shutil.which(spec.command, path=environment.get("PATH")) or spec.command
        return cls(
            command,
            spec.args,
            os.path.abspath(spec.cwd or spec.folder or "."),
            tuple(sorted(environment.items())),
        )


def _describe_launch(launch: Launch, others: Sequence[Launch]) -> str:
    """Return how a launch differs from others. Values of variables and arguments are not shown, since they
    may be secret."""
    text = f"{launch.command} in {launch.folder}"
    own = [
        name
        for name, value in launch.environment
        if any((name, value) not in other.environment for other in others)
    ]
    if any(launch.args != other.args for other in others):
        own.insert(0, "arguments")
    return f"{text}, with its own {', '.join(own)}" if own else text


class ProcessKey(NamedTuple):
    """Key of one process. Trust is part of it, since an untrusted server is told other capabilities."""

    principal_id: str
    server_id: str
    launch: Launch
    trust: Trust


@dataclass(slots=True, eq=False)
class _PooledProcess:
    """A connection to one process, and the notification handlers of the managers that use it."""

    connection: Connection
    handlers: dict[object, OnConnectionNotification | None]


class ProcessPool:
    """Connections to stdio servers by key, each with the managers that use it.

    A ConnectionManager creates a pool of its own. Several managers of one process share their servers'
    processes if they are created with the same pool::

        pool = ProcessPool(max_processes)
        first = ConnectionManager(servers, processes=pool)
        second = ConnectionManager(others, processes=pool)
        ...
        await first.close_all()
        await second.close_all()
        await pool.close()

    Servers with the same principal, id, resolved command, arguments, folder, environment and trust are one
    process; its other options, such as timeouts, are those of the manager that used it first. Each manager
    counts as one user of a process, and gets all its notifications. The process ends when the last of them
    releases it.
    """

    def __init__(
        self, max_processes: int | None = None, *, sigterm_grace_seconds: float = SIGTERM_GRACE_SECONDS
    ) -> None:
        """``max_processes`` is the maximum number of child processes; None means no limit."""
        self.supervisor = ProcessSupervisor(max_processes, sigterm_grace_seconds)
        self._processes: dict[ProcessKey, _PooledProcess] = {}
        self._keys: dict[Connection, ProcessKey] = {}
        self._managers: dict[object, Callable[[], Iterable[Connection]]] = {}

    def add_manager(self, manager: object, connections: Callable[[], Iterable[Connection]]) -> None:
        """Register a manager; ``connections`` returns all connections that it uses."""
        self._managers[manager] = connections

    def remove_manager(self, manager: object) -> None:
        """Forget a manager that has released all its processes."""
        self._managers.pop(manager, None)

    def acquire(
        self,
        key: ProcessKey,
        manager: object,
        on_notification: OnConnectionNotification | None,
        make: Callable[[OnConnectionNotification | None], Connection],
    ) -> Connection:
        """Return the connection of a process, and count the manager as its user. ``make`` creates it with
        the given notification handler. Nothing is started."""
        process = self._processes.get(key)
        if process is None:
            handlers: dict[object, OnConnectionNotification | None] = {}

            def notify_managers(server_id: str, method: str, params: Mapping[str, Any]) -> None:
                for handler in list(handlers.values()):
                    if handler is not None:
                        handler(server_id, method, params)

            # Without a handler the server is not asked for notifications.
            process = _PooledProcess(make(on_notification and notify_managers), handlers)
            self._processes[key] = process
            self._keys[process.connection] = key
        process.handlers[manager] = on_notification
        return process.connection

    async def release(self, connection: Connection, manager: object) -> None:
        """Close a connection, unless it is one of this pool that another manager still uses."""
        key = self._keys.get(connection)
        if key is not None:
            process = self._processes[key]
            process.handlers.pop(manager, None)
            if process.handlers:
                return
            # Removed before the first await, so that the next user gets a new connection.
            del self._processes[key], self._keys[connection]
        await connection.close()

    def describe_launches(self, principal_id: str, server_id: str) -> dict[Connection, str | None]:
        """Return the connections of one server and principal, each with its launch in words if there are
        several."""
        launches = {
            process.connection: key.launch
            for key, process in self._processes.items()
            if (key.principal_id, key.server_id) == (principal_id, server_id)
        }
        if len(launches) < 2:
            return dict.fromkeys(launches)
        return {
            connection: _describe_launch(launch, list(launches.values()))
            for connection, launch in launches.items()
        }

    async def stop_idle_processes(self) -> None:
        """While the maximum number of child processes runs, stop idle ones, the longest unused first."""
        # Searched again after each stop: while a process ends, others may become idle or be used again.
        while self.supervisor.is_full:
            idle = {
                connection: since
                for list_connections in self._managers.values()
                for connection in list_connections()
                if isinstance(connection.server.transport, StdioSpec)
                and (since := connection.idle_since) is not None
            }
            if not idle:
                return
            await min(idle, key=idle.__getitem__).stop_idle()

    async def close(self) -> None:
        """Stop the watchdog. All managers must have been closed before."""
        await self.supervisor.close()
