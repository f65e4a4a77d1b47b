"""The server of a data directory, its owner: serves all attached clients until it is stopped or idle."""

from __future__ import annotations

import _socket
import asyncio
import json
import logging
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from toolyard.background import attach_protocol
from toolyard.background.attached_client_handler import AttachedClientHandler
from toolyard.background.listener import ClientListener
from toolyard.background.runtime_dir import lock_file
from toolyard.background.shared_cores import SharedCore, SharedCores
from toolyard.background.web_app import BackgroundWebApp
from toolyard.concurrency.tasks import BackgroundTasks
from toolyard.config.settings.table import SETTINGS
from toolyard.config.working_directories import CLIENT_DIR_VARIABLE
from toolyard.core.local_client_marker import record_local_client
from toolyard.errors import ToolyardError
from toolyard.transports.stdio.supervisor import INHERITED_VARIABLES
from toolyard.transports.stdio.watchdog import MARKER_VARIABLE
from toolyard.types.version import __version__
from toolyard.web.http_server.logs import start_logging

__all__ = ["BackgroundServer", "OperationServer", "run_background_server"]

log = logging.getLogger("toolyard.background")

_COMMAND_TIMEOUT_SECONDS = 10.0
_STOP_DRAIN_SECONDS = 5.0
MOVE_DRAIN_SECONDS = 30.0
"""Time for running calls to end before the clients are moved to another process."""
_UNCOMPARED_VARIABLES = {
    MARKER_VARIABLE,
    CLIENT_DIR_VARIABLE,
    "TOOLYARD_CONFIG_PATH",
    "TOOLYARD_CONFIG_JSON",
    "TOOLYARD_DATA_DIR",
    "TOOLYARD_REMOTE_TOKEN",
    "TOOLYARD_STANDALONE",
}
"""Variables that are not settings, or that are part of the shared core of a client."""


OperationServer: TypeAlias = Callable[
    [SharedCore, asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]
]
"""Carries out the operation of a command, which is the next thing on its connection."""


@dataclass(slots=True, eq=False)
class _AttachedClientInfo:
    client: AttachedClientHandler
    hello: attach_protocol.AttachRequest
    core: SharedCore
    task: asyncio.Task[None]
    since: float = field(default_factory=time.time)


