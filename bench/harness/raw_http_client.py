"""What stands at an address, and how a bare client asks it: bytes, and nothing that costs the client time."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import psutil

__all__ = ["INITIALIZED_NOTIFICATION", "LIMIT", "Line", "Peer"]

LIMIT = 64 * 1024 * 1024
"""More bytes than any answer has."""

MODERN, LEGACY = "2026-07-28", "2025-11-25"
ABOUT = {"name": "bench", "version": "1"}
INITIALIZED_NOTIFICATION = {"jsonrpc": "2.0", "method": "notifications/initialized", "params": {}}
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": ABOUT,
}


@dataclass(frozen=True)
class Peer:
    """Something that answers. ``names`` are the tools that it has for ``echo``."""

    name: str
    port: int
    names: list[str]
    process: psutil.Process
    token: str | None = None
    legacy: bool = False
    """It wants to be asked in a session of the legacy era."""
    sessions: int = 0
    """How many sessions to hold open when its memory is measured."""
    protocol: bool = True
    """It speaks all of the protocol, so that a client of the SDK can come."""
    stream: str | None = None
    """The path of a stream that brings all answers: HTTP with SSE, as of 2024-11-05."""

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    def message(
        self, method: str, params: dict[str, Any], legacy: bool = False, number: int = 1
    ) -> dict[str, Any]:
        request_params = params if self.legacy or legacy else {**params, "_meta": META}
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": request_params}

    def hello(self, number: int = 1) -> dict[str, Any]:
        """What begins a session of the legacy era."""
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": ABOUT}
        return self.message("initialize", params, legacy=True, number=number)

    def headers(self, message: dict[str, Any], session: str | None = None) -> dict[str, str]:
        head = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self.token is not None:
            head["Authorization"] = f"Bearer {self.token}"
        if session is not None and self.stream is None:
            head |= {"Mcp-Session-Id": session, "MCP-Protocol-Version": LEGACY}
        elif "_meta" in message["params"]:
            head |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": message["method"]}
            if "name" in message["params"]:
                head["Mcp-Name"] = message["params"]["name"]
        return head

    def request(self, message: dict[str, Any], session: str | None = None) -> bytes:
        """The bytes of a POST. Where answers come on a stream, a session is the path that it named."""
        path = session if self.stream is not None and session is not None else "/mcp"
        return self._bytes("POST", self.headers(message, session), json.dumps(message).encode(), path)

    def listening(self) -> bytes:
        """The bytes that open its stream."""
        return self._bytes("GET", {"Accept": "text/event-stream"}, b"", self.stream or "/mcp")

    def goodbye(self, session: str) -> bytes:
        """The bytes that end a session."""
        return self._bytes("DELETE", self.headers({"params": {}}, session), b"")

    def _bytes(self, verb: str, headers: dict[str, str], body: bytes, path: str = "/mcp") -> bytes:
        head = {"Host": f"127.0.0.1:{self.port}", **headers, "Content-Length": str(len(body))}
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        return f"{verb} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body

    def calls(self, number: int = 1) -> list[dict[str, Any]]:
        """A call of each of its tools, by the client of this number."""
        echo_arguments = {"text": f"hello {number}"}
        return [
            self.message("tools/call", {"name": name, "arguments": echo_arguments}, number=number)
            for name in self.names
        ]

    def cpu(self) -> float:
        cpu_time = self.process.cpu_times()
        return cpu_time.user + cpu_time.system

    def memory(self) -> int:
        return self.process.memory_full_info().uss


class Line:
    """One connection of a bare client. ``number`` is the id of all that it asks."""

    def __init__(self, peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.peer, self.reader, self.writer = peer, reader, writer
        self.session: str | None = None
        self.number = 1

    @classmethod
    async def open(cls, peer: Peer, session: str | None = None, number: int = 1) -> Line:
        """A connection, in this session or in a new one where the peer wants one."""
        line = cls(peer, *await asyncio.open_connection("127.0.0.1", peer.port, limit=LIMIT))
        line.session, line.number = session, number
        if peer.legacy and session is None:
            await line.begin()
        return line

    async def begin(self) -> None:
        """Begins a session of the legacy era."""
        head, _ = await self.post(self.peer.request(self.peer.hello(self.number)))
        self.session = _header(head, "mcp-session-id")
        await self.post(self.peer.request(INITIALIZED_NOTIFICATION, self.session))

    def calls(self) -> list[bytes]:
        """The bytes of a call of each tool, in this session."""
        return [self.peer.request(call, self.session) for call in self.peer.calls(self.number)]

    async def ask(self, request: bytes) -> bytes:
        """The body of the answer. Raises RuntimeError where it says that something failed."""
        return (await self.post(request))[1]

    async def post(self, request: bytes) -> tuple[bytes, bytes]:
        """Head and body of what a request is answered on its own connection; raises as ``ask`` does."""
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        lower = head.lower()
        if b"transfer-encoding: chunked" in lower:
            body = b""
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                body += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readexactly(2)
        elif (at := lower.find(b"content-length:")) >= 0:
            body = await self.reader.readexactly(int(lower[at + 15 : lower.index(b"\r\n", at)]))
        else:
            body = b""
        if not lower.startswith(b"http/1.1 20") or b'"error"' in body[:200]:
            raise RuntimeError(f"{head.decode()[:200]} {body.decode()[:300]}")
        return head, body

    async def end(self) -> None:
        """Ends its session, if it has one, and closes it."""
        if self.session is not None:
            await self.ask(self.peer.goodbye(self.session))
        self.close()

    def close(self) -> None:
        self.writer.close()


def _header(head: bytes, name: str) -> str | None:
    for line in head.decode("latin-1").split("\r\n"):
        key, _, value = line.partition(":")
        if key.lower() == name:
            return value.strip()
    return None
