"""How many connections may be open, how long they may idle, and what is left for calls, on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psutil
import pytest
from tests.web.conftest import HttpClient, InProcessApp

from toolyard.config import load_settings
from toolyard.config.settings.table import Settings
from toolyard.web.app import make_app
from toolyard.web.http_server.connection_limits import ConnectionLimits, create_connection_limits
from toolyard.web.http_server.http_protocol import BoundedHttpProtocol
from toolyard.web.http_server.run import HttpServer
from toolyard.web.http_server.socket import open_listener

if TYPE_CHECKING:
    from tests.web.conftest import Opening, Starting

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


class LoopbackClient:
    """A client that connects from any address of loopback."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int, address: str = "127.0.0.1") -> LoopbackClient:
        return cls(*await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0)))

    async def ask(self) -> int:
        """Send a request; return the status, or 0 where the connection was closed."""
        with contextlib.suppress(ConnectionError):
            self._writer.write(HEALTH)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), 30)
            status = int(head.split()[1])
            if status == 200:
                length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
                await self._reader.readexactly(int(length.split()[1]))
            return status
        return 0

    async def closed(self) -> bool:
        """Wait until the server closes the connection without having been asked for anything."""
        with contextlib.suppress(ConnectionError):
            return await asyncio.wait_for(self._reader.read(), 30) == b""
        return True

    def close(self) -> None:
        self._writer.close()


@pytest.fixture
async def start_limited_server(open_site: Opening) -> AsyncIterator[Any]:
    """``await start_limited_server(limits)``: the port of a server with these limits."""
    http_servers: list[HttpServer] = []

    async def start(limits: ConnectionLimits) -> int:
        local: InProcessApp = await open_site()
        listener = open_listener("127.0.0.1", 0)
        http_servers.append(HttpServer(make_app(local.services), listener, limits))
        await http_servers[-1].start()
        return urlsplit(listener.address).port or 0

    yield start
    for each in http_servers:
        await each.drain()
        await each.cancel_open_requests()


def settings(tmp_path: Any, **settings_overrides: Any) -> Settings:
    return load_settings(tmp_path, env={}, overrides=settings_overrides)


async def test_one_address_has_so_many_connections_and_no_more(start_limited_server: Any) -> None:
    port = await start_limited_server(ConnectionLimits(max_connections=100, max_per_address=3))
    first = [await LoopbackClient.open(port, "127.0.0.2") for _ in range(3)]
    refused_client = await LoopbackClient.open(port, "127.0.0.2")
    assert await refused_client.ask() == 503
    other = await LoopbackClient.open(port, "127.0.0.3")
    assert await other.ask() == 200
    first.pop().close()
    async with asyncio.timeout(30):
        while (await (again := await LoopbackClient.open(port, "127.0.0.2")).ask()) != 200:
            again.close()
    for peer in (*first, refused_client, other, again):
        peer.close()


async def test_where_all_places_are_taken_the_longest_idle_connection_makes_room(
    start_limited_server: Any,
) -> None:
    port = await start_limited_server(ConnectionLimits(max_connections=4, max_per_address=100))
    silent = [await LoopbackClient.open(port) for _ in range(2)]
    open_clients = [await LoopbackClient.open(port) for _ in range(2)]
    assert [await peer.ask() for peer in open_clients] == [200, 200]
    newcomers = [await LoopbackClient.open(port) for _ in range(3)]
    assert [await peer.ask() for peer in newcomers] == [200, 200, 200]
    assert [await peer.closed() for peer in (*silent, open_clients[0])] == [True, True, True]
    assert await open_clients[1].ask() == 200
    for peer in (*silent, *open_clients, *newcomers):
        peer.close()


async def test_busy_connections_make_no_room(start_limited_server: Any) -> None:
    port = await start_limited_server(ConnectionLimits(max_connections=2, max_per_address=100))
    busy = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    events = HEALTH.replace(b"/healthz", b"/api/v1/events")
    upload = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    upload += b"Content-Length: 99999\r\n\r\n"
    for (reader, writer), request in zip(busy, (events, upload + b" " * 70_000), strict=True):
        writer.write(request)
        if request is events:
            assert b" 200 " in await asyncio.wait_for(reader.readline(), 30)
    refused_client = await LoopbackClient.open(port)
    async with asyncio.timeout(30):
        while await refused_client.ask() == 200:  # The upload has not arrived yet.
            refused_client.close()
            await asyncio.sleep(0.01)
            refused_client = await LoopbackClient.open(port)
    assert not busy[0][0].at_eof()
    for _, writer in busy:
        writer.close()
    refused_client.close()


