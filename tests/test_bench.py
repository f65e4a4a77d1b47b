"""The benchmark's own parts: server, drivers, bars and tables. Nothing here is timed."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import mcp
import pytest
from tests.tool_calls import call_tool

from toolyard.clients import ConnectionManager
from toolyard.types.server import HttpSpec, Server, StdioSpec

BENCH = Path(__file__).resolve().parents[1] / "bench"
sys.path.append(str(BENCH))

import chat  # noqa: E402
import chat_page  # noqa: E402
import gateway  # noqa: E402
from harness import gateways  # noqa: E402
from harness.bars import BARS, Bar, judge  # noqa: E402
from harness.client_phases import PEERS, Run, Sizes  # noqa: E402
from harness.clients import bare, connect, ordinary  # noqa: E402
from harness.processes import ChildFailed, Missing, http_servers, worker  # noqa: E402
from harness.raw_http_client import Line, Peer  # noqa: E402
from harness.report import Column, Section, peer_table, replace_between, verdict_table  # noqa: E402

ERAS = ("both", "modern", "legacy")
STDIO = ("-m", "servers.stdio", "--tools", "20", "--era")
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


STREAMING = """
import sys
from mcp.server.mcpserver import Context, MCPServer
app = MCPServer("s", log_level="ERROR")
@app.tool()
async def echo(text: str, context: Context) -> str:
    await context.info("soon")
    return text
