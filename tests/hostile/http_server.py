"""An HTTP server that misbehaves in one way, chosen by the address; in all else it is a proper server.

``http_server.py PORT``, then ``http://127.0.0.1:PORT/MODE/KEY?era=legacy&when=always``. KEY is any word of
the caller's: what came in under it is told by ``/journal/KEY``. ``era`` is modern (default), legacy or
sse; ``when`` is call (default: everything but tools/call is answered properly), always, list or begin.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import itertools
import json
import socket
import struct
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

MODERN, LEGACY = "2026-07-28", "2025-06-18"
NAME_PARAMS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}

Mode = Callable[["Exchange"], Awaitable[None]]
MODES: dict[str, Mode] = {}
JOURNAL: dict[str, list[dict[str, Any]]] = defaultdict(list)
SESSIONS: dict[str, set[str]] = defaultdict(set)
STREAMS: dict[str, Exchange] = {}
NUMBERS = itertools.count(1)


class Hangup(Exception):
    """The connection cannot be used for another request."""


@dataclass
class Exchange:
    """One request, and the ways to answer it, rightly or not."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    connection: int
    verb: str
    target: str
    headers: dict[str, str]
    body: bytes
    options: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        url = urlsplit(self.target)
        _, self.mode, self.key, *_ = (*url.path.split("/"), "", "")
        self.options = {name: values[-1] for name, values in parse_qs(url.query).items()}
        self.message: dict[str, Any] = json.loads(self.body) if self.body else {}
        self.method = self.message.get("method")
        self.id = self.message.get("id")
        self.params = self.message.get("params") or {}

    def note(self, **fields: Any) -> None:
        JOURNAL[self.key].append({"connection": self.connection, **fields})

    def count(self, method: str) -> int:
        return sum(entry.get("message", {}).get("method") == method for entry in JOURNAL[self.key])

    # Rightly.

    async def head(self, status: str = "200 OK", **headers: str) -> None:
        lines = [f"HTTP/1.1 {status}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.raw("\r\n".join([*lines, "", ""]).encode())

    async def reply(self, body: bytes | str, kind: str, status: str = "200 OK", **headers: str) -> None:
        body = body.encode() if isinstance(body, str) else body
        await self.head(status, Content_Type=kind, Content_Length=str(len(body)), **headers)
        await self.raw(body)

    async def json(self, message: Any, status: str = "200 OK", **headers: str) -> None:
        await self.reply(json.dumps(message), "application/json", status, **headers)

    async def stream(self) -> None:
        await self.head(Content_Type="text/event-stream", Transfer_Encoding="chunked")

    async def event(self, message: Any = None, **fields: object) -> None:
        text = "".join(f"{name}: {value}\n" for name, value in fields.items())
        await self.chunk(f"{text}data: {json.dumps(message) if message is not None else ''}\n\n".encode())

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def answer(self, text: str | None = None, id: Any = None) -> dict[str, Any]:
        if text is None:
            arguments = self.params.get("arguments") or {}
            text = str(arguments.get("text", "")) * arguments.get("times", 1)
        result: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
        if self.options.get("era") not in ("legacy", "sse"):
            result["resultType"] = "complete"
        return {"jsonrpc": "2.0", "id": self.id if id is None else id, "result": result}

    def error(self, code: int, words: str) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": self.id, "error": {"code": code, "message": words}}

    # Wrongly.

    async def gone(self) -> None:
        """Wait until the other side hangs up, and write that down."""
        with contextlib.suppress(ConnectionError):
            await self.reader.read(1)
        self.note(hung_up=self.method or self.verb)
        raise Hangup

    def reset(self) -> None:
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()
        raise Hangup


def mode(handler: Mode) -> Mode:
    MODES[handler.__name__.replace("_", "-").strip("-")] = handler
    return handler


# The proper server.


async def proper(x: Exchange) -> None:
    era = x.options.get("era", "modern")
    if era == "sse":
        await proper_sse(x)
    elif x.verb == "GET":
        await x.json(x.error(-32000, "Method not allowed"), "405 Method Not Allowed", Allow="POST")
    elif era == "modern":
        await proper_modern(x)
    else:
        await proper_legacy(x)


async def proper_modern(x: Exchange) -> None:
    expected = {"mcp-protocol-version": MODERN, "mcp-method": x.method}
    if x.method in NAME_PARAMS:
        expected["mcp-name"] = x.params.get(NAME_PARAMS[x.method])
    wrong = [name for name, value in expected.items() if decode_header(x.headers.get(name, "")) != value]
    if x.method == "initialize":
        await x.json(x.error(-32601, "no such method"), "400 Bad Request")
    elif wrong:
        await x.json(x.error(-32020, f"header mismatch: {wrong}"), "400 Bad Request")
    elif x.method == "server/discover":
        offer = {"supportedVersions": [MODERN], "capabilities": {"tools": {}}, "resultType": "complete"}
        await x.json({"jsonrpc": "2.0", "id": x.id, "result": {**offer, "serverInfo": {"name": "hostile"}}})
    else:
        await work(x)


def decode_header(value: str) -> str:
    if value.startswith("=?base64?") and value.endswith("?="):
        return base64.b64decode(value[9:-2]).decode()
    return value


async def proper_legacy(x: Exchange) -> None:
    if x.method == "server/discover":
        await x.json(x.error(-32601, "Method not found"), "400 Bad Request")
    elif x.method == "initialize":
        session = f"session-{next(NUMBERS)}"
        SESSIONS[x.key].add(session)
        offer = {"protocolVersion": LEGACY, "capabilities": {"tools": {}}, "serverInfo": {"name": "hostile"}}
        await x.json({"jsonrpc": "2.0", "id": x.id, "result": offer}, Mcp_Session_Id=session)
    elif x.headers.get("mcp-session-id") not in SESSIONS[x.key]:
        await x.json(x.error(-32001, "Session not found"), "404 Not Found")
    elif x.headers.get("mcp-protocol-version") != LEGACY:
        await x.json(x.error(-32000, "Unsupported protocol version"), "400 Bad Request")
    elif x.verb == "DELETE":
        SESSIONS[x.key].discard(x.headers["mcp-session-id"])
        await x.head("204 No Content")
    elif x.id is None or x.method is None:
        await x.head("202 Accepted", Content_Length="0")
    else:
        await work(x)


async def work(x: Exchange) -> None:
    tool, arguments = x.params.get("name"), x.params.get("arguments") or {}
    if x.method == "tools/list":
        tools = [{"name": "echo", "inputSchema": {"type": "object"}}]
        await x.json({"jsonrpc": "2.0", "id": x.id, "result": {"tools": tools}})
    elif x.method != "tools/call":
        await x.json(x.error(-32601, "no such method"))
    elif tool == "wait":
        await x.gone()
    elif tool == "steps":
        await x.stream()
        for step in range(arguments["count"]):
            await asyncio.sleep(arguments["every"])
            progress = {"progressToken": (x.params.get("_meta") or {}).get("progressToken"), "progress": step}
            await x.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
        await x.event(x.answer("done"))
        await x.raw(b"0\r\n\r\n")
    else:
        await x.json(x.answer())


async def proper_sse(x: Exchange) -> None:
    if x.verb == "GET":
        await x.stream()
        await x.chunk(f"event: endpoint\ndata: {x.target}\n\n".encode())
        STREAMS[x.key] = x
        await x.gone()
    if x.key not in STREAMS:
        await x.reply("no such session", "text/plain", "404 Not Found")
        return
    await x.head("202 Accepted", Content_Length="0")
    if x.method == "initialize":
        offer = {"protocolVersion": LEGACY, "capabilities": {"tools": {}}, "serverInfo": {"name": "hostile"}}
        await STREAMS[x.key].event({"jsonrpc": "2.0", "id": x.id, "result": offer}, event="message")
    elif x.id is not None and x.params.get("name") != "wait":
        await STREAMS[x.key].event(x.answer(), event="message")


@mode
async def good(x: Exchange) -> None:
    await proper(x)


@mode
async def good_tools(x: Exchange) -> None:
    """Lists the slow tool as well."""
    if x.method == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "steps")]
        await x.json({"jsonrpc": "2.0", "id": x.id, "result": {"tools": tools, "resultType": "complete"}})
    else:
        await proper(x)


