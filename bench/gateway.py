"""The gateway beside its peers, in front of the same three origins: latency, CPU, calls per second, memory.

python bench/gateway.py [--quick] [--json FILE] [--write-docs] [--strict]

``direct`` is an origin alone, ``forwarder`` the least that can stand in front of several. Toolyard runs as
``toolyard serve`` with accounts, an API token, policy, audit and metrics. All are asked by the same bare
client, in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import json
import os
import re
import socket
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psutil

from harness.bars import Bar, judge
from harness.machine import describe
from harness.processes import BENCH, ROOT, http_servers, worker
from harness.report import Column, Section, peer_table, replace_between, verdict_table
from toolyard.config.settings import Settings
from toolyard.model.people import Right, Role, TokenScope
from toolyard.people import People
from toolyard.store import Database

DOCS = ROOT / "docs" / "benchmarks.md"
START, END = "<!-- bench/gateway.py: start -->", "<!-- bench/gateway.py: end -->"
THEIRS = str(ROOT / ".envs" / "bench-fastmcp" / "bin" / "python")
ORIGINS, CLIENTS, SESSIONS, TOOLS = 3, 32, 500, 2_000
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
}

BARS = (
    Bar("CPU per call", "call.cpu", 5.0, base=("call.cpu", "forwarder")),
    Bar("added latency p50 at one client", "added.p50", 5.0, base=("added.p50", "forwarder")),
    Bar("calls per second, 32 clients", "rate", 0.25, "at least", base=("rate", "forwarder")),
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
            Column("rate", "calls/s, 32 clients", scale=1.0, decimals=0),
            Column("list.wall", "tools/list of 2,000, ms", decimals=1, compared=False),
            Column("memory.one", "memory, 1 session, MB", scale=1e-6, decimals=0, compared=False),
            Column("memory.many", "500 sessions, MB", scale=1e-6, decimals=0, compared=False),
        ),
    ),
)


@dataclass
class Peer:
    """Something that answers. ``names`` are the tools that it has for ``echo``."""

    name: str
    port: int
    path: str
    names: list[str]
    process: psutil.Process
    head: str = ""

    def request(self, method: str, params: dict[str, Any], more: str = "") -> bytes:
        body = json.dumps(
            {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
        ).encode()
        named = f"Mcp-Name: {params['name']}\r\n" if "name" in params else ""
        head = (
            f"POST {self.path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
            f"Mcp-Method: {method}\r\n{named}{self.head}{more}Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def calls(self) -> list[bytes]:
        arguments = {"arguments": {"text": "hello"}}
        return [self.request("tools/call", {"name": name, **arguments}) for name in self.names]

    def cpu(self) -> float:
        used = self.process.cpu_times()
        return used.user + used.system


class Line:
    """One connection of a bare client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Line:
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=64 * 1024 * 1024))

    async def ask(self, request: bytes) -> bytes:
        self.writer.write(request)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        if b"transfer-encoding: chunked" in head:
            body = b""
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                body += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readexactly(2)
        else:
            at = head.index(b"content-length:")
            body = await self.reader.readexactly(int(head[at + 15 : head.index(b"\r\n", at)]))
        if not head.startswith(b"http/1.1 20") or b'"error"' in body[:200]:
            raise RuntimeError(f"{head.decode()[:200]} {body.decode()[:300]}")
        return body

    def close(self) -> None:
        self.writer.close()


# Peers.


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.asynccontextmanager
async def program(port: int, *words: str, **env: str) -> AsyncGenerator[psutil.Process]:
    """A program, once it listens."""
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *words, cwd=BENCH, stdin=quiet, stdout=quiet, stderr=quiet, env={**os.environ, **env}
    )
    try:
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(OSError):
                    (await Line.open(port)).close()
                    break
                await asyncio.sleep(0.05)
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        await process.wait()


async def token(folder: Path) -> str:
    """The text of a new token that may call."""
    database = await Database.open(folder, url=None, secret_key=None)
    try:
        people = People(database.people, Settings())
        user = await database.people.add_user("bench", Role.USER)
        # Somebody without a password has no account that counts.
        await database.people.set_password_hash(user.id, "none that fits")
        _, text = await people.make_token(user, "bench", TokenScope(frozenset({Right.CALL})), None)
        return text
    finally:
        await database.close()


