"""The backend on the background process of the data directory, whose connections are warm."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from typing import Any

from toolyard.background.link import STANDALONE_VARIABLE, BackgroundLink, NotAttached
from toolyard.background.runtime_dir import RuntimeDirError
from toolyard.cli.backends.backend import (
    Approve,
    Backend,
    CommandCall,
    EarlyServersReport,
    OnCallProgress,
    PartialTools,
    SearchReport,
    SearchRequest,
    ServersReport,
    ServersRequest,
    ToolsReport,
    ToolsRequest,
)
from toolyard.cli.backends.messages import decode_error, decode_report, read_message, write_message
from toolyard.cli.invocation import Options
from toolyard.cli.output.servers import ServerSummary
from toolyard.errors import OutcomeUnknown
from toolyard.types.tool import Result

__all__ = ["BackgroundBackend", "open_background"]

_SILENCE_TIMEOUT_SECONDS = 30.0
"""Time without a message after which the process counts as lost. It sends heartbeats every few seconds."""


class _ProcessLost(Exception):
    """Raised when the background process ended or stopped answering."""


@contextlib.asynccontextmanager
async def open_background(
    options: Options, open_local: Callable[[], AbstractAsyncContextManager[Backend]]
) -> AsyncGenerator[BackgroundBackend | None]:
    """Connect to the background process; None if none runs that can be used. None is started."""
    connection = None
    if os.environ.get(STANDALONE_VARIABLE) != "1":
        config = {} if options.config is None else {"config": options.config}
        with contextlib.suppress(NotAttached, RuntimeDirError, OSError):
            connection = BackgroundLink(str(options.resolved_data_dir), config).attach_command()
    if connection is None:
        yield None
        return
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=connection.detach()))
    try:
        yield BackgroundBackend(reader, writer, open_local)
    finally:
        writer.close()


class BackgroundBackend:
    """Runs operations in the background process, with the configuration of this command's folder.

    If the process ends meanwhile, listings and searches are made by a Toolyard of this process. A call is
    not, since it may have been executed.
    """

    outlives_command = True

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        open_local: Callable[[], AbstractAsyncContextManager[Backend]],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._open_local = open_local

    async def list_tools(
        self, request: ToolsRequest, on_early: Callable[[PartialTools], None] | None = None
    ) -> ToolsReport:
        """Return the tools, as ``LocalBackend`` does."""
        return await self._list("list_tools", request, on_early)

    async def list_servers(
        self, request: ServersRequest, on_early: Callable[[EarlyServersReport], None] | None = None
    ) -> ServersReport:
        """Return the states of the servers, as ``LocalBackend`` does."""
        return await self._list("list_servers", request, on_early)

    async def _list(self, operation: str, request: Any, on_early: Callable[[Any], None] | None) -> Any:
        once = _CallOnce(on_early)
        try:
            return await self._request_operation(operation, request, on_early=on_early and once)
        except _ProcessLost:
            async with self._open_local() as local:
                return await getattr(local, operation)(request, once.unused)

    async def search(self, request: SearchRequest) -> SearchReport:
        """Search the stored listings."""
        try:
            return await self._request_operation("search", request)
        except _ProcessLost:
            async with self._open_local() as local:
                return await local.search(request)

    async def call(
        self, request: CommandCall, on_progress: OnCallProgress, approve: Approve | None = None
    ) -> Result:
        """Call a tool. Raises OutcomeUnknown if the process ends meanwhile."""
        try:
            return await self._request_operation("call", request, on_progress=on_progress, approve=approve)
        except _ProcessLost:
            raise OutcomeUnknown(
                "Toolyard's background process ended before it answered; the outcome is unknown",
                hint="check what was done, then try again",
            ) from None

    async def restart(self, server: str) -> ServerSummary:
        """Restart a server of the background process."""
        try:
            return await self._request_operation("restart", server)
        except _ProcessLost:
            hint = "`toolyard servers` shows the state of the server"
            raise OutcomeUnknown(
                f"the background process ended during the restart of '{server}'; the outcome is unknown",
                hint=hint,
            ) from None

    async def _request_operation(
        self,
        operation: str,
        request: Any,
        *,
        on_early: Callable[[Any], None] | None = None,
        on_progress: OnCallProgress | None = None,
        approve: Approve | None = None,
    ) -> Any:
        given = request if isinstance(request, str) else asdict(request)
        self._send(
            {
                "operation": operation,
                "request": given,
                "takes_early": on_early is not None,
                "approves": approve is not None,
            }
        )
        while True:
            message = await self._receive()
            match message:
                case {"report": report}:
                    return decode_report(message["kind"], report)
                case {"error": error}:
                    raise decode_error(error)
                case {"early": early} if on_early is not None:
                    on_early(decode_report(message["kind"], early))
                case {"progress": params} if on_progress is not None:
                    on_progress(params)
                case {"arguments": arguments} if approve is not None:
                    self._send({"approved": await approve(arguments)})
                case _:
                    pass  # A heartbeat.

    def _send(self, message: dict[str, Any]) -> None:
        write_message(self._writer, json.dumps(message).encode())

    async def _receive(self) -> dict[str, Any]:
        try:
            async with asyncio.timeout(_SILENCE_TIMEOUT_SECONDS):
                return await read_message(self._reader)
        except (asyncio.IncompleteReadError, OSError, TimeoutError, ValueError):
            raise _ProcessLost from None


class _CallOnce:
    """Calls a function at most once: of two listings, only one prints something early."""

    def __init__(self, function: Callable[[Any], None] | None) -> None:
        self.unused = function

    def __call__(self, value: Any) -> None:
        function, self.unused = self.unused, None
        if function is not None:
            function(value)