MODES["resets-in-body"] = good


# Connections that break or stand still.


@mode
async def resets_request(x: Exchange) -> None:
    x.reset()


@mode
async def closes(x: Exchange) -> None:
    raise Hangup


@mode
async def resets_answer(x: Exchange) -> None:
    await x.head(Content_Type="application/json", Content_Length="1000")
    await x.raw(b'{"jsonrpc": "2.0", "id"')
    await asyncio.sleep(0.05)
    x.reset()


@mode
async def closes_in_answer(x: Exchange) -> None:
    await x.head(Content_Type="application/json", Content_Length=x.options.get("length", "1000"))
    await x.raw(b'{"jsonrpc": "2.0", "id"')
    raise Hangup


@mode
async def resets_event(x: Exchange) -> None:
    await x.stream()
    await x.chunk(b'data: {"jsonrpc": "2.0", "id"')
    await asyncio.sleep(0.05)
    x.reset()


@mode
async def stalls(x: Exchange) -> None:
    await x.gone()


@mode
async def stalls_after_head(x: Exchange) -> None:
    await x.head(Content_Type="application/json", Content_Length="1000")
    await x.gone()


@mode
async def drips(x: Exchange) -> None:
    """One byte at a time of an answer that would be right."""
    await x.head(Content_Type="application/json", Content_Length=str(len(json.dumps(x.answer()))))
    with contextlib.suppress(ConnectionError):
        for byte in json.dumps(x.answer()).encode():
            await x.raw(bytes([byte]))
            await asyncio.sleep(float(x.options.get("every", "1")))


