"""One attached client: receives its lines unchanged, and sends frames that say which lines are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from toolyard.background.attach_protocol import FrameKind, write_frame, write_line_count
from toolyard.gateway.endpoint import Endpoint
from toolyard.gateway.incoming_request import is_request_id
from toolyard.gateway.stdio.line_reader import LineReader
from toolyard.gateway.stdio.local_gateway import DRAIN_TIMEOUT_SECONDS, is_sendable
from toolyard.gateway.stdio.session import StdioSession
from toolyard.protocol.codec import encode
from toolyard.protocol.jsonrpc import Message, RequestId
from toolyard.types.json_values import object_or_empty

__all__ = ["AttachedClientHandler"]


class AttachedClientHandler:
    """Serves a client until it disconnects or is moved to another process."""

    def __init__(
        self,
        endpoint: Endpoint,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        replay: int,
        line_count_file: int | None,
    ) -> None:
        """``replay`` is the number of first lines whose answers the client has got before.

        ``line_count_file`` is the descriptor of the count of handled lines, which the shim reads.

        From now on, lines are handled as they arrive: the client must not have sent any yet.
        """
        self._endpoint = endpoint
        self._transport = cast("asyncio.Transport", writer.transport)
        self._replay = replay
        self._session = StdioSession(endpoint, self._send, self._on_request_end)
        self._line_count = 0
        self._line_count_file = line_count_file
        self._line_of_request: dict[RequestId, int] = {}
        self._listen_ids: set[RequestId] = set()
        self._open_requests: dict[int, int] = {}
        """Number of unanswered requests of each line that has more than one."""
        self._waiting_lines: asyncio.Queue[object] | None = asyncio.Queue() if replay else None
        """Lines received while the first ones are replayed one by one; None afterwards."""
        self._replayed_line_answered = asyncio.Event()
        self._move_payload: bytes | None = None
        self._is_moved = False
        self._lines = LineReader(self, self._transport)
        if reader.at_eof():
            self._lines.stop()

    @property
    def is_busy(self) -> bool:
        """True while a request of the client runs."""
        return self._session.is_busy

    async def serve(self) -> None:
        """Serve the client. Its connection is closed at the end."""
        lines = self._lines
        replaying = asyncio.create_task(self._replay_lines()) if self._replay else None
        try:
            if await lines.wait_for_end():
                if replaying is not None:
                    # Lines that came after those to replay have not been handled yet.
                    await asyncio.wait([replaying], timeout=DRAIN_TIMEOUT_SECONDS)
                await self._session.finish(DRAIN_TIMEOUT_SECONDS)
            async with asyncio.timeout(DRAIN_TIMEOUT_SECONDS):
                await lines.drain()
        except TimeoutError:
            pass
        finally:
            lines.stop()
            if replaying is not None:
                replaying.cancel()
            await self._session.close()
            self._transport.close()

    def request_move(self, when: str) -> None:
        """Close the connection as soon as no request runs, so that the client attaches to another process.

        It does so now, or ``later`` when it sends something.
        """
        self._move_payload = when.encode()
        if not self.is_busy:
            self.move()

    def move(self) -> None:
        """Close the connection now. The shim answers requests that still run."""
        if not self._is_moved:
            self._is_moved = True
            self._write(FrameKind.MOVE, self._line_count, self._move_payload or b"now")
            self._lines.stop()

    # Lines, from the reader.

    def receive(self, message: object) -> None:
        if self._waiting_lines is not None:
            self._waiting_lines.put_nowait(message)
        elif not self._is_moved:
            self._handle_line(message)

    def reject_unreadable(self) -> None:
        self.receive(_UNREADABLE)

    def skip_blank(self) -> None:
        self.receive(())

    async def _replay_lines(self) -> None:
        waiting = cast("asyncio.Queue[object]", self._waiting_lines)
        for line in range(1, self._replay + 1):
            self._replayed_line_answered.clear()
            self._handle_line(await waiting.get())
            # The event is set at the end of any line, so the line itself is checked.
            while line in self._line_of_request.values():
                await self._replayed_line_answered.wait()
                self._replayed_line_answered.clear()
        while not waiting.empty():
            self._handle_line(waiting.get_nowait())
        self._waiting_lines = None
        # The lists may differ from those that the client got from the process before.
        self._session.notify_lists_changed()

    def _handle_line(self, message: object) -> None:
        self._line_count = line = self._line_count + 1
        # Counted before it is handled: if this process is killed, the shim must take each line that may have
        # been carried out for one that was.
        if self._line_count_file is not None:
            write_line_count(self._line_count_file, line)
        if message is _UNREADABLE:
            self._session.reject_unreadable()
            self._write(FrameKind.MESSAGE, line)
            return
        messages = cast("list[object]", message) if isinstance(message, list) else (message,)
        open_requests = 0
        for each in messages:
            body = object_or_empty(each)
            method, id = body.get("method"), body.get("id")
            if isinstance(method, str):
                # Before the message is handled: the frame must arrive before the answer, with which the shim
                # forgets the line.
                self._mark_for_replay(line, method, body)
                if is_request_id(id) and id not in self._line_of_request:
                    self._line_of_request[id] = line
                    open_requests += 1
        if open_requests > 1:
            self._open_requests[line] = open_requests
        if message != ():
            self._session.receive(cast("object", message))
        if not open_requests:
            self._write(FrameKind.MESSAGE, line)

    def _mark_for_replay(self, line: int, method: str, body: Mapping[str, Any]) -> None:
        """Let the shim keep the lines that the state of this client is made of."""
        if method in ("initialize", "notifications/initialized", "logging/setLevel"):
            self._write(FrameKind.KEEP, line, method.encode())
        elif method in ("resources/subscribe", "resources/unsubscribe"):
            key = f"resource {object_or_empty(body.get('params')).get('uri')}".encode(errors="replace")
            if method == "resources/subscribe":
                self._write(FrameKind.KEEP, line, key)
            else:
                self._write(FrameKind.FORGET, 0, key)
        elif method == "subscriptions/listen" and is_request_id(body.get("id")):
            self._listen_ids.add(body["id"])
            self._write(FrameKind.KEEP, line, f"listen {body.get('id')!r}".encode(errors="replace"))

    # Answers.

    def _send(self, message: Message) -> None:
        if not is_sendable(message, self._transport):
            return
        line = 0
        if "method" not in message:
            id = message.get("id")
            line = self._line_of_request.pop(id, 0) if is_request_id(id) else 0
            # The client has got this answer from the process before.
            if 0 < line <= self._replay:
                self._finish_request(line)
                return
            line = self._count_answer(line)
        self._write(FrameKind.MESSAGE, line, encode(message) + b"\n")

    def _on_request_end(self, id: RequestId) -> None:
        """Report a request that ended without an answer: it was cancelled."""
        if self._is_moved:
            return  # It runs on in another process, or the shim answers it.
        line = self._line_of_request.pop(id, 0)
        if line:
            self._finish_request(line)
        if id in self._listen_ids:
            self._listen_ids.discard(id)
            self._write(FrameKind.FORGET, 0, f"listen {id!r}".encode(errors="replace"))
        if self._move_payload is not None and not self.is_busy:
            self.move()

    def _finish_request(self, line: int) -> None:
        if self._count_answer(line):
            self._write(FrameKind.MESSAGE, line)
        self._replayed_line_answered.set()

    def _count_answer(self, line: int) -> int:
        """Return the line if all its requests are answered now, else 0."""
        remaining = self._open_requests.get(line, 1) - 1
        if remaining:
            self._open_requests[line] = remaining
            return 0
        self._open_requests.pop(line, None)
        return line

    def _write(self, kind: int, line: int, payload: bytes = b"") -> None:
        # uvloop warns about writes to a lost connection, and never raises.
        if not self._transport.is_closing():
            self._transport.write(write_frame(kind, line, payload))


_UNREADABLE = object()