@contextlib.asynccontextmanager
async def toolyard(urls: list[str]) -> AsyncGenerator[Peer]:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        servers = {f"s{n}": {"url": url, "type": "http", "shared": True} for n, url in enumerate(urls)}
        (Path(folder) / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        text = await token(Path(folder))
        words = (sys.executable, "-m", "toolyard", "serve", "--port", str(port))
        env = {
            "TOOLYARD_DATA_DIR": folder,
            "TOOLYARD_PEOPLE_MODE": "password",
            "TOOLYARD_WRITE_TOOLS": "allow",
        }
        async with program(port, *words, **env) as process:
            names = [f"s{n}_echo" for n in range(len(urls))]
            yield Peer("toolyard", port, "/mcp", names, process, f"Authorization: Bearer {text}\r\n")


@contextlib.asynccontextmanager
async def forwarder(urls: list[str]) -> AsyncGenerator[Peer]:
    async with worker("forwarder", sys.executable, "peers.forwarder", *urls) as one:
        names = [f"{n}_echo" for n in range(len(urls))]
        yield Peer("forwarder", one.hello, "/mcp", names, psutil.Process(one.process.pid))


@contextlib.asynccontextmanager
async def fastmcp(urls: list[str]) -> AsyncGenerator[Peer]:
    port = free_port()
    async with program(port, THEIRS, "-m", "peers.fastmcp_proxy", str(port), *urls) as process:
        yield Peer("fastmcp", port, "/mcp", [f"s{n}_echo" for n in range(len(urls))], process)


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
    line, calls = await Line.open(peer.port), peer.calls()
    for call in calls:
        await line.ask(call)
    taken: list[float] = []
    used, until = peer.cpu(), time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        await line.ask(calls[len(taken) % len(calls)])
        taken.append(time.perf_counter() - began)
    samples.add("call.cpu", peer.name, (peer.cpu() - used) / len(taken))
    samples.add("call.p50", peer.name, median(taken))
    samples.add("call.p99", peer.name, quantiles(taken, n=100)[98] if len(taken) > 1 else taken[0])
    line.close()


async def together(peer: Peer, seconds: float, samples: Samples) -> None:
    """Many clients at once: calls per second."""
    calls, until, done = peer.calls(), time.perf_counter() + seconds, 0

    async def one(number: int) -> None:
        nonlocal done
        line = await Line.open(peer.port)
        while time.perf_counter() < until:
            await line.ask(calls[number % len(calls)])
            done += 1
        line.close()

    began = time.perf_counter()
    await asyncio.gather(*map(one, range(CLIENTS)))
    samples.add("rate", peer.name, done / (time.perf_counter() - began))


async def sessions(peer: Peer, samples: Samples) -> None:
    """Memory with one client session, and with many, of the legacy era."""
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": META["io.modelcontextprotocol/clientInfo"],
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).encode()
    request = (
        f"POST {peer.path} HTTP/1.1\r\nHost: 127.0.0.1:{peer.port}\r\nContent-Type: application/json\r\n"
        f"Accept: application/json, text/event-stream\r\n{peer.head}Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    lines: list[Line] = []
    for count in range(SESSIONS):
        line = await Line.open(peer.port)
        lines.append(line)
        await line.ask(request)
        if count == 0:
            samples.add("memory.one", peer.name, peer.process.memory_full_info().uss)
    samples.add("memory.many", peer.name, peer.process.memory_full_info().uss)
    for line in lines:
        line.close()


async def listing(samples: Samples, rounds: int) -> None:
    """``tools/list`` of one large catalogue, warm."""
    async with http_servers("--tools", str(TOOLS)) as urls, toolyard(urls) as peer:
        line = await Line.open(peer.port)
        request = peer.request("tools/list", {})
        for number in range(rounds + 2):
            began, cursor = time.perf_counter(), None
            found = 0
            while True:
                asked = request if cursor is None else peer.request("tools/list", {"cursor": cursor})
                body = await line.ask(asked)
                found += body.count(b'"inputSchema"')
                # To read all of it would take the client longer than the answer took.
                following = re.search(rb'"nextCursor":"([^"]+)"', body)
                if following is None:
                    break
                cursor = following[1].decode()
            assert found >= TOOLS, found
            if number >= 2:
                samples.add("list.wall", "toolyard", time.perf_counter() - began)
        line.close()


async def run(quick: bool) -> Samples:
    samples = Samples()
    rounds, seconds = (2, 0.5) if quick else (5, 2.0)
    async with contextlib.AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(http_servers()) for _ in range(ORIGINS)]
        urls = [url for each in servers for url in each]
        origin = int(urls[0].split(":")[2].split("/")[0])
        listening = next(one for one in psutil.process_iter() if _listens(one, origin))
        peers = [Peer("direct", origin, "/mcp", ["echo"], listening)]
        for make in (forwarder, toolyard) if quick else (forwarder, toolyard, fastmcp):
            try:
                peers.append(await stack.enter_async_context(make(urls)))
                await alone(peers[-1], 0.2, Samples())
            except Exception as error:
                print(f"{make.__name__} is left out: {error}", file=sys.stderr)
                peers = [peer for peer in peers if peer.name != make.__name__]
        for number in range(rounds):
            for peer in peers:
                # A call of it takes a second, so one turn says enough.
                if peer.name != "fastmcp" or number == 0:
                    await alone(peer, seconds, samples)
                    await together(peer, seconds, samples)
        await sessions(next(peer for peer in peers if peer.name == "toolyard"), samples)
    row = samples.all["call.p50"]
    for name in ("forwarder", "toolyard", "fastmcp"):
        if name in row:
            samples.add("added.p50", name, median(row[name]) - median(row["direct"]))
    await listing(samples, 5 if quick else 20)
    return samples


def _listens(process: psutil.Process, port: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return any(one.laddr.port == port for one in process.net_connections("tcp") if one.status == "LISTEN")
    return False


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
    peers = [peer for peer in ("direct", "forwarder", "toolyard", "fastmcp") if peer in medians["call.p50"]]
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