@mode
async def drips_refusal(x: Exchange) -> None:
    await x.head("500 Internal Server Error", Content_Type="text/plain", Content_Length="1000")
    with contextlib.suppress(ConnectionError):
        for _ in range(1000):
            await x.raw(b"x")
            await asyncio.sleep(float(x.options.get("every", "1")))


# Redirects.


@mode
async def redirects(x: Exchange) -> None:
    """Once, to the same origin."""
    if "moved" in x.options:
        await proper(x)
    else:
        await x.head(
            f"{x.options.get('status', '307')} Moved", Location=f"{x.target}&moved=1", Content_Length="0"
        )


@mode
async def redirects_away(x: Exchange) -> None:
    port = x.headers["host"].rpartition(":")[2]
    away = f"http://localhost:{port}/good/{x.key}-away"
    await x.head("307 Temporary Redirect", Location=away, Content_Length="0")


@mode
async def redirects_for_ever(x: Exchange) -> None:
    await x.head("308 Permanent Redirect", Location=x.target, Content_Length="0")


@mode
async def redirects_nowhere(x: Exchange) -> None:
    await x.head("307 Temporary Redirect", Location=x.options["to"], Content_Length="0")


# Answers that are not MCP.


@mode
async def html(x: Exchange) -> None:
    await x.reply("<!doctype html>\n<html><body>Welcome\nto nginx</body></html>", "text/html")


@mode
async def plain_text(x: Exchange) -> None:
    await x.reply("OK", "text/plain")


@mode
async def no_type(x: Exchange) -> None:
    await x.head(Content_Length="2")
    await x.raw(b"OK")


@mode
async def bad_json(x: Exchange) -> None:
    await x.reply('{"jsonrpc": "2.0",\n \x1b[31m"result"', "application/json")