class BackgroundServer:
    """Serves the connections that the listener accepts. ``run`` returns once it has ended."""

    def __init__(
        self,
        listener: ClientListener,
        data_dir: Path,
        shared_cores: SharedCores,
        serve_operation: OperationServer,
        web_app: BackgroundWebApp | None = None,
    ) -> None:
        """``serve_operation`` carries out the operations of commands. With a ``web_app`` of its own, the
        process has no other purpose, and ends when it is idle."""
        self._listener = listener
        self._data_dir = data_dir
        self._shared_cores = shared_cores
        self._serve_operation = serve_operation
        self._is_background = web_app is not None
        self._operation_count = 0
        self._clients: set[_AttachedClientInfo] = set()
        self._tasks = BackgroundTasks()
        self._web_app = web_app
        self._ended = asyncio.Event()
        self._drain_task: asyncio.Task[None] | None = None
        self._idle_since = time.monotonic()
        self._is_outdated = False
        """Whether a client of a newer version attached, so that this process is replaced once it is idle."""
        self._started_at = time.time()

    async def run(self) -> None:
        """Serve until stopped, or until idle for the time of the setting ``idle_exit``."""
        loop = asyncio.get_running_loop()
        self._listener.deliver_to(lambda connection: _call_in_loop(loop, self._accept, connection))
        idle_check = self._tasks.spawn(self._check_idle()) if self._is_background else None
        try:
            await self._ended.wait()
        finally:
            if idle_check is not None:
                idle_check.cancel()
            # First, or new clients would get cores that are being closed.
            self._listener.close()
            await self._tasks.close()
            await self._shared_cores.close()
            if self._web_app is not None:
                await self._web_app.close()

    def restore_socket(self) -> None:
        """Listen again if the socket was deleted."""
        self._listener.restore()

    def stop(self) -> None:
        """Begin to end. Clients attach to another process when they send something."""
        self._drain("later", _STOP_DRAIN_SECONDS)

    def hand_over_clients(self) -> None:
        """Give up the data directory, so that another process can own it, and move the clients to it."""
        self._drain("now", MOVE_DRAIN_SECONDS)

    def _drain(self, when: str, seconds: float) -> None:
        # Gives up the data directory: moved clients attach to the next process at once, which must be able to
        # own it.
        self._listener.close()
        if self._drain_task is None:
            self._drain_task = self._tasks.spawn(self._move_clients(when, seconds))

    async def _move_clients(self, when: str, seconds: float) -> None:
        for each in list(self._clients):
            # Clients of the newer version move first, since the first one starts the next process.
            is_newer = _parse_version(each.hello.version) > _parse_version(__version__)
            each.client.request_move("later" if self._is_outdated and not is_newer else when)
        await self._wait_for_clients(seconds)
        for each in list(self._clients):
            # Calls that have not ended in time. The shim answers them with an error, since their outcome is
            # not known.
            each.client.move()
        await self._wait_for_clients(_STOP_DRAIN_SECONDS)
        self._ended.set()

    async def _wait_for_clients(self, seconds: float) -> None:
        if self._clients:
            await asyncio.wait([each.task for each in self._clients], timeout=seconds)

    async def _check_idle(self) -> None:
        while True:
            await asyncio.sleep(min(self._shared_cores.settings.idle_exit / 2, 30.0))
            if self._is_outdated and not any(each.client.is_busy for each in self._clients):
                log.info("a newer version of Toolyard takes over")
                self.hand_over_clients()
                return
            idle_since = self._find_idle_since()
            if idle_since is None or time.monotonic() - idle_since < self._shared_cores.settings.idle_exit:
                continue
            if self._end_if_idle():
                return

    def _find_idle_since(self) -> float | None:
        """Return when the last client or the last request to a page ended; None while there are some."""
        page_idle_since = self._idle_since if self._web_app is None else self._web_app.idle_since
        if self._clients or self._operation_count or page_idle_since is None:
            return None
        return max(self._idle_since, page_idle_since)

    def _end_if_idle(self) -> bool:
        # With the lock, nobody starts another process before this one no longer listens.
        try:
            lock = lock_file(self._listener.paths.start_lock)
            if lock is None:
                return False
        except OSError:
            lock = None  # The folder was removed, as at the end of a session: nobody starts one there.
        try:
            if self._find_idle_since() is None:
                return False
            self._listener.close()
        finally:
            if lock is not None:
                os.close(lock)
        self._ended.set()
        return True

    # Connections.

    def _accept(self, connection: _socket.socket) -> None:
        self._tasks.spawn(self._serve(socket.socket(fileno=connection.detach())), name="connection")

    async def _serve(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection)
        try:
            async with asyncio.timeout(_COMMAND_TIMEOUT_SECONDS):
                words = (await reader.readline()).split()
            await self._run_command(words, connection, reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
            pass  # The client has gone, or is not one.
        finally:
            writer.close()

    async def _run_command(
        self,
        words: list[bytes],
        connection: socket.socket,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        command = words[0].decode() if words else ""
        if command in ("attach", "operate") and len(words) == 2:
            async with asyncio.timeout(_COMMAND_TIMEOUT_SECONDS):
                hello = attach_protocol.AttachRequest.from_bytes(
                    await reader.readexactly(min(int(words[1]), attach_protocol.MAX_HELLO_BYTES))
                )
            if command == "attach":
                await self._attach(hello, connection, reader, writer)
            else:
                await self._run_operation(hello, reader, writer)
        elif command == "status":
            await _send_line(writer, json.dumps(self.describe()))
        elif command == "open":
            await _send_line(writer, await self._open_pages())
        elif command == "replace":
            self._is_outdated = True
        elif command in ("stop", "leave"):
            if self._is_background:
                (self.stop if command == "stop" else self.hand_over_clients)()
            await _send_line(writer, "ok" if self._is_background else "no it is `toolyard serve`")

    async def _open_pages(self) -> str:
        if self._web_app is None:
            return "no the output of `toolyard serve` has the address of the pages"
        try:
            return f"ok {await self._web_app.open()}"
        except (ToolyardError, OSError) as error:
            return f"no {error}".replace("\n", " ")

    async def _run_operation(
        self, hello: attach_protocol.AttachRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if (refusal := self._find_refusal(hello)) is not None:
            await _send_line(writer, refusal)
            return
        try:
            core = await self._shared_cores.find_core(hello, is_current=True)
        except (ToolyardError, OSError):
            await _send_line(writer, "no the configuration is not valid; the command reports why")
            return
        writer.write(b"ok\n")
        core.client_count += 1
        # Counted, so that the process does not end as idle in the middle of a command.
        self._operation_count += 1
        try:
            await self._serve_operation(core, reader, writer)
        finally:
            core.client_count -= 1
            self._operation_count -= 1
            self._idle_since = time.monotonic()

    async def _attach(
        self,
        hello: attach_protocol.AttachRequest,
        connection: socket.socket,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        if (refusal := self._find_refusal(hello)) is not None:
            await _send_line(writer, refusal)
            return
        try:
            core = await self._shared_cores.find_core(hello)
            endpoint = await core.make_endpoint(hello.arguments)
        except (ToolyardError, OSError) as error:
            log.info("a client in %s was not attached: %s", hello.cwd, error)
            await _send_line(writer, "no its configuration or its options are not valid")
            return
        if not self._listener.is_open:  # It began to end meanwhile.
            await _send_line(writer, "gone")
            return
        record_local_client(self._data_dir)
        line_count_file = attach_protocol.open_line_count()
        client = AttachedClientHandler(endpoint, reader, writer, hello.replay, line_count_file)
        if line_count_file is None:
            writer.write(b"ok\n")
        else:
            # Transports cannot pass descriptors. This one has sent nothing yet, so that this comes first.
            socket.send_fds(connection, [b"ok\n"], [line_count_file])
        info = _AttachedClientInfo(client, hello, core, asyncio.create_task(client.serve()))
        self._clients.add(info)
        core.client_count += 1
        try:
            await info.task
        finally:
            core.client_count -= 1
            self._clients.discard(info)
            self._idle_since = time.monotonic()
            if line_count_file is not None:
                os.close(line_count_file)

    def _find_refusal(self, hello: attach_protocol.AttachRequest) -> str | None:
        if not self._listener.is_open:
            return "gone"
        if (hello.version, hello.environment_id) != (__version__, attach_protocol.environment_id()):
            # No other client depends on this version, so end at once: the client then starts a process of its
            # own version.
            if not self._clients and self._is_background:
                self._drain("now", 0.0)
                return "gone"
            self._is_outdated = self._is_outdated or _parse_version(hello.version) > _parse_version(
                __version__
            )
        # Settings in the environment apply to the whole process, so a client with other values needs a
        # process of its own.
        names = {name for name in (*hello.environment, *os.environ) if name.startswith("TOOLYARD_")}
        for name in sorted(names - _UNCOMPARED_VARIABLES):
            if hello.environment.get(name) != os.environ.get(name):
                return f"no the background process was started with another value of {name}"
        return None

    def describe(self) -> dict[str, Any]:
        """Return what ``toolyard status`` shows."""
        return {
            "pid": os.getpid(),
            "background": self._is_background,
            "version": __version__,
            "protocol": attach_protocol.PROTOCOL,
            "program": sys.prefix,
            "data_dir": str(self._data_dir),
            "started_at": self._started_at,
            "clients": [
                {
                    "pid": each.hello.pid,
                    "cwd": each.hello.cwd,
                    "options": each.hello.arguments,
                    "version": each.hello.version,
                    "since": each.since,
                    "busy": each.client.is_busy,
                    "config": each.core.configuration.file,
                }
                for each in sorted(self._clients, key=lambda each: each.since)
            ],
            "views": [
                {
                    "config": core.configuration.file,
                    "clients": core.client_count,
                    "problem": core.problem,
                    "servers": [
                        {
                            "id": status.server,
                            "state": status.state,
                            "pid": status.pid,
                            # Why there are several processes of this server, if there are.
                            "launch": next(
                                (each.launch for each in status.processes if each.pid == status.pid), None
                            ),
                            "processes": [asdict(process) for process in status.processes],
                        }
                        for status in core.local.core.manager.statuses()
                    ],
                }
                for core in self._shared_cores.cores
            ],
        }


async def _send_line(writer: asyncio.StreamWriter, text: str) -> None:
    writer.write(text.encode() + b"\n")
    await writer.drain()


def _call_in_loop(
    loop: asyncio.AbstractEventLoop, accept: Callable[[_socket.socket], None], connection: _socket.socket
) -> None:
    try:
        loop.call_soon_threadsafe(accept, connection)
    except RuntimeError:  # The loop has ended.
        connection.close()


def _parse_version(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def _forget_other_variables() -> None:
    """Remove the variables of the first client that are neither settings nor inherited by servers.

    What servers refer to comes from the environment of each client.
    """
    wanted = {*INHERITED_VARIABLES, *(name for row in SETTINGS for name in row.also)}
    for name in list(os.environ):
        if name not in wanted and not name.startswith(("TOOLYARD_", "PYTHON", "CREDENTIALS_DIRECTORY")):
            del os.environ[name]


async def run_background_server(
    listener: ClientListener, data_dir: Path, serve_operation: OperationServer
) -> None:
    """Run the background process of a data directory until it ends."""
    loop = asyncio.get_running_loop()
    _forget_other_variables()
    web_app = BackgroundWebApp(data_dir)
    shared_cores = SharedCores(data_dir, web_app)
    start_logging(shared_cores.settings.log_level, shared_cores.settings.log_format)
    server = BackgroundServer(listener, data_dir, shared_cores, serve_operation, web_app)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, server.stop)
    loop.add_signal_handler(signal.SIGUSR1, server.restore_socket)
    log.info("the background process of %s serves clients", data_dir)
    await server.run()
    log.info("the background process has ended")
