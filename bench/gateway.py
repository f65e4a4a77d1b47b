"""Compare the gateway with its peers in front of the same origins: latency, CPU, calls per second, memory.

python bench/gateway.py [--quick] [--json FILE] [--write-docs] [--strict]

``direct`` is an origin without a gateway, ``forwarder`` the simplest possible gateway. Toolyard runs as
``toolyard serve`` with accounts, an API token, policy, audit and metrics. mcp-proxy and supergateway cannot
connect to a server by URL, so they start the origin's equivalent on stdio. All of them get requests from the
same clients in turns: a bare one, which costs next to nothing, an ordinary one, and one of the official SDK,
which takes longer than most of the gateways.

``supergateway`` runs with its defaults: HTTP with SSE, and one server for all clients. It sends every
response to every client, so clients must use different request ids. ``supergateway, stateful`` uses
streamable HTTP, as the others do, and starts a server for each session. The rows ``SDK server`` have a server
built with the official SDK, like most servers that a gateway starts, and supergateway logs as it does by
default. There the server takes most of the time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import json
import re
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from harness.bars import Bar, judge
from harness.clients import Ask, bare, connect, official, ordinary
from harness.gateways import GATEWAYS, direct, toolyard
from harness.machine import describe
from harness.processes import ROOT, http_servers
from harness.raw_http_client import Line, Peer
from harness.report import Column, Section, peer_table, replace_between, verdict_table

DOCS = ROOT / "docs" / "benchmarks.md"
START, END = "<!-- bench/gateway.py: start -->", "<!-- bench/gateway.py: end -->"
ORIGINS, CLIENTS, TOOLS = 3, 32, 2_000
SLOW = ("fastmcp",)
"""A call takes these a second, so one turn says enough."""

CLIENTS_OF = {"rate": bare, "rate.clients": ordinary, "rate.official": official}
KINDS = {"rate": "bare clients", "rate.clients": "ordinary clients", "rate.official": "clients of the SDK"}

BARS = (
    Bar("CPU per call", "call.cpu", 5.0, base=("call.cpu", "forwarder")),
    Bar("added latency p50 at one client", "added.p50", 5.0, base=("added.p50", "forwarder")),
    Bar("calls per second, 32 bare clients", "rate", 0.25, "at least", base=("rate", "forwarder")),
    Bar(
        "calls per second, 32 ordinary clients",
        "rate.clients",
        0.25,
        "at least",
        base=("rate.clients", "forwarder"),
    ),
    *(
        Bar(f"calls per second, 32 {kind}, over {peer}", measure, 5.0, "at least", base=(measure, peer))
        for peer in ("supergateway", "supergateway, stateful", "supergateway, SDK server")
        for measure, kind in KINDS.items()
    ),
    Bar("tools/list of 2,000 tools, warm, over 15 ms", "list.wall", 1.0, base=("list.wall", "allowed")),
    Bar("memory with 500 sessions, over 120 MB", "memory.many", 1.0, base=("memory.many", "allowed")),
)
SECTIONS = (
    Section(
        "The gateway",
        (
            Column("call.p50", "p50, ms", decimals=3),
            Column("call.p99", "p99, ms", decimals=3),
            Column("call.cpu", "CPU per call, ms", decimals=3),
            Column("rate", "calls/s, 32 bare clients", scale=1.0, decimals=0),
            Column("rate.clients", "calls/s, 32 ordinary clients", scale=1.0, decimals=0),
            Column("rate.official", "calls/s, 32 clients of the SDK", scale=1.0, decimals=0, compared=False),
            Column("list.wall", "tools/list of 2,000, ms", decimals=1, compared=False),
            Column("memory.one", "memory, 1 session, MB", scale=1e-6, decimals=0, compared=False),
            Column("memory.many", "500 sessions, MB", scale=1e-6, decimals=0, compared=False),
        ),
    ),
)


# Measuring.


class Samples:
    """What was measured, by measure and peer."""

    def __init__(self) -> None:
        self.all: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.add("list.wall", "allowed", 0.015)
        self.add("memory.many", "allowed", 120e6)

    def add(self, measure: str, peer: str, value: float) -> None:
        self.all[measure][peer].append(value)

    def medians(self) -> dict[str, dict[str, float]]:
        return {
            measure: {peer: median(values) for peer, values in row.items()}
            for measure, row in self.all.items()
        }


async def alone(peer: Peer, seconds: float, samples: Samples) -> None:
    """One client: latency, and the CPU of a call."""
    line = await connect(peer)
    calls = line.calls()
    for call in calls:
        await line.ask(call)
    call_seconds: list[float] = []
    cpu_time, until = peer.cpu(), time.perf_counter() + seconds
    while time.perf_counter() < until:
        start = time.perf_counter()
        await line.ask(calls[len(call_seconds) % len(calls)])
        call_seconds.append(time.perf_counter() - start)
    samples.add("call.cpu", peer.name, (peer.cpu() - cpu_time) / len(call_seconds))
    samples.add("call.p50", peer.name, median(call_seconds))
    samples.add(
        "call.p99",
        peer.name,
        quantiles(call_seconds, n=100)[98] if len(call_seconds) > 1 else call_seconds[0],
    )
    await line.end()


async def together(peer: Peer, seconds: float, samples: Samples) -> None:
    """Many clients at once: calls per second, by each kind of client."""
    results = await asyncio.gather(*(_session(peer) for _ in range(CLIENTS)))
    clients = {"rate": bare, "rate.clients": ordinary} | (
        {"rate.official": official} if peer.protocol else {}
    )
    for measure, client in clients.items():
        async with contextlib.AsyncExitStack() as stack:
            opening = (client(peer, session, number) for number, session in enumerate(results, 1))
            asks = [await stack.enter_async_context(one) for one in opening]
            start = time.perf_counter()
            final_results = await asyncio.gather(*(_repeat_calls(ask, start + seconds) for ask in asks))
            samples.add(measure, peer.name, sum(final_results) / (time.perf_counter() - start))
    for session in filter(None, results):
        await (await connect(peer, session)).end()


async def _repeat_calls(ask: Ask, until: float) -> int:
    call_count = 0
    while time.perf_counter() < until:
        await ask()
        call_count += 1
    return call_count


async def _session(peer: Peer) -> str | None:
    """A session where the peer wants one and its clients do not begin theirs with a stream.

    Its connection might be closed before all have theirs.
    """
    if peer.stream is not None:
        return None
    line = await connect(peer)
    line.close()
    return line.session


async def sessions(peer: Peer, samples: Samples) -> None:
    """Memory with one client session of the legacy era, and with many, where there are such.

    Servers that a peer starts are not counted.
    """
    lines: list[Line] = []
    for count in (min(peer.sessions, 1), peer.sessions):
        while len(lines) < count:
            lines.append(await connect(peer))
            if not peer.legacy:
                await lines[-1].begin()
        samples.add("memory.many" if count > 1 else "memory.one", peer.name, peer.memory())
    for line in lines:
        line.close()


async def listing(samples: Samples, rounds: int) -> None:
    """``tools/list`` of one large catalogue, warm."""
    async with http_servers("--tools", str(TOOLS)) as urls, toolyard(urls) as peer:
        line = await connect(peer)
        for number in range(rounds + 2):
            start, params = time.perf_counter(), dict[str, Any]()
            error_count = 0
            while True:
                body = await line.ask(peer.request(peer.message("tools/list", params)))
                error_count += body.count(b'"inputSchema"')
                # To read all of it would take the client longer than the answer took.
                following = re.search(rb'"nextCursor":"([^"]+)"', body)
                if following is None:
                    break
                params = {"cursor": following[1].decode()}
            assert error_count >= TOOLS, error_count
            if number >= 2:
                samples.add("list.wall", "toolyard", time.perf_counter() - start)
        line.close()


async def start(stack: contextlib.AsyncExitStack, urls: list[str], names: list[str]) -> list[Peer]:
    """Those that could be started and answer, after the origin itself."""
    peers = [direct(urls)]
    for name in names:
        try:
            peer = await stack.enter_async_context(GATEWAYS[name](urls))
            await alone(peer, 0.2, Samples())
            peers.append(peer)
        except Exception as error:
            print(f"{name} is left out: {error!r}", file=sys.stderr)
    return peers


async def run(quick: bool) -> Samples:
    samples = Samples()
    rounds, seconds = (2, 0.5) if quick else (5, 2.0)
    async with contextlib.AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(http_servers()) for _ in range(ORIGINS)]
        urls = [url for each in servers for url in each]
        peers = await start(stack, urls, [name for name in GATEWAYS if not quick or name not in SLOW])
        for number in range(rounds):
            for peer in peers:
                if peer.name not in SLOW or number == 0:
                    await alone(peer, seconds, samples)
                    await together(peer, seconds, samples)
        for peer in peers:
            await sessions(peer, samples)
    row = samples.all["call.p50"]
    for peer in peers[1:]:
        samples.add("added.p50", peer.name, median(row[peer.name]) - median(row["direct"]))
    await listing(samples, 5 if quick else 20)
    return samples


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write-docs", action="store_true")
    parser.add_argument("--strict", action="store_true", help="fail where a bar is missed")
    options = parser.parse_args()
    samples = asyncio.run(run(options.quick))
    medians = samples.medians()
    verdicts = judge(medians, BARS)
    peers = [peer for peer in ("direct", *GATEWAYS) if peer in medians["call.p50"]]
    machine = describe()
    parts = [
        f"{datetime.datetime.now(datetime.UTC).date()}; "
        + "; ".join(f"{key} {value}" for key, value in machine.items()),
        *(
            f"### {section.title}\n\n{peer_table(section, peers, medians, 'forwarder')}"
            for section in SECTIONS
        ),
        verdict_table(verdicts),
    ]
    text = "\n\n".join(parts)
    print(text)
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": machine, "medians": medians}, indent=2))
    if options.write_docs:
        DOCS.write_text(replace_between(DOCS.read_text(), START, END, text))
    return 1 if options.strict and not all(verdict.met for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
