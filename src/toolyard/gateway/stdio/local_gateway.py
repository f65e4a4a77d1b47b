"""The gateway of one local client, over standard streams: one message per line, and no other output."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, Protocol

from toolyard.agents.definitions.agents_md import find_agent
from toolyard.catalog.lock.storage import RegistryPinStorage
from toolyard.clients.process_pool import ProcessPool
from toolyard.config.settings.table import Settings
from toolyard.core.agents import unknown_agent_error
from toolyard.core.call_approvals import CallApprovals, MemoryApprovalStore
from toolyard.core.composition import SharedQuestionHandler, build_core, make_shared_callbacks
from toolyard.core.local_client_marker import record_local_client
from toolyard.errors import Unreachable
from toolyard.gateway.caller_view import gateway_caller, limit_scope_to_server
from toolyard.gateway.endpoint import Endpoint, make_endpoint
from toolyard.gateway.gateway import Gateway
from toolyard.gateway.incoming_request import SoleClient
from toolyard.gateway.stdio.session import StdioSession
from toolyard.meta_tools import ToolMode
from toolyard.protocol.codec import encode
from toolyard.protocol.framing import LineFramer, OversizeLine
from toolyard.protocol.incremental_decoder import decode_message
from toolyard.protocol.jsonrpc import Message
from toolyard.types.agent import Agent
from toolyard.types.call import Caller
from toolyard.types.server import Configuration

__all__ = [
    "DRAIN_TIMEOUT_SECONDS",
    "MAX_MESSAGE_BYTES",
    "LocalGateway",
    "MessageReceiver",
    "is_sendable",
    "read_messages",
    "resolve_caller",
    "serve_local",
    "serve_streams",
]


_READ_CHUNK_BYTES = 256 * 1024
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Maximum size of one message."""
_MAX_UNSENT_BYTES = 2 * 1024 * 1024
"""Size of unsent output beyond which everything but responses is dropped: the client does not read."""
DRAIN_TIMEOUT_SECONDS = 5.0
"""Time for the remaining responses after the input has ended, as with a pipe."""
_POLL_HANG_UP_FLAG = getattr(select, "POLLRDHUP", 0)
"""Poll flag for a socket whose other end no longer writes. For a pipe, or a socket without a peer, it is
reported without being requested."""


