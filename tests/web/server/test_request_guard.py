"""The door, with a real server and requests written by hand: who gets in, and what every answer carries."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from toolyard.config.settings.table import Settings
from toolyard.web.middleware.request_guard import AllowedHosts, HostHeader

if TYPE_CHECKING:
    from tests.web.conftest import Opening

OWN = "127.0.0.1:{port}"
EVIL = "http://evil.example"
Headers = Sequence[tuple[str, str]]


@dataclass
class RawReply:
    """What came back."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def all(self, name: str) -> list[str]:
        return [value for each, value in self.headers if each == name]

    def one(self, name: str) -> str:
        (value,) = self.all(name)
        return value

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def send(
    local: Any,
    method: str,
    path: str,
    headers: Headers = (),
    body: bytes = b"",
    *,
    host: str | None = OWN,
    source: str = "127.0.0.1",
) -> RawReply:
    """One request on a connection of its own; ``{port}`` is the server's."""
    port = urlsplit(local.url).port
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    lines = [f"{method} {path} HTTP/1.1", "Connection: close"]
    lines += [f"Host: {host.format(port=port)}"] if host is not None else []
    lines += [f"{name}: {value.format(port=port)}" for name, value in headers]
    lines += [f"Content-Length: {len(body)}"] if body else []
    writer.write("\r\n".join((*lines, "", "")).encode("utf-8") + body)
    try:
        return _read(await asyncio.wait_for(reader.read(), 30))
    finally:
        writer.close()


def _read(answer: bytes) -> RawReply:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    if ("transfer-encoding", "chunked") in pairs:
        body = b"".join(body.split(b"\r\n")[1::2])
    return RawReply(int(first.split()[1]), pairs, body)


# Names.

EVERYWHERE = [
    "/",
    "/healthz",
    "/readyz",
    "/metrics",
    "/api/v1/me",
    "/api/v1/chats",
    "/api/v1/chats/x/stream",
    "/ui/",
    "/ui/sign-in",
    "/static/app.css",
    "/no",
]


@pytest.mark.parametrize("mode", ["none", "password", "proxy"])
async def test_a_foreign_name_gets_in_nowhere_in_no_mode(open_site: Opening, mode: str) -> None:
    """As a page does whose name was pointed at us after it was loaded (DNS rebinding)."""
    local = await open_site(people_mode=mode, trusted_proxies=("127.0.0.1",))
    tricks = [
        ("X-Forwarded-Host", OWN),
        ("Forwarded", f"host={OWN}"),
        ("Remote-User", "ann"),
        ("Origin", "http://rebound.example:{port}"),
    ]
    for path in EVERYWHERE:
        for headers in ([], tricks[:1], tricks[1:2], tricks[2:3]):
            answer = await send(local, "GET", path, headers, host="rebound.example:{port}")
            assert answer.status == 421, (path, headers)
            assert b"allowed_hosts" in answer.body
        assert (await send(local, "POST", path, tricks, b"{}", host="rebound.example:{port}")).status == 421


LOOPBACK = [
    OWN,
    "localhost:{port}",
    "LocalHost",
    "[::1]:{port}",
    "[::1]",
    "127.0.0.1",
    "127.9.9.9:1",
    "localhost:1",
]
FOREIGN = [
    "evil.example",
    "localhost.evil.example",
    "127.0.0.1.nip.io:{port}",
    "0.0.0.0:{port}",
    "192.168.1.2:{port}",
    "toolyard.example",
    "localhost.",
    "[::2]",
]
UNREADABLE = [
    "",
    " ",
    "a b",
    "localhost:port",
    "localhost:{port}:1",
    "user@localhost",
    "local\u00e9",
    "localhost/x",
    "[::1",
]


async def test_loopback_has_many_names(open_site: Opening) -> None:
    local = await open_site()
    for host in LOOPBACK:
        assert (await send(local, "GET", "/healthz", host=host)).status == 200, host


async def test_a_name_that_is_not_ours(open_site: Opening) -> None:
    local = await open_site()
    for host in FOREIGN:
        answer = await send(local, "GET", "/api/v1/me", host=host)
        assert (answer.status, answer.one("content-type")) == (421, "application/problem+json"), host
        assert answer.json["type"] == "urn:toolyard:problem:foreign-host"
        assert "allowed_hosts" in answer.json["hint"]