app.run("sse", port=int(sys.argv[1]))
"""


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params | {"_meta": META}}


async def post(url: str, message: dict[str, Any], **headers: str) -> bytes:
    """Send a POST over a raw socket; return the first part of the response."""
    host, port = url.removeprefix("http://").removesuffix("/mcp").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps(message).encode()
    lines = [f"POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    try:
        return await asyncio.wait_for(reader.read(65536), 30)
    finally:
        writer.close()
        await writer.wait_closed()


async def use(manager: ConnectionManager) -> None:
    async with manager:
        await manager.connect()
        assert len((await manager.list_tools("s")).items) == 23
        answer = await call_tool(manager, "s", "echo", {"text": 'á\n"'})
        assert answer["content"] == [{"type": "text", "text": 'á\n"'}]
        big = await call_tool(manager, "s", "big", {"mb": 1})
        assert 999_000 < len(big["content"][0]["text"]) <= 1_000_000


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("shape", [(), ("--sse",)])
async def test_our_client_uses_the_benchmarks_server_over_http(era: str, shape: tuple[str, ...]) -> None:
    async with http_servers("--tools", "20", "--era", era, *shape) as urls:
        await use(ConnectionManager([Server("s", HttpSpec(urls[0]))]))


@pytest.mark.parametrize("era", ERAS)
async def test_our_client_uses_the_benchmarks_server_over_stdio(era: str) -> None:
    spec = StdioSpec(sys.executable, args=(*STDIO, era), cwd=str(BENCH))
    await use(ConnectionManager([Server("s", spec)]))


@pytest.mark.parametrize("era", ERAS)
async def test_the_reference_client_finds_the_same_server_over_both_transports(era: str) -> None:
    stdio = mcp.StdioServerParameters(command=sys.executable, args=[*STDIO, era], cwd=BENCH)
    async with http_servers("--tools", "20", "--era", era) as urls:
        for target in (urls[0], stdio):
            async with mcp.Client(target) as client:
                assert client.protocol_version == ("2025-11-25" if era == "legacy" else "2026-07-28")
                assert len((await client.list_tools()).tools) == 23
                assert (await client.call_tool("echo", {"text": "x"})).content[0].text == "x"


async def test_a_modern_request_with_contradicting_header_and_body_is_refused() -> None:
    async with http_servers() as urls:
        answer = await post(urls[0], request("tools/list"), Mcp_Method="tools/call")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"-32020" in answer


async def test_a_subscription_is_acknowledged_first_and_stays_open() -> None:
    response = request("subscriptions/listen", notifications={"toolsListChanged": True})
    headers = {"Mcp_Method": "subscriptions/listen", "MCP_Protocol_Version": "2026-07-28"}
    async with http_servers() as urls:
        answer = await post(urls[0], response, **headers)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"text/event-stream" in head
    message = json.loads(body.split(b"data: ")[1].split(b"\n")[0])
    assert message["method"] == "notifications/subscriptions/acknowledged"
    assert message["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": 7}
    assert message["params"]["notifications"] == {"toolsListChanged": True}
    assert not body.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("peer", ["floor", "toolyard"])
@pytest.mark.parametrize("kind", ["http", "sse", "stdio"])
async def test_a_driver_answers_every_command(peer: str, kind: str) -> None:
    run = Run([peer], Sizes.quick())
    shape = ("--sse",) if kind == "sse" else ()
    async with (
        http_servers("--tools", "20", *shape) as urls,
        worker(peer, sys.executable, *PEERS[peer].driver) as driver,
    ):
        target = run.stdio(20) if kind == "stdio" else {"url": urls[0]}
        open_times = await driver.ask("open", targets=[target, target])
        assert open_times["tools"] == [23, 23]
        assert open_times["cpu"] > 0
        assert (await driver.ask("list", times=3))["tools"] == 23
        assert (await driver.ask("calls", times=5, at_once=3))["wall"] > 0
        assert (await driver.ask("big", megabytes=2))["wall"] > 0
        assert "children_cpu" in await driver.ask("close")


async def test_a_failing_command_is_told_and_the_driver_lives_on() -> None:
    async with worker("floor", sys.executable, "peers.floor") as driver:
        with pytest.raises(ChildFailed, match="floor: open: ConnectionRefused"):
            await driver.ask("open", targets=[{"url": "http://127.0.0.1:9/mcp"}])
        assert await driver.ask("memory") is not None


async def test_a_peer_without_its_environment_or_its_library_is_missing() -> None:
    with pytest.raises(Missing, match="environment is not there"):
        async with worker("mcp", str(BENCH / "no" / "python"), "peers.mcp"):
            pass
    with pytest.raises(Missing, match="No module named 'langchain_mcp_adapters'"):
        async with worker("langchain", sys.executable, "peers.langchain"):
            pass


def test_every_round_begins_with_another_peer_and_leaves_none_out() -> None:
    turns = Run(["a", "b", "c"], Sizes()).turns(4)
    assert turns == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]


def test_a_bar_is_met_on_its_side_of_the_limit_only() -> None:
    bars = (Bar("cpu", "m", 0.25), Bar("rate", "m", 0.25, "at least"), Bar("none", "other", 1))
    results_met = [verdict.met for verdict in judge({"m": {"mcp": 4.0, "toolyard": 0.9}}, bars)]
    assert results_met == [True, False, False]
    results_met = [verdict.met for verdict in judge({"m": {"mcp": 4.0, "toolyard": 1.1}}, bars)]
    assert results_met == [False, True, False]


def test_ten_servers_are_held_to_the_cores_bound_where_it_is_longer_than_one_alone() -> None:
    bar = next(bar for bar in BARS if bar.measure == "ten.stdio.wall")
    measurements = {"ten.stdio.wall": {"toolyard": 3.0}, "one.stdio.wall": {"toolyard": 1.0}}
    assert judge(measurements, (bar,))[0].ratio == 3.0
    assert judge(measurements | {"ten.stdio.bound": {"floor": 2.5}}, (bar,))[0].ratio == 1.2
    assert judge(measurements | {"ten.stdio.bound": {"floor": 0.5}}, (bar,))[0].ratio == 3.0


def test_the_table_shows_each_number_with_its_ratio_and_a_dash_for_none() -> None:
    section = Section("t", (Column("m", "ms", decimals=1), Column("g", "growth", scale=1, compared=False)))
    medians = {"m": {"mcp": 0.002, "toolyard": 0.0005}, "g": {"mcp": 4.0}}
    assert peer_table(section, ["mcp", "toolyard"], medians).splitlines() == [
        "|          |           ms | growth |",
        "| -------- | -----------: | -----: |",
        "| mcp      | 2.0 (1.00 ×) |   4.00 |",
        "| toolyard | 0.5 (0.25 ×) |      — |",
    ]


def test_the_verdicts_say_met_missed_or_not_measured() -> None:
    bars = (Bar("a", "m", 0.3), Bar("b", "m", 0.2), Bar("c", "n", 1))
    lines = verdict_table(judge({"m": {"mcp": 4.0, "toolyard": 1.0}}, bars)).splitlines()
    assert [line.split("|")[-2].strip() for line in lines[2:]] == ["met", "missed", "not measured"]


def test_the_documentation_page_is_rewritten_between_its_markers_only() -> None:
    assert replace_between("a <s>old<e> b", "<s>", "<e>", "new\n") == "a <s>\n\nnew\n\n<e> b"
    with pytest.raises(ValueError, match="no <s>"):
        replace_between("a <e>", "<s>", "<e>", "new")


async def test_the_benchmark_of_chats_measures_every_part_and_checks_the_received_events() -> None:
    sizes = chat.Sizes.tiny()
    result = await chat.run(sizes)
    assert all(each["p50"] > 0 for each in result["first"].values())
    assert all(each["cpu"] >= 0 for each in (*result["answer"].values(), *result["many"].values()))
    assert len(result["paint"]) == 2
    text = chat.report(result, sizes)
    assert "3 concurrent turns, 5 tokens each: no event lost, order preserved." in text
    assert len([line for line in text.splitlines() if line.startswith("| toolyard ")]) == 2


def test_a_token_that_is_lost_doubled_or_late_fails_the_benchmark_of_chats() -> None:
    for numbers, seqs in (([0, 1], [1, 2]), ([0, 2, 1], [1, 2]), ([0, 1, 2], [2, 1]), ([0, 1, 1, 2], [1])):
        with pytest.raises(AssertionError):
            chat.TokenTimes(numbers=numbers, seqs=seqs).check(3)
    chat.TokenTimes(numbers=[0, 1], seqs=[1, 2], whole=[0, 1, 2]).check(3)


def test_the_benchmark_of_chat_pages_compares_versions_and_judges_every_bar() -> None:
    light, heavy = (chat_page.PageLoad(each, 1, 1, 1, 0.01, each, each) for each in (50_000, 100_000))
    loads = {(version, chat): [light] for version in ("now", "base") for chat in chat_page.TURNS}
    text, is_met = chat_page.report(chat_page.ChatPages(loads | {("base", "13 turns"): [heavy]}))
    assert (is_met, text.count(" met |"), "2,000 events, base version" in text) == (True, 4, True)
    for row in (("now", "13 turns"), ("now", "2,000 events")):
        text, is_met = chat_page.report(chat_page.ChatPages(loads | {row: [heavy]}))
        assert (is_met, "missed" in text) == (False, True)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("shape", [(), ("--sse",)])
async def test_the_benchmark_of_gateways_asks_in_both_eras_and_reads_answers_of_both_shapes(
    legacy: bool, shape: tuple[str, ...]
) -> None:
    samples = gateway.Samples()
    async with http_servers("--era", "legacy" if legacy else "modern", *shape) as urls:
        peer = dataclasses.replace(gateways.direct(urls), legacy=legacy, sessions=2 if legacy else 0)
        await gateway.alone(peer, 0.05, samples)
        await gateway.together(peer, 0.05, samples)
        await gateway.sessions(peer, samples)
        line = await Line.open(peer)
        assert (line.session is not None) == legacy
        await line.end()
        if legacy:
            again = await Line.open(peer, line.session)
            with pytest.raises(RuntimeError, match="404"):
                await again.ask(again.calls()[0])
            again.close()
    measures = {"call.p50", "call.p99", "rate", "rate.clients", "memory.one"}
    measures |= {"memory.many"} if legacy else set()
    assert {name for name, row in samples.medians().items() if row.get("direct", 0) > 0} >= measures


@pytest.fixture
async def streaming_peer() -> AsyncGenerator[Peer]:
    """The reference server over HTTP with SSE, with a tool that sends a message before its result."""
    port = gateways.free_port()
    async with gateways.program(port, sys.executable, "-W", "ignore", "-c", STREAMING, str(port)) as process:
        yield Peer("streaming", port, ["echo"], process, legacy=True, sessions=2, stream="/sse")


async def test_the_benchmark_of_gateways_measures_one_with_streamed_answers(
    streaming_peer: Peer,
) -> None:
    samples = gateway.Samples()
    await gateway.alone(streaming_peer, 0.05, samples)
    await gateway.together(streaming_peer, 0.05, samples)
    await gateway.sessions(streaming_peer, samples)
    measures = {"call.p50", "call.p99", "rate", "rate.clients", "memory.one", "memory.many"}
    assert {name for name, row in samples.medians().items() if row.get("streaming", 0) > 0} >= measures


async def test_a_client_picks_its_own_answer_from_a_stream_that_brings_those_of_others(
    streaming_peer: Peer,
) -> None:
    line = await connect(streaming_peer, number=1)
    for other in (11, 2, 21):
        await line.post(streaming_peer.request(streaming_peer.calls(other)[0], line.session))
    assert b'"hello 1"' in await line.ask(line.calls()[0])
    with pytest.raises(RuntimeError, match="error"):
        await line.ask(streaming_peer.request(streaming_peer.message("tools/none", {}), line.session))
    line.close()


async def test_a_client_of_a_gateway_is_not_content_with_an_error(streaming_peer: Peer) -> None:
    async with http_servers("--era", "legacy") as urls:
        direct = dataclasses.replace(gateways.direct(urls), legacy=True, names=["none"])
        line = await connect(direct)
        for client in (bare, ordinary):
            for peer in (direct, dataclasses.replace(streaming_peer, names=["none"])):
                async with client(peer, None if peer.stream else line.session, 1) as ask:
                    with pytest.raises(RuntimeError, match="none"):
                        await ask()
        await line.end()


async def test_a_gateway_that_cannot_be_started_is_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(gateways, "ENVIRONMENTS", tmp_path)
    missing = ["fastmcp", "mcp-proxy", "supergateway", "supergateway, stateful"]
    async with contextlib.AsyncExitStack() as stack, http_servers() as urls:
        peers = await gateway.start(stack, urls, ["forwarder", *missing])
        assert [peer.name for peer in peers] == ["direct", "forwarder"]
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" is left out")[0] for line in lines] == missing
