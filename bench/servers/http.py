"""The benchmark's server over Streamable HTTP: one asyncio protocol, no framework, any number of ports.

python -m servers.http [--ports N] [--tools N] [--era both|modern|legacy] [--bigs 10,40] [--sse]

Prints its ports as one line of JSON and ends with its standard input.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import uuid

import orjson

from servers.answers import ERAS, Answers, Parts, modern_version

PHRASES = {200: b"OK", 202: b"Accepted", 400: b"Bad Request", 404: b"Not Found", 405: b"Method Not Allowed"}
HEADER_MISMATCH = -32020
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
    b"X-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\n\r\n"
)
STREAM_END = b"0\r\n\r\n"


class Site:
    """What the connections of one process share: the answers, their shape and the legacy sessions."""

    def __init__(self, answers: Answers, *, sse: bool = False) -> None:
        self.answers = answers
        self.sse = sse
        self.sessions: set[bytes] = set()


class Connection(asyncio.Protocol):
    """One keep-alive connection: requests in, answers out, in order."""

    def __init__(self, services: Site) -> None:
        self.services = services
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        data = self.buffer + data if self.buffer else data
        while (end := data.find(b"\r\n\r\n")) >= 0:
            head = data[:end].lower()
            stop = end + 4 + int(_header(head, b"content-length") or 0)
            if len(data) < stop:
                break
            body, data = data[end + 4 : stop], data[stop:]
            self._request(head, body)
        self.buffer = data

    def _request(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"post "):
            self._post(head, body)
        elif head.startswith(b"get ") and _header(head, b"mcp-session-id") in self.services.sessions:
            self.transport.write(STREAM_HEAD)
        elif head.startswith(b"delete "):
            self.services.sessions.discard(_header(head, b"mcp-session-id"))
            self._send(200)
        else:
            self._send(405)

    def _post(self, head: bytes, body: bytes) -> None:
        message = orjson.loads(body)
        answers = self.services.answers
        modern = answers.era != "legacy" and modern_version(message) is not None
        if modern and (wrong := _mismatch(head, message)):
            error = {"code": HEADER_MISMATCH, "message": f"Header mismatch: {wrong}"}
            reply = orjson.dumps({"jsonrpc": "2.0", "id": message.get("id"), "error": error})
            return self._send(400, (reply,))
        session = b"" if modern else _header(head, b"mcp-session-id")
        if session and session not in self.services.sessions:
            return self._send(404)
        if modern and message["method"] == "subscriptions/listen":
            self.transport.write(STREAM_HEAD + _event((answers.acknowledged(message),)))
            return None
        status, reply = answers.answer(message)
        if message["method"] == "initialize" and status == 200:
            return self._send(status, reply, b"Mcp-Session-Id: %b\r\n" % self._new_session())
        if self.services.sse and status == 200 and reply:
            self.transport.writelines((STREAM_HEAD, _event(reply), STREAM_END))
            return None
        return self._send(status, reply)

    def _new_session(self) -> bytes:
        session = uuid.uuid4().hex.encode()
        self.services.sessions.add(session)
        return session

    def _send(self, status: int, body: Parts = (), headers: bytes = b"") -> None:
        kind = b"Content-Type: application/json\r\n" if body else b""
        head = b"HTTP/1.1 %d %b\r\n%b%bContent-Length: %d\r\n\r\n"
        length = sum(map(len, body))
        self.transport.writelines((head % (status, PHRASES[status], kind, headers, length), *body))


def _header(head: bytes, name: bytes) -> bytes:
    """The value of a header in a lower-case head; empty if it is not there."""
    start = head.find(b"\r\n" + name + b":")
    if start < 0:
        return b""
    start += len(name) + 3
    end = head.find(b"\r\n", start)
    return head[start : end if end >= 0 else len(head)].strip()


def _mismatch(head: bytes, message: dict) -> str | None:
    """The header of a modern request that says otherwise than its body. Case is not looked at."""
    expected = {b"mcp-method": message["method"], b"mcp-protocol-version": modern_version(message) or ""}
    if message["method"] == "tools/call":
        expected[b"mcp-name"] = message["params"]["name"]
    for name, value in expected.items():
        if _header(head, name) != value.lower().encode():
            return name.decode()
    return None


def _event(message: Parts) -> bytes:
    event = b"event: message\ndata: %b\n\n" % b"".join(message)
    return b"%x\r\n%b\r\n" % (len(event), event)


async def serve(services: Site, ports: int) -> None:
    """Listens on as many free ports of the loopback and serves until the standard input ends."""
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(lambda: Connection(services), "127.0.0.1", 0) for _ in range(ports)]
    print(orjson.dumps([server.sockets[0].getsockname()[1] for server in servers]).decode(), flush=True)
    ended = asyncio.Event()
    loop.add_reader(sys.stdin, lambda: sys.stdin.buffer.raw.read(4096) or ended.set())  # type: ignore[attr-defined]
    await ended.wait()


def main() -> None:
    """Runs on uvloop where it is installed."""
    parser = argparse.ArgumentParser(description="the benchmark's MCP server over HTTP")
    parser.add_argument("--ports", type=int, default=1)
    parser.add_argument("--tools", type=int, default=0)
    parser.add_argument("--era", choices=ERAS, default="both")
    parser.add_argument("--bigs", default="", help="megabytes to have ready, with commas")
    parser.add_argument("--sse", action="store_true")
    options = parser.parse_args()
    try:
        from uvloop import run  # the server alone may use it: no client is measured in this process
    except ImportError:
        run = asyncio.run
    bigs = map(int, filter(None, options.bigs.split(",")))
    run(serve(Site(Answers(options.tools, options.era, bigs), sse=options.sse), options.ports))


if __name__ == "__main__":
    main()