async def test_a_name_that_is_none(open_site: Opening) -> None:
    local = await open_site()
    for host in UNREADABLE:
        assert (await send(local, "GET", "/healthz", host=host)).status == 400, host


async def test_no_name_and_two_names(open_site: Opening) -> None:
    local = await open_site()
    assert (await send(local, "GET", "/healthz", host=None)).status == 400
    assert (await send(local, "GET", "/healthz", [("Host", "evil.example")])).status == 400


async def test_names_that_the_operator_adds(open_site: Opening) -> None:
    local = await open_site(
        people_mode="password",
        host="0.0.0.0",
        public_url="https://toolyard.example",
        allowed_hosts=["yard", "other.example:9000", "2001:db8::1"],
    )
    for host, status in {
        "toolyard.example": 200,
        "TOOLYARD.example:443": 200,
        "yard": 200,
        "yard:1234": 200,
        "other.example:9000": 200,
        "other.example": 421,
        "other.example:9001": 421,
        "[2001:db8::1]:8420": 200,
        "sub.toolyard.example": 421,
        "0.0.0.0": 421,
        # It came in over loopback, as a container's own health check does.
        "localhost": 200,
    }.items():
        assert (await send(local, "GET", "/healthz", host=host)).status == status, host


@pytest.mark.parametrize(
    ("host_header", "our_end", "allowed"),
    [
        ("192.0.2.2:8420", "192.0.2.2", True),
        ("192.0.2.2:8420", "::ffff:192.0.2.2", True),
        ("[2001:db8::1]:8420", "2001:db8::1", True),
        ("192.0.2.3:8420", "192.0.2.2", False),
        ("0.0.0.0:8420", "192.0.2.2", False),
        ("localhost:8420", "192.0.2.2", False),
    ],
)
def test_a_health_check_calls_us_by_the_address_that_it_asks(
    host_header: str, our_end: str, allowed: bool
) -> None:
    host = HostHeader.parse(host_header)
    assert host is not None
    assert AllowedHosts(Settings(host="0.0.0.0")).is_allowed(host, our_end) is allowed


# Origins, and what browsers say by themselves.

