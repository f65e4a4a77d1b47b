"""Faults of servers behind HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any
from unittest import mock

import aiohttp
import trustme
from tests.fake_dns import FakeResolver
from tests.faults.suite import CaseContext, address, assert_recovers, call, case, open_with_good_server

from toolyard.net import AddressGuard, OutboundHttp

GROUP = "HTTP"


def plain(fault: str, mode: str, expected: str, **options: str) -> None:
    @case(GROUP, fault)
    async def run(room: CaseContext) -> str:
        async with open_with_good_server(room, address(room, mode, mode, **options)) as yard:
            error_text = await call(yard)
            assert expected in error_text, error_text
            return error_text


plain("reset in the middle of a request", "resets-request", "OutcomeUnknown")
plain("closed without an answer", "closes", "OutcomeUnknown")
plain("reset in the middle of an answer", "resets-answer", "OutcomeUnknown")
plain("reset in the middle of an SSE event", "resets-event", "OutcomeUnknown")
plain("black hole: takes the request and says nothing", "stalls", "CallTimeout")
plain("the head of an answer, then nothing", "stalls-after-head", "CallTimeout")
plain("one byte a second", "drips", "CallTimeout", every="1")
plain("500", "status-500", "500")
plain("502 with a page", "html-502", "502")
plain("503", "status-503", "503")
plain("429 with Retry-After", "status-429", "429")
plain("401", "status-401", "NeverSignedIn")
plain("HTML instead of JSON", "html", "BadAnswer")
plain("wrong content type", "plain-text", "BadAnswer")
plain("broken JSON", "bad-json", "BadAnswer")
plain("something that is not HTTP", "not-http", "BadAnswer")
plain("gzip bomb", "bomb", "BadAnswer")
plain("an answer over the limit", "oversize", "BadAnswer")
plain("endless SSE without an answer", "sse-without-end", "CallTimeout")
plain("redirect to another origin", "redirects-away", "Unreachable")
plain("redirects for ever", "redirects-for-ever", "Unreachable")
plain("redirect to a private address", "redirects-nowhere", "Unreachable", to="http://169.254.169.254/latest")
plain("headers without end", "headers-without-end", "BadAnswer")


@case(GROUP, "refused")
async def refuse_connections(room: CaseContext) -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    async with open_with_good_server(room, {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}) as yard:
        error_text = await call(yard)
    assert "refused" in error_text.lower(), error_text
    return error_text


@case(GROUP, "404 for a lost session")
async def lose_session(room: CaseContext) -> str:
    async with open_with_good_server(room, address(room, "forgets-404", "lost", era="legacy")) as yard:
        error_text = await call(yard)
        assert error_text == "works: hello", error_text
        return await assert_recovers(yard, error_text)


@case(GROUP, "401 once, then well")
async def once(room: CaseContext) -> str:
    async with open_with_good_server(room, address(room, "refuses-once", "once")) as yard:
        first = await call(yard)
        return await assert_recovers(yard, first)


@contextlib.asynccontextmanager
async def tls(context: ssl.SSLContext) -> AsyncIterator[int]:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


def certificate(fault: str, host: str, expected: str, *, known: bool) -> None:
    @case(GROUP, fault)
    async def run(room: CaseContext) -> str:
        context, authority = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), trustme.CA()
        authority.issue_cert(host).configure_cert(context)
        if known:
            authority.cert_pem.write_to_path(str(room.folder / "authority.pem"))
        with mock.patch.dict(os.environ, {"SSL_CERT_FILE": str(room.folder / "authority.pem")}):
            async with (
                tls(context) as port,
                open_with_good_server(room, {"type": "http", "url": f"https://localhost:{port}/mcp"}) as yard,
            ):
                error_text = await call(yard)
        assert "TLS with localhost" in error_text, error_text
        assert expected in error_text, error_text
        return error_text


certificate("a certificate that nobody vouches for", "localhost", "issuer", known=False)
certificate("a certificate of another host", "elsewhere.example", "localhost", known=True)


@case(GROUP, "a name that leads to a private address the second time (DNS rebinding)")
async def rebinding(room: CaseContext) -> str:
    dialled_hosts: list[str] = []

    class RecordingSocket(socket.socket):
        def connect(self, address: Any) -> None:
            dialled_hosts.append(address[0])
            raise ConnectionRefusedError(111, "refused")

    names = FakeResolver({})
    names.table["rebinds.example"] = ["93.184.216.34", "169.254.169.254"]
    net = OutboundHttp(AddressGuard(socket_factory=RecordingSocket), resolver=names)
    error_text = ""
    async with open_with_good_server(room, address(room, "good")) as yard:
        assert await call(yard) == "works: hello"
        for _ in range(2):
            with contextlib.suppress(aiohttp.ClientConnectorError):
                await net.session(guarded=True).get("http://rebinds.example/")
        try:
            await net.session(guarded=True).get("http://rebinds.example/")
        except aiohttp.ClientError as error:
            error_text = str(error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error)
    await net.close()
    assert set(dialled_hosts) == {"93.184.216.34"}, dialled_hosts
    return error_text
