"""Answers so large that their memory is had in another way: each is whole, and nothing is kept of it."""

from __future__ import annotations

import asyncio
import mmap
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from toolyard.errors import BadAnswer, OutcomeUnknown
from toolyard.net import OutboundHttp
from toolyard.protocol import framing
from toolyard.protocol.jsonrpc import Message
from toolyard.transports.sse import SseTransport
from toolyard.transports.stdio.supervisor import ProcessSupervisor
from toolyard.transports.stdio.transport import StdioTransport
from toolyard.transports.streamable_http import StreamableHttpTransport
from toolyard.types.server import HttpSpec, StdioSpec

if TYPE_CHECKING:
    from tests.transports.conftest import RecordingReceiver

Url = Callable[..., str]
Spec = Callable[..., StdioSpec]
MapRefs = list[weakref.ref[mmap.mmap]]

TEXT_REPEATS = 17_000_000
TEXTS = {1: "a", 2: "b", 3: "c"}


@pytest.fixture
def map_refs(monkeypatch: pytest.MonkeyPatch) -> MapRefs:
    """All the memory that was taken for large answers."""
    taken: MapRefs = []
    real = framing._map_huge_pages

    def take(size: int) -> mmap.mmap | None:
        if (memory := real(size)) is None:
            pytest.skip("this system has no such memory")
        taken.append(weakref.ref(memory))
        return memory

    monkeypatch.setattr(framing, "_map_huge_pages", take)
    return taken


def count_live_maps(taken: MapRefs) -> int:
    return sum(memory() is not None for memory in taken)


def call(id: int, text: str = "", times: int = TEXT_REPEATS) -> Message:
    params = {"name": "echo", "arguments": {"text": text, "times": times}}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def texts(recorder: Any) -> dict[int, tuple[str, int]]:
    """Of each answer the letter that it is made of, and how long it is."""
    read = {message["id"]: message["result"]["content"][0]["text"] for message in recorder.messages}
    assert all(text == text[:1] * len(text) for text in read.values())
    return {id: (text[:1], len(text)) for id, text in read.items()}


WHOLE = {id: (text, TEXT_REPEATS) for id, text in TEXTS.items()}


@pytest.mark.parametrize("mode", ["good", "no-length", "packed", "sse-answers"])
async def test_large_answers_at_once_do_not_mix_over_http(
    mode: str, url: Url, net: OutboundHttp, recorder: RecordingReceiver, map_refs: MapRefs
) -> None:
    transport = StreamableHttpTransport(HttpSpec(url(mode)), net)
    await transport.open(recorder)
    transport.set_protocol_version("2026-07-28")
    await asyncio.gather(*(transport.send(call(id, text)) for id, text in TEXTS.items()))
    assert texts(recorder) == WHOLE
    assert (len(map_refs), count_live_maps(map_refs)) == (3, 0)
    await transport.close()


@pytest.mark.both_loops
async def test_large_answers_in_a_row_do_not_mix_over_stdio(
    spec: Spec, process_supervisor: ProcessSupervisor, recorder: RecordingReceiver, map_refs: MapRefs
) -> None:
    transport = StdioTransport(spec("good"), process_supervisor)
    await transport.open(recorder)
    for id, text in TEXTS.items():
        await transport.send(call(id, text))
    while len(recorder.messages) < 3:
        await recorder.next()
    assert texts(recorder) == WHOLE
    assert (len(map_refs), count_live_maps(map_refs)) == (3, 0)
    await transport.close()


async def test_large_answers_in_a_row_do_not_mix_on_the_stream_of_the_older_transport(
    url: Url, net: OutboundHttp, recorder: RecordingReceiver, map_refs: MapRefs
) -> None:
    transport = SseTransport(HttpSpec(url("good", era="sse")), net)
    await transport.open(recorder)
    await asyncio.gather(*(transport.send(call(id, text)) for id, text in TEXTS.items()))
    while len(recorder.messages) < 3:
        await recorder.next()
    assert texts(recorder) == WHOLE
    assert (len(map_refs), count_live_maps(map_refs)) == (3, 0)
    await transport.close()


async def test_a_partial_large_answer_is_freed_when_the_connection_breaks(
    url: Url, net: OutboundHttp, recorder: RecordingReceiver, map_refs: MapRefs
) -> None:
    transport = StreamableHttpTransport(HttpSpec(url("closes-in-answer", length="60000000")), net)
    await transport.open(recorder)
    transport.set_protocol_version("2026-07-28")
    with pytest.raises(OutcomeUnknown, match="in the middle of its response"):
        await transport.send(call(1))
    assert (len(map_refs), count_live_maps(map_refs)) == (1, 0)
    await transport.close()


async def test_a_partial_large_answer_is_freed_when_its_call_is_cancelled(
    url: Url, net: OutboundHttp, recorder: RecordingReceiver, map_refs: MapRefs
) -> None:
    transport = StreamableHttpTransport(HttpSpec(url("drips", every="60")), net)
    await transport.open(recorder)
    transport.set_protocol_version("2026-07-28")
    sending = asyncio.ensure_future(transport.send(call(1, "a")))
    async with asyncio.timeout(30):
        while not map_refs:
            await asyncio.sleep(0.01)
    assert count_live_maps(map_refs) == 1
    sending.cancel()
    await asyncio.wait({sending})
    assert count_live_maps(map_refs) == 0
    await transport.close()


async def test_a_large_answer_that_is_not_json_is_an_error_with_its_beginning(
    url: Url, net: OutboundHttp, recorder: RecordingReceiver, map_refs: MapRefs
) -> None:
    transport = StreamableHttpTransport(HttpSpec(url("bad-json-at-length")), net)
    await transport.open(recorder)
    transport.set_protocol_version("2026-07-28")
    with pytest.raises(BadAnswer, match=r'a response that is not JSON: \{"jsonrpc": "2.0",$'):
        await transport.send(call(1))
    assert (len(map_refs), count_live_maps(map_refs)) == (1, 0)
    await transport.close()


async def test_an_answer_over_the_limit_is_not_put_together_to_its_end(
    url: Url, net: OutboundHttp, recorder: RecordingReceiver, map_refs: MapRefs
) -> None:
    transport = StreamableHttpTransport(HttpSpec(url("oversize-without-length")), net, limit=20_000_000)
    await transport.open(recorder)
    transport.set_protocol_version("2026-07-28")
    with pytest.raises(BadAnswer, match="over the limit of 20000000"):
        await transport.send(call(1))
    assert (len(map_refs), count_live_maps(map_refs)) == (1, 0)
    await transport.close()


async def test_large_lines_that_are_not_messages_are_noise_like_any_other(
    spec: Spec, process_supervisor: ProcessSupervisor, recorder: RecordingReceiver, map_refs: MapRefs
) -> None:
    transport = StdioTransport(spec("large-noise"), process_supervisor)
    await transport.open(recorder)
    await transport.send(call(1, "hello", times=1))
    while not recorder.messages:
        await recorder.next()
    assert [message["result"]["content"][0]["text"] for message in recorder.messages] == ["hello"]
    assert transport.get_info().skipped_lines == 3
    assert count_live_maps(map_refs) == 0
    await transport.close()
