"""What failed is freed at once: an error keeps the frames that it passed, and nothing there keeps it."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress

import aiohttp
import pytest
from tests.net.raw_server import (
    OK,
    ask,
    read_body,
    run_closing_server,
    run_fixed_reply_server,
    run_raw_server,
)

from toolyard.net import HttpResponse, OutboundHttp
from toolyard.net.http1.connection import Http1Connection

HANGS = run_fixed_reply_server()


async def failing(net: OutboundHttp, response_bytes: bytes) -> None:
    async with run_raw_server(run_closing_server(response_bytes)) as server:
        with pytest.raises(aiohttp.ClientError):
            await read_body(await ask(net, server.url))


async def cancel_requests(net: OutboundHttp, response_bytes: bytes) -> None:
    async with run_raw_server(run_fixed_reply_server(response_bytes) if response_bytes else HANGS) as server:
        task = asyncio.ensure_future(_all(net, server.url))
        while not server.heads:
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _all(net: OutboundHttp, url: object) -> bytes:
    return await read_body(await ask(net, url))  # type: ignore[arg-type]


def _ours() -> list[HttpResponse | Http1Connection]:
    return [each for each in gc.get_objects() if type(each) in (HttpResponse, Http1Connection)]


@pytest.mark.both_loops
@pytest.mark.parametrize(
    ("way", "response_bytes"),
    [
        (failing, b""),
        (failing, b"no HTTP at all\r\n\r\n"),
        (failing, OK[:-1]),
        (cancel_requests, b""),
        (cancel_requests, OK[:-1]),
    ],
    ids=["no answer", "no HTTP", "half an answer", "cancelled", "cancelled in the body"],
)
async def test_nothing_waits_for_the_collector(net: OutboundHttp, way: object, response_bytes: bytes) -> None:
    await way(net, OK[:-1])  # type: ignore[operator]
    gc.collect()
    # What others in this process still hold is not ours to judge.
    before = {id(each) for each in _ours()}
    gc.disable()
    try:
        for _ in range(3):
            await way(net, response_bytes)  # type: ignore[operator]
        async with asyncio.timeout(20):
            # The loop may still have something to close.
            while any(id(each) not in before for each in _ours()):
                await asyncio.sleep(0.01)
    finally:
        gc.enable()