@mode
async def bad_json_at_length(x: Exchange) -> None:
    await x.reply(b'{"jsonrpc": "2.0",' + b" " * 17_000_000, "application/json")


@mode
async def empty(x: Exchange) -> None:
    await x.reply(b"", "application/json")


@mode
async def accepted(x: Exchange) -> None:
    await x.head("202 Accepted", Content_Length="0")


@mode
async def wrong_id(x: Exchange) -> None:
    await x.json(x.answer(id=99_999))


@mode
async def wrong_id_stream(x: Exchange) -> None:
    await x.stream()
    await x.event(x.answer(id=99_999))
    await x.raw(b"0\r\n\r\n")


@mode
async def batch(x: Exchange) -> None:
    await x.json([{"jsonrpc": "2.0", "method": "notifications/message", "params": {}}, x.answer()])


@mode
async def not_http(x: Exchange) -> None:
    await x.raw(b"SSH-2.0-OpenSSH_9.6\r\n")
    raise Hangup


@mode
async def tls_alert(x: Exchange) -> None:
    await x.raw(b"\x15\x03\x01\x00\x02\x02\x46")
    raise Hangup


@mode
async def long_header(x: Exchange) -> None:
    await x.head(X_Long="x" * 1_000_000, Content_Length="0")


@mode
async def headers_without_end(x: Exchange) -> None:
    await x.raw(b"HTTP/1.1 200 OK\r\n")
    with contextlib.suppress(ConnectionError):
        for number in range(100_000):
            await x.raw(b"X-Header-%d: x\r\n" % number)
    raise Hangup


@mode
async def bad_chunk(x: Exchange) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    await x.raw(head + b"zz\r\nhello\r\n")


@mode
async def bad_chunk_later(x: Exchange) -> None:
    await x.stream()
    await asyncio.sleep(0.05)
    await x.raw(b"zz\r\nhello\r\n")