@pytest.mark.parametrize(
    "request_part",
    [
        b"G",
        HEALTH[:-2],
        b"POST /ui/sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\na",
        HEALTH.replace(b"/healthz", b"/api/v1/openapi.json") * 15,
    ],
    ids=["one byte", "most of a head", "part of a form", "a response that is not read"],
)
async def test_requests_that_strangers_do_not_finish_make_room(
    start_limited_server: Any, request_part: bytes
) -> None:
    limits = ConnectionLimits(max_connections=4, max_per_address=100)
    port = await start_limited_server(limits)
    idle_sockets = list[socket.socket]()
    for _ in range(4):
        idle_sockets.append(idle_socket := socket.socket())
        idle_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        idle_socket.setblocking(False)
        await asyncio.get_running_loop().sock_connect(idle_socket, ("127.0.0.1", port))
        await asyncio.get_running_loop().sock_sendall(idle_socket, request_part)
    await asyncio.sleep(0.2)
    # The responses are being made.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(30):
            while limits.idle_count < 4:
                await asyncio.sleep(0.01)
    newcomers = [await LoopbackClient.open(port) for _ in range(4)]
    assert [await each.ask() for each in newcomers] == [200] * 4
    async with asyncio.timeout(30):
        while len(limits) > 4:
            await asyncio.sleep(0.01)
    for each in (*idle_sockets, *newcomers):
        each.close()


@pytest.mark.parametrize(
    ("settings_overrides", "address", "bounded_alone"),
    [
        ({"people_mode": "none"}, "127.0.0.1", False),
        ({"people_mode": "none"}, "::1", False),
        ({"people_mode": "password"}, "127.0.0.1", True),
        ({"people_mode": "password"}, "192.0.2.1", True),
        ({"people_mode": "password", "trusted_proxies": ["192.0.2.0/24"]}, "192.0.2.1", False),
        ({"people_mode": "password", "trusted_proxies": ["192.0.2.0/24"]}, "198.51.100.1", True),
    ],
)
def test_proxies_and_the_local_user_are_bounded_by_the_total_alone(
    tmp_path: Any, settings_overrides: dict[str, Any], address: str, bounded_alone: bool
) -> None:
    limits = create_connection_limits(
        settings(tmp_path, max_connections=64, max_connections_per_address=16, **settings_overrides), None
    )
    add_results = [limits.add(ProtectedConnection(), address) for _ in range(64)]
    assert add_results.count(True) == (16 if bounded_alone else 64)


class ProtectedConnection:
    def evict(self) -> None:
        raise AssertionError("it was to stay")


def test_ipv6_addresses_of_one_network_count_as_one() -> None:
    limits = ConnectionLimits(max_connections=100, max_per_address=2)
    assert [limits.add(ProtectedConnection(), f"2001:db8::{n}") for n in range(3)] == [True, True, False]
    assert limits.add(ProtectedConnection(), "2001:db8:0:1::1")
    assert [limits.add(ProtectedConnection(), f"::ffff:192.0.2.{n}") for n in range(3)] == [True, True, True]


def test_half_of_the_descriptors_are_left_for_calls(tmp_path: Any) -> None:
    assert create_connection_limits(settings(tmp_path), 1024).max_connections == 512
    assert (
        create_connection_limits(settings(tmp_path), 65_536).max_connections
        == settings(tmp_path).max_connections
    )


async def test_the_first_byte_is_waited_for_a_shorter_time_than_the_rest(open_site: Opening) -> None:
    assert BoundedHttpProtocol.first_byte_seconds < BoundedHttpProtocol.head_seconds

    class Hasty(BoundedHttpProtocol):
        first_byte_seconds = 0.2
        head_seconds = 600.0

    local: InProcessApp = await open_site()
    listener = open_listener("127.0.0.1", 0)
    http_server = HttpServer(make_app(local.services), listener, protocol=Hasty)
    await http_server.start()
    try:
        port = urlsplit(listener.address).port or 0
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEALTH[:10])
        silent = await LoopbackClient.open(port)
        assert await silent.closed()
        # A request that has begun is not held to that.
        writer.write(HEALTH[10:])
        assert b" 200 " in await asyncio.wait_for(reader.readline(), 30)
        for each in (writer, silent):
            each.close()
    finally:
        await http_server.drain()
        await http_server.cancel_open_requests()


LIMITED_PROGRAM = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
sys.argv[0] = "toolyard"
runpy.run_module("toolyard", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(("soft", "hard", "addresses"), [(256, 2048, 1), (256, 2048, 8), (256, 256, 8)])
async def test_idle_connections_of_strangers_do_not_prevent_calls(
    serve: Starting, minimal_server: dict[str, Any], soft: int, hard: int, addresses: int
) -> None:
    """A stdio server is started meanwhile, which takes descriptors too, and gets the limit that we had."""
    program = ("-c", LIMITED_PROGRAM.format(soft=soft, hard=hard))
    site = await serve({"tiny": minimal_server}, program=program, TOOLYARD_WARM="false")
    port = urlsplit(site.url).port or 0
    peers: list[LoopbackClient] = []
    for number in range(400):
        with contextlib.suppress(OSError):
            peers.append(await LoopbackClient.open(port, f"127.0.1.{1 + number % addresses}"))
    client = HttpClient(site.url)
    try:
        answer = await client.post("/api/v1/tools/tiny_echo/call", {"arguments": {"needed": 1}})
        assert answer.status == 200, answer.text
        assert psutil.Process(site.process.pid).rlimit(psutil.RLIMIT_NOFILE) == (hard, hard)
        children = psutil.Process(site.process.pid).children()
        (child,) = [each for each in children if "tiny_server.py" in " ".join(each.cmdline())]
        assert child.rlimit(psutil.RLIMIT_NOFILE) == (soft, hard)
    finally:
        await client.close()
        for peer in peers:
            peer.close()
