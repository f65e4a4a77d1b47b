"""One request and its response on a connection, written to the socket at once where its length is known."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, MutableSet
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

__all__ = ["ResponseCycle"]

_MAX_JOINED_BYTES = 64 * 1024
"""Maximum length of a body that is copied behind its head. To copy a longer one costs more than a write."""
_FRAMING_HEADERS = (b"content-length", b"transfer-encoding", b"connection")
_NAME_BYTES = bytes(set(range(0x21, 0x100)) - {0x7F, *b'()<>@,;:\\[]={}"'})
"""Bytes that uvicorn allows in the name of a header."""
_VALUE_BYTES = bytes({0x09, *range(0x20, 0x100)} - {0x7F})
"""Bytes that uvicorn allows in the value of a header."""


class ResponseCycle(RequestResponseCycle):
    """Uvicorn's cycle of a request and its response, with fewer system calls for short responses.

    The head of a response with a Content-Length waits for the body, as ASGI requires: each write costs more
    than to build the head, and may wake up the client before there is anything for it to do. All other
    responses, such as event streams, are left to uvicorn, which writes their head at once.
    """

    _held_head = b""
    _task: asyncio.Task[None] | None = None

    def start(self, app: Any, loop: asyncio.AbstractEventLoop, tasks: MutableSet[asyncio.Task[None]]) -> None:
        """Run the application in a task, which is in ``tasks`` until it ends."""
        self._task = loop.create_task(self._run(app, tasks))
        tasks.add(self._task)

    async def _run(self, app: Any, tasks: MutableSet[asyncio.Task[None]]) -> None:
        try:
            await self.run_asgi(app)
        finally:
            # Here and not in a callback of the task, which would take another iteration of the loop.
            if self._task is not None:
                tasks.discard(self._task)
                self._task = None

    async def send(self, message: Any) -> None:
        """Send a message of the application."""
        if self.response_complete or self.disconnected or self.flow.write_paused:
            await self._send_held_and(message)
        elif not self.response_started and message["type"] == "http.response.start":
            head = self._build_head(message["status"], message.get("headers", ()))
            if head is None:
                await super().send(message)
            else:
                self.response_started, self.waiting_for_100_continue = True, False
                self._held_head = head
        elif self._held_head and message["type"] == "http.response.body":
            body, is_last = message.get("body", b""), not message.get("more_body", False)
            if is_last and len(body) == self.expected_content_length <= _MAX_JOINED_BYTES:
                self._complete(self._held_head + body)
            else:
                await self._send_held_and(message)
        else:
            await super().send(message)

    async def _send_held_and(self, message: Any) -> None:
        if self._held_head and not self.disconnected:
            head, self._held_head = self._held_head, b""
            self.transport.write(head)
        await super().send(message)

    def _build_head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
        """Return the head of a response with a known length, or None for any other."""
        if self.access_log or self.scope["method"] == "HEAD":
            return None
        parts, names, values, length = [STATUS_LINE[status]], b"", b"", b""
        for name, value in (*self.default_headers, *headers):
            name = name.lower()
            if name in _FRAMING_HEADERS:
                if length or name != b"content-length":
                    return None
                length = value
            names += name
            values += value
            parts += (name, b": ", value, b"\r\n")
        if not length or names.translate(None, _NAME_BYTES) or values.translate(None, _VALUE_BYTES):
            return None
        self.expected_content_length, self.chunked_encoding = int(length), False
        parts.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        return b"".join(parts)

    def _complete(self, response: bytes) -> None:
        self._held_head = b""
        self.transport.write(response)
        self.expected_content_length, self.response_complete = 0, True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