SAME = "http://127.0.0.1:{port}"
NAVIGATION = [("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")]
CASES: list[tuple[str, Headers, int]] = [
    ("GET", [], 200),
    ("POST", [], 201),
    ("POST", [("Origin", SAME)], 201),
    ("GET", [("Origin", SAME)], 200),
    ("GET", [("Origin", EVIL)], 403),
    ("POST", [("Origin", EVIL)], 403),
    ("DELETE", [("Origin", EVIL)], 403),
    ("OPTIONS", [("Origin", EVIL), ("Access-Control-Request-Method", "POST")], 403),
    ("GET", [("Origin", "null")], 403),
    ("POST", [("Origin", "null")], 403),
    ("POST", [("Origin", "https://127.0.0.1:{port}")], 403),
    ("POST", [("Origin", "http://127.0.0.1")], 403),
    ("POST", [("Origin", "http://localhost:{port}")], 403),
    ("POST", [("Origin", "http://127.0.0.1:3000")], 403),
    ("POST", [("Origin", SAME + ".evil.example")], 403),
    ("POST", [("Origin", SAME), ("Origin", EVIL)], 403),
    ("POST", [("Origin", "")], 403),
    ("GET", [("Sec-Fetch-Site", "same-origin")], 200),
    ("GET", [("Sec-Fetch-Site", "none"), *NAVIGATION], 200),
    ("GET", [("Sec-Fetch-Site", "cross-site"), *NAVIGATION], 200),
    ("GET", [("Sec-Fetch-Site", "same-site"), *NAVIGATION], 200),
    ("GET", [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "no-cors")], 403),
    ("GET", [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "cors")], 403),
    ("GET", [("Sec-Fetch-Site", "same-site"), ("Sec-Fetch-Mode", "no-cors")], 403),
    (
        "GET",
        [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "iframe")],
        403,
    ),
    ("GET", [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "websocket")], 403),
    ("GET", [("Sec-Fetch-Site", "cross-site")], 403),
    ("GET", [("Sec-Fetch-Site", "nonsense")], 403),
    ("POST", [("Sec-Fetch-Site", "cross-site"), *NAVIGATION], 403),
    ("POST", [("Sec-Fetch-Site", "same-site"), *NAVIGATION], 403),
    ("POST", [("Sec-Fetch-Site", "same-origin"), ("Origin", SAME)], 201),
    ("POST", [("Sec-Fetch-Site", "none")], 201),
    ("POST", [("Origin", EVIL), ("Origin", SAME)], 403),
    ("POST", [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Site", "same-origin")], 403),
]


async def test_origins_decide_which_requests_are_allowed(open_site: Opening) -> None:
    local, wrong = await open_site(), []
    for method, headers, status in CASES:
        path, body = ("/api/v1/tokens", _TOKEN) if method == "POST" else ("/api/v1/me", b"")
        kind = [("Content-Type", "application/json")] if body else []
        answer = await send(local, method, path, [*headers, *kind], body)
        if answer.status != status or answer.all("access-control-allow-origin"):
            wrong.append(f"{method} {headers}: {answer.status} instead of {status}")
    assert not wrong, "\n".join(wrong)


_TOKEN = b'{"name": "x", "scope": {"rights": ["read"]}}'


async def test_a_foreign_origin_gets_in_nowhere(open_site: Opening) -> None:
    local = await open_site()
    for path in EVERYWHERE:
        for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            assert (await send(local, method, path, [("Origin", EVIL)])).status == 403, (method, path)


async def test_a_token_does_not_open_the_door_to_a_foreign_page(open_site: Opening) -> None:
    local = await open_site(people_mode="password")
    ann = await local.person("ann")
    headers = [("Authorization", f"Bearer {ann.secret}")]
    assert (await send(local, "GET", "/api/v1/me", headers)).status == 200
    assert (await send(local, "GET", "/api/v1/me", [*headers, ("Origin", EVIL)])).status == 403


async def test_a_websocket_of_a_foreign_page_is_refused(open_site: Opening) -> None:
    upgrade = [
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ]
    local = await open_site()
    assert (await send(local, "GET", "/api/v1/events", [*upgrade, ("Origin", EVIL)])).status == 403


async def test_the_public_address_is_an_origin_of_ours(open_site: Opening) -> None:
    local = await open_site(people_mode="password", public_url="https://toolyard.example")
    for origin, host, status in (
        ("https://toolyard.example", "toolyard.example", 401),
        ("https://toolyard.example", OWN, 401),
        (SAME, OWN, 401),
        ("http://toolyard.example:1", "toolyard.example", 403),
        ("https://toolyard.example:8443", "toolyard.example", 403),
        ("https://evil.example", "toolyard.example", 403),
    ):
        answer = await send(local, "GET", "/api/v1/me", [("Origin", origin)], host=host)
        assert answer.status == status, (origin, host)


async def test_forwarded_headers_are_believed_from_trusted_proxies_only(open_site: Opening) -> None:
    local = await open_site(people_mode="password", trusted_proxies=["127.0.0.2"], allowed_hosts=["yard.lan"])
    headers = [("Origin", "https://yard.lan"), ("X-Forwarded-Proto", "https")]
    for source, status in (("127.0.0.2", 401), ("127.0.0.1", 403)):
        answer = await send(local, "GET", "/api/v1/me", headers, host="yard.lan", source=source)
        assert answer.status == status, source
    forged_headers = [
        ("Origin", "https://yard.lan"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Proto", "http"),
    ]
    assert (
        await send(local, "GET", "/ui/", forged_headers, host="yard.lan", source="127.0.0.2")
    ).status == 403


# What every answer carries.

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


async def test_every_answer_carries_them_good_or_bad(open_site: Opening) -> None:
    local = await open_site(people_mode="password", public_url="https://toolyard.example")
    for path, headers, host in (
        *((path, (), OWN) for path in EVERYWHERE),
        ("/ui/", [("Origin", EVIL)], OWN),
        ("/healthz", (), "evil.example"),
    ):
        answer = await send(local, "GET", path, headers, host=host)
        for name, value in HEADERS.items():
            assert answer.one(name) == value, (path, name)
        assert "camera=()" in answer.one("permissions-policy")
        assert answer.one("strict-transport-security") == "max-age=31536000"
        is_cached = path.startswith("/static/") and answer.status == 200
        assert (answer.one("cache-control") == "no-store") is not is_cached, path
        assert not answer.all("server")


async def test_without_https_browsers_are_not_told_to_insist_on_it(open_site: Opening) -> None:
    assert not (await send(await open_site(), "GET", "/healthz")).all("strict-transport-security")


# Bodies.


@pytest.mark.parametrize(
    ("path", "limit"), [("/ui/tokens", 1024 * 1024), ("/api/v1/tokens", 8 * 1024 * 1024)]
)
@pytest.mark.parametrize("is_declared", [True, False], ids=["said", "not said"])
async def test_a_body_that_is_too_long_is_not_read_to_its_end(
    open_site: Opening, path: str, limit: int, is_declared: bool
) -> None:
    local = await open_site()
    length = f"Content-Length: {limit * 1000}" if is_declared else "Transfer-Encoding: chunked"
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{length}\r\n\r\n"
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    body_start = b"x" if is_declared else chunk * (limit // 0x10000 + 1)
    answer = _read(await asyncio.to_thread(_read_reply, urlsplit(local.url).port, head.encode() + body_start))
    assert answer.status == 413
    assert answer.one("connection") == "close"
    assert answer.one("x-content-type-options") == "nosniff"


def _read_reply(port: int | None, head_start: bytes) -> bytes:
    """What is answered to the beginning of a request whose rest never comes."""
    with socket.create_connection(("127.0.0.1", port or 0), 30) as line:
        answer = b""
        # What was said stays to be read, though the other side hung up on what it had not read.
        with contextlib.suppress(ConnectionError):
            line.sendall(head_start)
        with contextlib.suppress(ConnectionError):
            while piece := line.recv(0x10000):
                answer += piece
    return answer


async def test_a_body_that_never_comes_is_not_waited_for_for_ever(open_site: Opening) -> None:
    """The HTTP server would wait; the application has its own clock."""
    from toolyard.web.app import AppTimeouts, make_app
    from toolyard.web.http_server.run import HttpServer
    from toolyard.web.http_server.socket import open_listener

    local = await open_site()
    listener = open_listener("127.0.0.1", 0)
    http_server = HttpServer(make_app(local.services, AppTimeouts(body=0.3)), listener)
    await http_server.start()
    head = (
        b"POST /api/v1/tokens HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 100\r\n\r\n{"
    )
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(listener.address).port)
        writer.write(head)
        answer = _read(await asyncio.wait_for(reader.read(), 30))
        assert (answer.status, answer.one("connection")) == (408, "close")
        writer.close()
        # Who leaves in the middle leaves nothing behind.
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(listener.address).port)
        writer.write(head)
        writer.close()
        await writer.wait_closed()
    finally:
        await http_server.drain()
        await http_server.cancel_open_requests()


async def test_a_body_in_pieces_arrives_whole(open_site: Opening) -> None:
    local = await open_site()
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(local.url).port)
    writer.write(
        b"POST /api/v1/tokens HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    for at in range(0, len(_TOKEN), 5):
        piece = _TOKEN[at : at + 5]
        writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)
    writer.write(b"0\r\n\r\n")
    answer = _read(await asyncio.wait_for(reader.read(), 30))
    assert answer.status == 201, answer.body
    writer.close()


# Strangers.


async def test_bodies_of_strangers_are_not_parsed(open_site: Opening) -> None:
    local = await open_site(people_mode="password")
    ann = await local.person("ann")
    broken = {"data": b'{"name": ', "headers": {"Content-Type": "application/json"}}
    for client in (local.client(), local.client(Authorization="Bearer ty_wrong"), local.client(Cookie="x=y")):
        for method, path in (("POST", "/api/v1/tokens"), ("PATCH", "/api/v1/users/x"), ("POST", "/api/v1/x")):
            answer = await client.ask(method, path, **broken)
            assert answer.status == 401, answer.text
            assert answer.headers["WWW-Authenticate"]
    for client in (ann.browser, ann.token):
        assert (await client.ask("POST", "/api/v1/chats", **broken)).status == 422
        assert (await client.post("/api/v1/chats", {})).status == 201


async def test_a_form_that_anybody_may_send_is_short(open_site: Opening) -> None:
    client = (await open_site(people_mode="password")).client()
    for path in ("/ui/sign-in", "/ui/invite/x"):
        assert (await client.post(path, data={"name": "x" * 70_000})).status == 413
        assert (await client.post(path, data={"name": "x" * 1_000})).status == 403
