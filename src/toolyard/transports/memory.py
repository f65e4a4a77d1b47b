"""Transport to a server in the same process, for tests and embedding."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from toolyard.concurrency.tasks import BackgroundTasks
from toolyard.errors import Unreachable
from toolyard.protocol.codec import decode, encode
from toolyard.protocol.jsonrpc import Message
from toolyard.transports.transport import Receiver, TransportInfo

__all__ = ["MemoryServer", "MemoryTransport"]

MemoryServer = Callable[[Message, Callable[[Message], None]], Awaitable[None]]
"""Handles one message; the second argument is a function that sends a message back."""


class MemoryTransport:
    """Passes each message to a coroutine function. Both sides get copies, as over a network."""

    cancels_on_disconnect = False
    mirrors_headers = False

    def __init__(self, server: MemoryServer) -> None:
        self._server = server
        self._receiver: Receiver | None = None
        self._tasks = BackgroundTasks()

    async def open(self, receiver: Receiver) -> None:
        self._receiver = receiver

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        if self._receiver is None:
            raise Unreachable("the connection is closed")
        self._tasks.spawn(self._serve_message(decode(encode(message))))

    async def _serve_message(self, message: Message) -> None:
        await self._server(message, self._deliver_reply)

    def _deliver_reply(self, message: Message) -> None:
        if self._receiver is not None:
            self._receiver.on_message(decode(encode(message)))

    def set_protocol_version(self, version: str) -> None:
        pass

    def start_listening(self) -> None:
        pass

    def get_info(self) -> TransportInfo:
        return TransportInfo()

    async def close(self) -> None:
        self._receiver = None
        await self._tasks.close()