async def serve_streams(endpoint: Endpoint, source: BinaryIO, sink: BinaryIO) -> None:
    """Serve messages from ``source`` until it ends or ``sink`` is closed."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_READ_CHUNK_BYTES)
    incoming, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
    outgoing, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sink)
    # With a limit of 0 ``drain`` waits until all output is written, which the loop of ``read_messages``
    # relies on.
    outgoing.set_write_buffer_limits(high=0)
    writer = asyncio.StreamWriter(outgoing, protocol, None, loop)

    def send_to_client(message: Message) -> None:
        if is_sendable(message, outgoing):
            writer.write(encode(message) + b"\n")

    channel = StdioSession(endpoint, send_to_client)
    try:
        await read_messages(channel, reader, writer, lambda: incoming.is_closing() or _is_hung_up(source))
        await channel.finish(DRAIN_TIMEOUT_SECONDS)
        async with asyncio.timeout(DRAIN_TIMEOUT_SECONDS):
            await writer.drain()
    except (BrokenPipeError, ConnectionResetError, TimeoutError):
        pass
    finally:
        await channel.close()
        incoming.close()
        outgoing.close()


class MessageReceiver(Protocol):
    """Receives the lines of a client in their order."""

    def receive(self, message: object) -> None: ...

    def reject_unreadable(self) -> None: ...

    def skip_blank(self) -> None: ...


def is_sendable(message: Message, outgoing: asyncio.WriteTransport) -> bool:
    """Return whether to send a message: everything but responses is dropped if the client does not read."""
    is_response = "method" not in message
    return not outgoing.is_closing() and (
        is_response or outgoing.get_write_buffer_size() <= _MAX_UNSENT_BYTES
    )


async def read_messages(
    channel: MessageReceiver,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    ended: Callable[[], bool],
) -> None:
    """Pass each line to ``channel`` until the input ends. Raises OSError, or TimeoutError for the output."""
    framer = LineFramer(MAX_MESSAGE_BYTES)
    while chunk := await reader.read(_READ_CHUNK_BYTES):
        for line in framer.feed(chunk):
            if isinstance(line, OversizeLine):
                channel.reject_unreadable()
                continue
            if not bytes(line[:1000]).strip():
                channel.skip_blank()
                continue
            try:
                message = await decode_message(line)
            except ValueError:
                channel.reject_unreadable()
                continue
            channel.receive(message)
        # Backpressure: a client that does not read its messages is not read from either.
        await _drain_writer(writer, ended)


async def _drain_writer(writer: asyncio.StreamWriter, ended: Callable[[], bool]) -> None:
    """Wait until all output is written.

    Raises TimeoutError if the input has ended as well, since then nobody may be reading. A client that still
    sends requests may take its time.
    """
    while True:
        try:
            async with asyncio.timeout(DRAIN_TIMEOUT_SECONDS):
                return await writer.drain()
        except TimeoutError:
            if ended():
                raise


def _is_hung_up(source: BinaryIO) -> bool:
    """Return whether the input has ended, even if buffered input is left."""
    poll = select.poll()
    poll.register(source, _POLL_HANG_UP_FLAG)
    return bool(poll.poll(0))


def resolve_caller(
    configuration: Configuration,
    agents: Mapping[str, Agent],
    *,
    agent: str | None = None,
    bundle: str | None = None,
    server: str | None = None,
) -> Caller:
    """Return the caller that the options describe. Raises AgentsError, ConfigError or Unreachable for unknown
    names."""
    if server is not None and server not in configuration.servers:
        there = ", ".join(configuration.servers) or "none"
        raise Unreachable("not configured", server=server, hint=f"configured servers: {there}")
    found = None if agent is None else find_agent(agents, agent)
    if agent is not None and found is None:
        raise unknown_agent_error(agent, agents.values())
    bundles = () if bundle is None else (bundle,)
    scope = None if server is None else limit_scope_to_server(None, configuration.servers[server])
    return gateway_caller(configuration.bundles, agent=found, bundles=bundles, scope=scope)


class LocalGateway:
    """Core and gateway for local clients of one configuration."""

    def __init__(
        self,
        configuration: Configuration,
        settings: Settings,
        data_dir: Path,
        processes: ProcessPool | None = None,
        *,
        sole_client: SoleClient | None = None,
        approvals: CallApprovals | None = None,
        page: SharedQuestionHandler | None = None,
        registry_pins: RegistryPinStorage | None = None,
    ) -> None:
        """Servers are told what the ``sole_client`` can do. Without one several clients share them, and
        questions that cannot be attributed to one go to the ``page``, if there is one."""
        approvals = approvals or CallApprovals(MemoryApprovalStore())
        self.core = core = build_core(
            configuration,
            settings,
            data_dir=data_dir,
            callbacks_for=make_shared_callbacks(page) if sole_client is None else sole_client.callbacks_for,
            approve=approvals,
            processes=processes,
            registry_pins=registry_pins,
        )
        self.gateway = Gateway(
            core.manager,
            core.tool_directory,
            core.call_path,
            core.meta_tools,
            core.name_assigner,
            core.locks,
            approvals=approvals,
            sole_client=sole_client,
        )

    async def apply_configuration(self, configuration: Configuration) -> None:
        """Use a changed configuration from now on, and notify the clients that it concerns."""
        changed_ids = await self.core.updates.update_configuration(configuration)
        self.gateway.on_servers_changed(None, changed_ids)

    async def close(self) -> None:
        """Close every connection and end every child process."""
        await self.gateway.close()
        await self.core.close()


async def serve_local(
    configuration: Configuration,
    settings: Settings,
    data_dir: Path,
    caller: Caller,
    server: str | None,
    mode: ToolMode | None,
    source: BinaryIO,
    sink: BinaryIO,
) -> None:
    """Serve until the client disconnects; then close every connection and end every child process."""
    local = LocalGateway(configuration, settings, data_dir, sole_client=SoleClient())
    record_local_client(data_dir)
    try:
        await local.core.tool_directory.load_stored(caller.principal)
        await serve_streams(make_endpoint(local.gateway, caller, server, mode), source, sink)
    finally:
        await local.close()
