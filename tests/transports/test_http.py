"""The HTTP transports alone: what each message carries, and what is heard."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

from toolyard.errors import BadAnswer, OutcomeUnknown, Unreachable
from toolyard.net import OutboundHttp
from toolyard.protocol.jsonrpc import Message
from toolyard.transports.sse import SseTransport
from toolyard.transports.streamable_http import StreamableHttpTransport
from toolyard.types.server import HttpSpec

if TYPE_CHECKING:
    from tests.transports.conftest import RecordingReceiver

Url = Callable[..., str]
Until = Callable[..., Awaitable[None]]


def call(id: int, text: str = "", name: str = "echo") -> Message:
    params = {"name": name, "arguments": {"text": text}}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


HELLO: Message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}


async def test_sending_returns_when_the_answer_was_handed_over(
    url: Url, net: OutboundHttp, recorder: RecordingReceiver
) -> None:
    transport = StreamableHttpTransport(HttpSpec(url("good")), net)
    await transport.open(recorder)
    transport.set_protocol_version("2026-07-28")
    await transport.send(call(7, "hello"))
    assert [message["id"] for message in recorder.messages] == [7]
    await transport.close()
    with pytest.raises(Unreachable, match="the connection is closed"):
        await transport.send(call(8))


async def test_an_answer_on_a_stream_is_heard_before_the_stream_ends(
    url: Url, net: OutboundHttp, recorder: RecordingReceiver
) -> None:
    transport = StreamableHttpTransport(HttpSpec(url("sse-stays-open")), net)
    await transport.open(recorder)
    transport.set_protocol_version("2026-07-28")
    async with asyncio.timeout(30):
        await transport.send(call(7, "hello"))
    assert recorder.messages[0]["result"]["content"][0]["text"] == "hello"
    await transport.close()


async def test_everything_on_a_stream_is_handed_on_in_order(
    url: Url, net: OutboundHttp, recorder: RecordingReceiver
) -> None:
    transport = StreamableHttpTransport(HttpSpec(url("good", era="legacy")), net)
    await transport.open(recorder)
    await transport.send(HELLO)
    transport.set_protocol_version("2025-06-18")
    steps = {"name": "steps", "arguments": {"count": 3, "every": 0}, "_meta": {"progressToken": 7}}
    await transport.send({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": steps})
    progress = [m["params"]["progress"] for m in recorder.messages if m.get("method")]
    assert progress == [0, 1, 2]
    assert recorder.messages[-1]["id"] == 7
    await transport.close()


async def test_a_session_is_kept_and_ended_and_never_taken_into_the_modern_era(
    url: Url, net: OutboundHttp, recorder: RecordingReceiver, list_requests: Callable[[], Any]
) -> None:
    transport = StreamableHttpTransport(HttpSpec(url("good", era="legacy")), net)
    await transport.open(recorder)
    await transport.send(HELLO)
    transport.set_protocol_version("2025-06-18")
    assert not transport.cancels_on_disconnect
    await transport.send(call(2))
    await transport.close()
    await transport.close()
    assert [entry["verb"] for entry in list_requests()] == ["POST", "POST", "DELETE"]
    transport.set_protocol_version("2026-07-28")
    assert transport.cancels_on_disconnect


async def test_a_server_that_does_not_answer_the_session_end_does_not_block(
    url: Url, net: OutboundHttp, recorder: RecordingReceiver, list_requests: Callable[[], Any]
) -> None:
    transport = StreamableHttpTransport(HttpSpec(url("stalls-at-goodbye", era="legacy")), net)
    await transport.open(recorder)
    await transport.send(HELLO)
    transport.set_protocol_version("2025-06-18")
    async with asyncio.timeout(30):
        await transport.close()
    assert [entry["verb"] for entry in list_requests()] == ["POST", "DELETE"]


async def test_the_configured_headers_yield_to_those_of_the_protocol(
    url: Url, net: OutboundHttp, recorder: RecordingReceiver, list_requests: Callable[[], Any]
) -> None:
    spec = HttpSpec(url("good"), headers={"accept": "text/html", "X-Mine": "yes", "mcp-method": "wrong"})
    transport = StreamableHttpTransport(spec, net)
    await transport.open(recorder)
    transport.set_protocol_version("2026-07-28")
    await transport.send(call(1))
    headers = list_requests()[0]["headers"]
    assert headers["accept"] == "application/json, text/event-stream"
    assert headers["mcp-method"] == "tools/call"
    assert headers["x-mine"] == "yes"
    await transport.close()


async def test_the_older_transport_loses_its_stream_once(
    url: Url, net: OutboundHttp, recorder: RecordingReceiver
) -> None:
    transport = SseTransport(HttpSpec(url("stream-ends", era="sse")), net)
    await transport.open(recorder)
    await transport.send(HELLO)
    await recorder.next()
    assert recorder.messages[0]["id"] == 1
    await transport.send(call(2))
    await recorder.next()
    assert [type(loss) for loss in recorder.losses] == [OutcomeUnknown]
    with pytest.raises(Unreachable):
        await transport.send(call(3))
    await transport.close()
    await transport.close()
    assert len(recorder.losses) == 1


async def test_the_older_transport_hears_answers_though_its_posts_are_slow_to_end(
    url: Url, net: OutboundHttp, recorder: RecordingReceiver
) -> None:
    transport = SseTransport(HttpSpec(url("post-stays-open", era="sse")), net)
    await transport.open(recorder)
    async with asyncio.timeout(30):
        await transport.send(call(2, "hello"))
    assert recorder.messages[0]["id"] == 2
    await transport.close()


async def test_an_open_that_fails_leaves_nothing(
    url: Url, net: OutboundHttp, recorder: RecordingReceiver
) -> None:
    transport = SseTransport(HttpSpec(url("endpoint", when="always", to="http://elsewhere/")), net)
    with pytest.raises(BadAnswer, match="another origin"):
        await transport.open(recorder)
    await transport.close()
    assert len(recorder.losses) <= 1
