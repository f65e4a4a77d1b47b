"""The end of ``background`` in the background process: carries out one operation for a command."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from toolyard.background.shared_cores import SharedCore
from toolyard.cli.backends.backend import CommandCall, SearchRequest, ServersRequest, ToolsRequest
from toolyard.cli.backends.local import LocalBackend
from toolyard.cli.backends.messages import (
    encode_error,
    encode_record,
    find_report_kind,
    read_message,
    write_message,
)
from toolyard.concurrency.tasks import cancel_tasks
from toolyard.errors import ToolyardError
from toolyard.protocol.codec import encode

__all__ = ["serve_operation"]

log = logging.getLogger("toolyard.background")

_HEARTBEAT_SECONDS = 5.0


async def serve_operation(
    shared_core: SharedCore, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Carry out the operation that the command requests. It is cancelled if the command disconnects."""
    client = _CommandConnection(reader, writer)
    message = await read_message(reader)
    working = asyncio.create_task(_run_and_encode(shared_core, message, client))
    others = [asyncio.create_task(client.read_approvals()), asyncio.create_task(client.send_heartbeats())]
    try:
        # If one of the others ends first, the command has disconnected, and its operation ends with it.
        await asyncio.wait([working, *others], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await client.send(working.result())
    finally:
        await cancel_tasks([working, *others])


class _CommandConnection:
    """The command at the other end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._approvals: asyncio.Queue[bool] = asyncio.Queue()

    async def send(self, message: Mapping[str, Any]) -> None:
        write_message(self._writer, await asyncio.to_thread(encode, message))
        await self._writer.drain()

    def send_soon(self, message: Mapping[str, Any]) -> None:
        write_message(self._writer, encode(message))

    async def read_approvals(self) -> None:
        """Pass on the answers to approval questions until the command disconnects."""
        try:
            while True:
                self._approvals.put_nowait((await read_message(self._reader)).get("approved") is True)
        except (asyncio.IncompleteReadError, OSError, ValueError):
            pass

    async def send_heartbeats(self) -> None:
        while not self._writer.transport.is_closing():
            await asyncio.sleep(_HEARTBEAT_SECONDS)
            write_message(self._writer)

    async def approve(self, arguments: Mapping[str, Any]) -> bool:
        await self.send({"arguments": arguments})
        return await self._approvals.get()


async def _run_and_encode(
    shared_core: SharedCore, message: dict[str, Any], client: _CommandConnection
) -> Mapping[str, Any]:
    try:
        async with shared_core.make_yard() as yard:
            report = await _run_operation(LocalBackend(yard, shared_core.data_dir), message, client)
            return {"report": encode_record(report), "kind": find_report_kind(report)}
    except ToolyardError as error:
        return {"error": encode_error(error)}
    except Exception as error:
        # The boundary of the process: the command learns of the failure, and other clients do not.
        log.exception("a command failed")
        text = f"the background process failed: {type(error).__name__}: {error}"
        return {"error": encode_error(ToolyardError(text, hint="see background.log in the data directory"))}


async def _run_operation(backend: LocalBackend, message: dict[str, Any], client: _CommandConnection) -> Any:
    request: Any = message["request"]

    def send_early(early: Any) -> None:
        client.send_soon({"early": encode_record(early), "kind": find_report_kind(early)})

    on_early = send_early if message["takes_early"] else None
    match message["operation"]:
        case "list_tools":
            return await backend.list_tools(ToolsRequest(**request), on_early)
        case "list_servers":
            return await backend.list_servers(ServersRequest(**request), on_early)
        case "search":
            return await backend.search(SearchRequest(**request))
        case "restart":
            return await backend.restart(request)
        case _:
            approve = client.approve if message["approves"] else None
            return await backend.call(
                CommandCall(**request), lambda params: client.send_soon({"progress": params}), approve
            )
