"""The floor: bare round trips on asyncio, with bytes made by hand and no answer understood."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import Any
from urllib.parse import urlsplit

from peers.driver import Target, drive

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "floor", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def message(method: str, **params: Any) -> bytes:
    """A modern request; the identifier is always the same, since nothing reads it."""
    params["_meta"] = META
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


class HttpTrip(asyncio.Protocol):
    """One keep-alive connection with one request in flight."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.parts: list[bytes] = []
        self.missing: int | None = 0
        """How many bytes the answer still lacks; None for a stream, which says itself when it ends."""

    def data_received(self, data: bytes) -> None:
        if not self.parts:
            end = data.index(b"\r\n\r\n") + 4
            start = data.find(b"Content-Length: ", 0, end) + 16
            self.missing = int(data[start : data.index(b"\r\n", start)]) if start > 15 else None
            data = data[end:]
        self.parts.append(data)
        if self.missing is None:
            if data.endswith(b"\r\n0\r\n\r\n"):
                body = b"".join(self.parts)
                self.answer.set_result(body[body.index(b"data: ") + 6 : body.rindex(b"\n\n")])
            return
        self.missing -= len(data)
        if self.missing == 0:
            self.answer.set_result(b"".join(self.parts))

    async def trip(self, request: bytes) -> bytes:
        self.parts = []
        self.answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self.answer


class HttpFloor:
    """A pool of connections to one server."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.host, self.port, self.path = parts.hostname, parts.port, parts.path
        self.idle: list[HttpTrip] = []

    async def open(self) -> None:
        self.idle.append(await self._connect())

    def request(self, method: str, body: bytes, name: str) -> bytes:
        head = (
            f"POST {self.path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
            "MCP-Protocol-Version: 2026-07-28\r\n"
            f"Mcp-Method: {method}\r\nMcp-Name: {name}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def trip(self, request: bytes) -> bytes:
        connection = self.idle.pop() if self.idle else await self._connect()
        answer = await connection.trip(request)
        self.idle.append(connection)
        return answer

    async def close(self) -> None:
        for connection in self.idle:
            connection.transport.close()

    async def _connect(self) -> HttpTrip:
        return (await asyncio.get_running_loop().create_connection(HttpTrip, self.host, self.port))[1]


class StdioFloor(asyncio.SubprocessProtocol):
    """One child process; its answers come in the order of the questions."""

    def __init__(self, command: str, args: list[str]) -> None:
        self.words = [command, *args]
        self.waiting: deque[asyncio.Future[bytes]] = deque()
        self.parts: list[bytes] = []
        self.ended = asyncio.get_running_loop().create_future()

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self.transport, _ = await loop.subprocess_exec(
            lambda: self, *self.words, stderr=None, start_new_session=True
        )
        self.stdin: Any = self.transport.get_pipe_transport(0)

    def request(self, method: str, body: bytes, name: str) -> bytes:
        return body + b"\n"

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        *ends, rest = data.split(b"\n")
        for end in ends:
            self.parts.append(end)
            self.waiting.popleft().set_result(b"".join(self.parts))
            self.parts = []
        if rest:
            self.parts.append(rest)

    def process_exited(self) -> None:
        self.ended.set_result(None)

    async def trip(self, request: bytes) -> bytes:
        answer = asyncio.get_running_loop().create_future()
        self.waiting.append(answer)
        self.stdin.write(request)
        return await answer

    async def close(self) -> None:
        self.stdin.close()
        await self.ended
        self.transport.close()


class Floor:
    """A bare round trip where the others make a call."""

    async def open(self, targets: list[Target]) -> None:
        self.made: dict[str, bytes] = {}
        self.servers = [
            HttpFloor(target["url"]) if "url" in target else StdioFloor(target["command"], target["args"])
            for target in targets
        ]
        await asyncio.gather(*(server.open() for server in self.servers))

    async def list(self, index: int) -> int:
        server = self.servers[index]
        answer = await server.trip(server.request("tools/list", message("tools/list"), ""))
        return answer.count(b'"inputSchema"')

    async def call(self, tool: str, arguments: dict[str, Any]) -> bytes:
        key = f"{tool}{arguments}"
        if key not in self.made:
            body = message("tools/call", name=tool, arguments=arguments)
            self.made[key] = self.servers[0].request("tools/call", body, tool)
        return await self.servers[0].trip(self.made[key])

    def text(self, answer: bytes) -> str:
        return json.loads(answer)["result"]["content"][0]["text"]

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self.servers))


if __name__ == "__main__":
    drive(Floor)
