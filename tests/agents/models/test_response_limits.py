"""An endpoint that sends more than any model does fills no memory and holds up nobody."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from tests.agents.models.conftest import Make, ModelReply, ask

from toolyard.agents.models.errors import ModelFailed

pytestmark = pytest.mark.usefixtures("leaks")

MEGABYTE = 1_000_000
OK, REFUSED_STATUS = b"200 OK", b"400 Bad Request"


@dataclass
class RawEndpoint:
    """Sends one head and then a body, as long as somebody reads."""

    status: bytes
    body: list[bytes]
    headers: bytes = b""
    sent: int = 0
    head: bytes = b""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            self.head = await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 " + self.status + b"\r\nContent-Type: text/event-stream\r\n")
            writer.write(self.headers + b"Connection: close\r\n\r\n")
            for piece in self.body:
                writer.write(piece)
                await writer.drain()
                self.sent += len(piece)
        writer.close()

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def reply_of(make: Make, endpoint: RawEndpoint) -> ModelReply:
    async with endpoint.serve() as url:
        models = make(models={"m": {"model": "openai:m", "base_url": url}})
        reply = await ask(models, "hello")
        await models.close()
    assert isinstance(reply.error, ModelFailed)
    return reply


def chunk(content: str) -> bytes:
    choice = f'{{"index":0,"delta":{{"role":"assistant","content":"{content}"}},"finish_reason":null}}'
    start = '{"id":"1","object":"chat.completion.chunk","created":1,"model":"m"'
    return f'data: {start},"choices":[{choice}]}}\n\n'.encode()


async def test_of_an_error_only_the_beginning_is_read(make: Make) -> None:
    endpoint = RawEndpoint(REFUSED_STATUS, [b'{"error": {"message": "', *[b"x" * MEGABYTE] * 100])
    reply = await reply_of(make, endpoint)
    assert "(400) refused the request" in reply.error.cause
    # The rest is what the buffers of the sockets hold.
    assert endpoint.sent < 20 * MEGABYTE


@pytest.mark.parametrize("piece", [b"x" * MEGABYTE, b"data: x\n" * 125_000])
async def test_an_event_without_end_is_read_up_to_a_limit(make: Make, piece: bytes) -> None:
    endpoint = RawEndpoint(OK, [chunk("a"), b"data: ", *[piece] * 100])
    reply = await reply_of(make, endpoint)
    assert "sent an unexpected response: an event has more than 4,000,000 bytes" in reply.error.cause
    assert reply.text == "a"
    assert endpoint.sent < 20 * MEGABYTE


async def test_an_event_of_very_many_values_is_not_decoded(make: Make) -> None:
    endpoint = RawEndpoint(OK, [chunk("a"), b'data: {"x":[' + b"[]," * 200_001 + b"[]]}\n\n"])
    reply = await reply_of(make, endpoint)
    assert "sent an unexpected response: an event has more than 200,000 values" in reply.error.cause


async def test_many_events_may_be_longer_together(make: Make) -> None:
    endpoint = RawEndpoint(OK, [chunk("a" * 300_000)] * 6 + [chunk("").replace(b"null", b'"stop"')])
    async with endpoint.serve() as url:
        models = make(models={"m": {"model": "openai:m", "base_url": url}})
        reply = await ask(models, "hello")
        await models.close()
    assert (reply.error, len(reply.text)) == (None, 1_800_000)


@pytest.mark.parametrize("status", [OK, REFUSED_STATUS])
async def test_a_compressed_response_is_refused(make: Make, status: bytes) -> None:
    bomb = gzip.compress(b"\0" * 50 * MEGABYTE)
    endpoint = RawEndpoint(status, [bomb], b"Content-Encoding: gzip\r\n")
    reply = await reply_of(make, endpoint)
    assert b"accept-encoding: identity\r\n" in endpoint.head.lower()
    assert "sent an unexpected response: the response has the content encoding gzip" in reply.error.cause