@mode
async def odd_chunks(x: Exchange) -> None:
    """Allowed: a hint first, extensions, tiny chunks, trailers."""
    await x.raw(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
    await x.head(Content_Type="application/json; charset=utf-8", Transfer_Encoding="chunked")
    for byte in json.dumps(x.answer()).encode():
        await x.raw(b"1;name=value\r\n%c\r\n" % byte)
    await x.raw(b"0\r\nX-Trailer: yes\r\n\r\n")


@mode
async def no_last_chunk(x: Exchange) -> None:
    await x.head(Content_Type="application/json", Transfer_Encoding="chunked")
    await x.chunk(json.dumps(x.answer()).encode())
    raise Hangup


@mode
async def no_length(x: Exchange) -> None:
    """Allowed: the end of the connection is the end of the answer."""
    await x.head(Content_Type="application/json", Connection="close")
    await x.raw(json.dumps(x.answer()).encode())
    raise Hangup


@mode
async def oversize(x: Exchange) -> None:
    await x.head(Content_Type="application/json", Content_Length="10000000000")
    await x.raw(b'{"jsonrpc": "2.0", ')
    await x.gone()


@mode
async def oversize_without_length(x: Exchange) -> None:
    await x.head(Content_Type="application/json", Transfer_Encoding="chunked")
    with contextlib.suppress(ConnectionError):
        while True:
            await x.chunk(b" " * 65536)
    raise Hangup


@mode
async def oversize_refusal(x: Exchange) -> None:
    await x.head("500 Internal Server Error", Content_Type="text/plain", Transfer_Encoding="chunked")
    with contextlib.suppress(ConnectionError):
        while True:
            await x.chunk(b"sorry " * 10_000)
    raise Hangup


@mode
async def bomb(x: Exchange) -> None:
    """A hundred kilobytes that unpack to twenty megabytes."""
    body = gzip.compress(b" " * 20_000_000, 1)
    await x.reply(body, "application/json", Content_Encoding="gzip")


@mode
async def packed(x: Exchange) -> None:
    """Allowed."""
    body = json.dumps(x.answer()).encode()
    # A long run of one letter would be packed so well that it looks like a bomb.
    packed_body = gzip.compress(body, 9 if len(body) < 1_000_000 else 0)
    await x.reply(packed_body, "application/json", Content_Encoding="gzip")


@mode
async def badly_packed(x: Exchange) -> None:
    await x.reply(b"this is no gzip", "application/json", Content_Encoding="gzip")


# Refusals.


async def refuse(x: Exchange, status: str, **headers: str) -> None:
    await x.reply("the tea is\ncold", "text/plain", status, **headers)


for name, status, extra in (
    ("status-400", "400 Bad Request", {}),
    ("status-401", "401 Unauthorized", {"WWW_Authenticate": 'Bearer realm="tea", scope="pour"'}),
    ("status-403", "403 Forbidden", {}),
    ("status-404", "404 Not Found", {}),
    ("status-429", "429 Too Many Requests", {"Retry_After": "7"}),
    ("status-429-date", "429 Too Many Requests", {"Retry_After": "Wed, 21 Oct 2026 07:28:00 GMT"}),
    ("status-500", "500 Internal Server Error", {}),
    ("status-502", "502 Bad Gateway", {}),
    ("status-503", "503 Service Unavailable", {}),
    ("status-503-later", "503 Service Unavailable", {"Retry_After": "9"}),
):
    MODES[name] = lambda x, status=status, extra=extra: refuse(x, status, **extra)


@mode
async def html_502(x: Exchange) -> None:
    await x.reply("<html><body><h1>502 Bad Gateway</h1></body></html>", "text/html", "502 Bad Gateway")


@mode
async def refuses_once(x: Exchange) -> None:
    if x.count("tools/call") == 1:
        await refuse(x, "401 Unauthorized")
    else:
        await proper(x)


@mode
async def wants_the_right_key(x: Exchange) -> None:
    if x.headers.get("authorization") == "right":
        await x.json({})
    else:
        challenge = 'Bearer realm="tea", resource_metadata="http://tea/\\"here"'
        await refuse(x, "401 Unauthorized", WWW_Authenticate=challenge)


@mode
async def sets_cookie(x: Exchange) -> None:
    await x.json({}, Set_Cookie="tea=cold; Path=/")


@mode
async def rpc_error_400(x: Exchange) -> None:
    await x.json({**x.error(-32602, "no such tool"), "id": None}, "400 Bad Request")


# Sessions.


async def forget(x: Exchange, refusal: Callable[[], Awaitable[None]]) -> None:
    """Forgets all sessions at the first call of echo in the first of them."""
    if x.params.get("name") == "echo" and x.count("initialize") == 1:
        SESSIONS[x.key].clear()
        await refusal()
    else:
        await proper(x)


@mode
async def forgets_404(x: Exchange) -> None:
    await forget(x, lambda: x.reply("", "text/plain", "404 Not Found"))


@mode
async def forgets_400(x: Exchange) -> None:
    error = {"code": -32000, "message": "Bad Request: No valid session ID provided"}
    message = {"jsonrpc": "2.0", "id": None, "error": error}
    await forget(x, lambda: x.json(message, "400 Bad Request"))


@mode
async def forgets_200(x: Exchange) -> None:
    await forget(x, lambda: x.json(x.error(-32001, "Session not found")))


@mode
async def forgets_stream(x: Exchange) -> None:
    async def stream() -> None:
        await x.stream()
        await x.event(x.error(-32001, "Session not found"))
        await x.raw(b"0\r\n\r\n")

    await forget(x, stream)


@mode
async def never_knows_its_session(x: Exchange) -> None:
    await x.json(x.error(-32001, "Session not found"), "404 Not Found")


@mode
async def stalls_at_goodbye(x: Exchange) -> None:
    await (x.gone() if x.verb == "DELETE" else proper(x))


@mode
async def bad_session_id(x: Exchange) -> None:
    await x.json({"jsonrpc": "2.0", "id": x.id, "result": {"protocolVersion": LEGACY}}, Mcp_Session_Id="ä b")


# Event streams.


@mode
async def sse_answers(x: Exchange) -> None:
    await x.stream()
    await x.event(x.answer(), event="message")
    await x.raw(b"0\r\n\r\n")


@mode
async def sse_stays_open(x: Exchange) -> None:
    await x.stream()
    await x.event(x.answer())
    await x.gone()


@mode
async def sse_without_end(x: Exchange) -> None:
    await x.stream()
    note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
    with contextlib.suppress(ConnectionError):
        while True:
            await x.chunk(b": still here\n\n")
            await x.event(note)
            await asyncio.sleep(0.005)
    x.note(hung_up=x.method)
    raise Hangup


@mode
async def sse_odd(x: Exchange) -> None:
    """Allowed: comments, other events, broken data, several data lines, CRLF, a byte at a time."""
    body = json.dumps(x.answer(), indent=1).replace("\n", "\r\ndata: ")
    noise = ": hello\r\n\r\nevent: ping\r\ndata: {}\r\n\r\ndata: {broken\r\n\r\ndata:\r\n\r\nretry: soon\r\n"
    await x.stream()
    for byte in f"\ufeff{noise}strange\r\ndata: {body}\r\n\r\n".encode():
        await x.chunk(bytes([byte]))
    await x.raw(b"0\r\n\r\n")


@mode
async def sse_oversize(x: Exchange) -> None:
    await x.stream()
    await x.chunk(b"data: " + b"x" * 2_000_000 + b"\n\n")
    await x.gone()


@mode
async def sse_line_without_end(x: Exchange) -> None:
    await x.stream()
    with contextlib.suppress(ConnectionError):
        await x.chunk(b"data: ")
        while True:
            await x.chunk(b"x" * 65536)
            await asyncio.sleep(0.001)
    x.note(hung_up=x.method)
    raise Hangup


@mode
async def sse_ends(x: Exchange) -> None:
    await x.stream()
    await x.chunk(b": nothing more\n\n")
    await x.raw(b"0\r\n\r\n")


@mode
async def sse_bad_json(x: Exchange) -> None:
    await x.stream()
    await x.chunk(b'data: {"jsonrpc": "2.0", "id": %d, "result": {"n": NaN}}\n\n' % x.id)
    await x.gone()


@mode
async def sse_resumes(x: Exchange) -> None:
    """The stream of a call ends early; the answer comes on the second GET with the last event's id."""
    if x.verb == "POST":
        x.note(call=x.answer())
        await x.stream()
        await x.event(id="one", retry=30)
        await x.raw(b"0\r\n\r\n")
        return
    last_event_id = x.headers.get("last-event-id")
    if last_event_id is None:
        await x.head("405 Method Not Allowed", Content_Length="0")
        return
    x.note(resumed=last_event_id)
    await x.stream()
    if last_event_id == "one":
        await x.event(id="two")
    elif x.options.get("then") == "stall":
        await x.gone()
    else:
        await x.event(next(entry["call"] for entry in JOURNAL[x.key] if "call" in entry), id="three")
    await x.raw(b"0\r\n\r\n")


@mode
async def sse_resumption_refused(x: Exchange) -> None:
    if x.verb == "GET":
        await x.head("404 Not Found", Content_Length="0")
        return
    await x.stream()
    await x.event(id="one", retry=10)
    await x.raw(b"0\r\n\r\n")


@mode
async def sse_resumes_for_ever(x: Exchange) -> None:
    if x.verb == "GET" and "last-event-id" not in x.headers:
        await x.head("405 Method Not Allowed", Content_Length="0")
        return
    x.note(resumed=x.headers.get("last-event-id"))
    await x.stream()
    await x.event(id="one", retry=0)
    await x.raw(b"0\r\n\r\n")


@mode
async def listening_ends_at_once(x: Exchange) -> None:
    if x.verb == "GET":
        await x.stream()
        await x.event(retry=0)
        await x.raw(b"0\r\n\r\n")
    else:
        await proper(x)


@mode
async def listening_oversize(x: Exchange) -> None:
    await (sse_oversize(x) if x.verb == "GET" else proper(x))


@mode
async def notification_stays_open(x: Exchange) -> None:
    """Answers a notification with a stream that does not end."""
    if x.id is None and x.verb == "POST":
        await x.stream()
        await x.gone()
    await proper(x)


# The transport of 2024-11-05.


@mode
async def endpoint(x: Exchange) -> None:
    """Names whatever it is told to."""
    if x.verb == "GET":
        port = x.headers["host"].rpartition(":")[2]
        await x.stream()
        await x.chunk(f"event: endpoint\ndata: {x.options['to'].replace('PORT', port)}\n\n".encode())
        await x.gone()
    await proper(x)


@mode
async def post_stays_open(x: Exchange) -> None:
    """The answer comes on the stream, and the POST that asked for it does not end."""
    if x.verb == "POST":
        await x.head("202 Accepted", Content_Type="text/plain", Transfer_Encoding="chunked")
        await STREAMS[x.key].event(x.answer(), event="message")
        await x.gone()
    await proper(x)


@mode
async def no_endpoint(x: Exchange) -> None:
    await x.stream()
    await x.chunk(b": wait\n\n")
    await x.gone()


@mode
async def stream_ends_at_once(x: Exchange) -> None:
    await x.stream()
    await x.raw(b"0\r\n\r\n")


@mode
async def stream_ends(x: Exchange) -> None:
    """The stream of answers ends in the first call."""
    if x.method == "tools/call" and x.count("tools/call") == 1:
        await x.head("202 Accepted", Content_Length="0")
        stream = STREAMS.pop(x.key)
        await stream.raw(b"0\r\n\r\n")
        stream.writer.close()
    else:
        await proper(x)


# The wire.


def due(x: Exchange) -> bool:
    """Whether the bad mode applies to this request, or the proper server answers it."""
    when = x.options.get("when", "call")
    if when == "call":
        return x.method == "tools/call" or (x.verb == "GET" and x.options.get("era") == "legacy")
    return when == "always" or {"begin": x.method in ("server/discover", "initialize")}.get(when, False)


async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> Exchange:
    first = await reader.readexactly(1)
    if first == b"\x16":  # Somebody speaks TLS.
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        raise Hangup
    head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    verb, target, _ = head[0].split(" ", 2)
    headers = {}
    for line in head[1:]:
        name, _, value = line.partition(":")
        if name:
            headers[name.lower()] = value.strip()
    length = int(headers.get("content-length", "0"))
    if target.startswith("/resets-in-body/") and length > 1_000_000:
        await reader.readexactly(10_000)
        Exchange(reader, writer, number, verb, target, headers, b"").reset()
    body = await reader.readexactly(length)
    return Exchange(reader, writer, number, verb, target, headers, body)


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    number = next(NUMBERS)
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, Hangup):
        while True:
            x = await read(reader, writer, number)
            if x.mode == "journal":
                await x.json(JOURNAL[x.key])
                continue
            x.note(verb=x.verb, target=x.target, headers=x.headers, message=x.message)
            await (MODES[x.mode](x) if x.mode in HANDLE_ALL or due(x) else proper(x))
    writer.close()


HANDLE_ALL = {name for name in MODES if name.startswith(("good", "forgets-", "notification-", "listening-"))}
HANDLE_ALL |= {"refuses-once", "redirects", "stream-ends", "stalls-at-goodbye", "post-stays-open"}
"""Modes that see every request and pass on themselves what they do not spoil."""


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), limit=1 << 26)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
