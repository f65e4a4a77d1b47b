"""Small messages that would become millions of values: each transport refuses them by name and goes on."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import secrets
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import aiohttp.web
import pytest

from toolyard.errors import BadAnswer
from toolyard.net import OutboundHttp
from toolyard.protocol.jsonrpc import Message
from toolyard.transports.sse import SseTransport
from toolyard.transports.stdio.supervisor import ProcessSupervisor
from toolyard.transports.stdio.transport import StdioTransport
from toolyard.transports.streamable_http import StreamableHttpTransport
from toolyard.types.server import HttpSpec, StdioSpec

if TYPE_CHECKING:
    from tests.transports.conftest import RecordingReceiver

VALUE_COUNT = 1_000_000
REFUSAL = "sent a response that has more than 200,000 values"

STDIO = """
import sys
for line in sys.stdin:
    id = __import__("json").loads(line)["id"]
    many = ",".join(["[]"] * (1_000_000 if id == 1 else 1))
    print('{"jsonrpc":"2.0","id":%d,"result":{"content":[%s]}}' % (id, many), flush=True)
    if id == 3:
        break
"""


def call(id: int) -> Message:
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "x", "arguments": {}}}


def answer(id: int, values: int = VALUE_COUNT) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"result":{"content":[%b]}}' % (id, b",".join([b"[]"] * values))


class ValueBombServer:
    """Answers the first request with a bomb, in the way of the path, and others with one value."""

    def __init__(self) -> None:
        self.url = ""
        self.stream: aiohttp.web.StreamResponse | None = None
        self.over = asyncio.Event()

    async def handle(self, request: aiohttp.web.Request) -> aiohttp.web.StreamResponse:
        kind = request.match_info["kind"]
        if request.method == "GET":
            return await self._open(request)
        id = (await request.json()).get("id", 0)
        body = answer(id, VALUE_COUNT if id == 1 else 1)
        if kind == "sse":
            return aiohttp.web.Response(body=b"data: %b\n\n" % body, content_type="text/event-stream")
        if kind == "older":
            assert self.stream is not None
            await self.stream.write(b"data: %b\n\n" % body)
            return aiohttp.web.Response(status=202)
        if kind == "gzip":
            # With enough that cannot be packed, so that the ratio is no reason to refuse it.
            noise = secrets.token_hex(50_000).encode()
            body = gzip.compress(body.replace(b'"result":{', b'"noise":"%b","result":{' % noise))
            headers = {"Content-Encoding": "gzip"}
            return aiohttp.web.Response(body=body, headers=headers, content_type="application/json")
        return aiohttp.web.Response(body=body, content_type="application/json")

    async def _open(self, request: aiohttp.web.Request) -> aiohttp.web.StreamResponse:
        self.stream = aiohttp.web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await self.stream.prepare(request)
        await self.stream.write(b"event: endpoint\ndata: /older\n\n")
        await self.over.wait()
        return self.stream


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[ValueBombServer]:
    server = ValueBombServer()
    app = aiohttp.web.Application()
    app.router.add_route("*", "/{kind}", server.handle)
    runner = aiohttp.web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    services = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
    await services.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        server.over.set()
        await runner.cleanup()


@pytest.mark.parametrize("kind", ["json", "gzip"])
async def test_over_http_the_call_is_refused_and_the_next_one_works(
    kind: str, net: OutboundHttp, recorder: RecordingReceiver
) -> None:
    async with serving() as server:
        transport = StreamableHttpTransport(HttpSpec(f"{server.url}/{kind}"), net)
        await transport.open(recorder)
        with pytest.raises(BadAnswer, match=REFUSAL):
            await transport.send(call(1))
        await transport.send(call(2))
        assert [message["id"] for message in recorder.messages] == [2]
        await transport.close()


async def test_on_an_event_stream_the_call_is_refused_and_the_next_one_works(
    net: OutboundHttp, recorder: RecordingReceiver
) -> None:
    async with serving() as server:
        transport = StreamableHttpTransport(HttpSpec(f"{server.url}/sse"), net)
        await transport.open(recorder)
        await transport.send(call(1))
        await transport.send(call(2))
        error_message, good = recorder.messages
        assert error_message["id"] == 1
        assert error_message["error"]["message"] == REFUSAL
        assert good["result"] == {"content": [[]]}
        await transport.close()


async def test_on_the_stream_of_the_older_transport_the_call_is_refused_and_the_next_one_works(
    net: OutboundHttp, recorder: RecordingReceiver
) -> None:
    async with serving() as server:
        transport = SseTransport(HttpSpec(f"{server.url}/older"), net)
        await transport.open(recorder)
        await transport.send(call(1))
        await transport.send(call(2))
        while len(recorder.messages) < 2:
            await recorder.next()
        error_message, good = recorder.messages
        assert error_message["error"]["message"] == REFUSAL
        assert good["result"] == {"content": [[]]}
        await transport.close()


@pytest.mark.both_loops
async def test_over_stdio_the_call_is_refused_and_later_messages_keep_their_order(
    process_supervisor: ProcessSupervisor, recorder: RecordingReceiver
) -> None:
    transport = StdioTransport(StdioSpec(sys.executable, ("-c", STDIO)), process_supervisor)
    await transport.open(recorder)
    for id in (1, 2, 3):
        await transport.send(call(id))
    while not recorder.losses:
        await recorder.next()
    assert [message["id"] for message in recorder.messages] == [1, 2, 3]
    assert recorder.messages[0]["error"]["message"] == REFUSAL
    assert [message["result"] for message in recorder.messages[1:]] == [{"content": [[]]}] * 2
    assert recorder.losses[0].cause == "exited with code 0"
    await transport.close()


async def test_over_stdio_a_connection_closes_while_a_large_message_is_decoded(
    process_supervisor: ProcessSupervisor, recorder: RecordingReceiver
) -> None:
    transport = StdioTransport(StdioSpec(sys.executable, ("-c", STDIO)), process_supervisor)
    await transport.open(recorder)
    before = asyncio.all_tasks()
    await transport.send(call(1))
    async with asyncio.timeout(30):
        # A task is started for the large message.
        while asyncio.all_tasks() == before:
            await asyncio.sleep(0)
        await transport.close()
    assert recorder.messages == []
