"""The phases of the client's benchmark. Each takes its peers by turns, round after round."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from harness.machine import cores
from harness.processes import ROOT, ChildFailed, Worker, http_servers, output, worker

__all__ = ["PEERS", "PHASES", "Run", "Sizes", "TheirEnv"]

FAST_ENOUGH = 3.0
"""Seconds that a 40 MB result may take to be asked for again; one sample of a slow one will do."""

IMPORT = "import time; began = time.process_time(); {}; print(time.process_time() - began)"
BARE = "print(open('/proc/self/smaps_rollup').read())"


@dataclass(frozen=True, slots=True)
class TheirEnv:
    """How a peer is started: its environment, its driver, and what its user imports."""

    env: str
    driver: tuple[str, ...]
    imports: str

    @property
    def python(self) -> str:
        return str(ROOT / self.env / "bin" / "python")


PEERS = {
    "floor": TheirEnv(".venv", ("peers.floor",), "import asyncio"),
    "mcp": TheirEnv(".envs/bench-mcp", ("peers.mcp",), "from mcp import Client"),
    "toolyard": TheirEnv(".venv", ("peers.toolyard",), "from toolyard.clients import ConnectionManager"),
    "toolyard on uvloop": TheirEnv(
        ".venv",
        ("peers.toolyard", "--uvloop"),
        "import uvloop; from toolyard.clients import ConnectionManager",
    ),
    "fastmcp": TheirEnv(".envs/bench-fastmcp", ("peers.fastmcp",), "from fastmcp import Client"),
    "pydantic-ai": TheirEnv(
        ".envs/bench-pydantic-ai", ("peers.pydantic_ai",), "from pydantic_ai.mcp import MCPToolset"
    ),
    "openai-agents": TheirEnv(
        ".envs/bench-openai-agents", ("peers.openai_agents",), "from agents.mcp import MCPServerManager"
    ),
    "langchain": TheirEnv(
        ".envs/bench-langchain",
        ("peers.langchain",),
        "from langchain_mcp_adapters.client import MultiServerMCPClient",
    ),
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    rounds: int = 7
    calls: int = 300
    calls_at_once: int = 960
    lists: int = 5
    connects: int = 5
    memory_rounds: int = 3
    bigs: int = 5
    imports: int = 5

    @classmethod
    def quick(cls) -> Sizes:
        return cls(
            rounds=3, calls=150, calls_at_once=480, lists=3, connects=3, memory_rounds=1, bigs=3, imports=3
        )


@dataclass(slots=True)
class Run:
    """One run: the peers that take part, what was measured and what failed."""

    peers: Sequence[str]
    sizes: Sizes
    era: str = "both"
    say: Callable[[str], None] = print
    samples: dict[str, dict[str, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    failures: list[str] = field(default_factory=list)
    hellos: dict[str, dict[str, str]] = field(default_factory=dict)

    def note(self, measure: str, peer: str, value: float) -> None:
        self.samples[measure][peer].append(value)

    @property
    def medians(self) -> dict[str, dict[str, float]]:
        return {
            measure: {peer: median(values) for peer, values in row.items()}
            for measure, row in self.samples.items()
        }

    def turns(self, rounds: int) -> list[list[str]]:
        """The peers in each round, beginning with another one each time."""
        shifts = [number % len(self.peers) for number in range(rounds)]
        return [[*self.peers[shift:], *self.peers[:shift]] for shift in shifts]

    def stdio(self, tools: int = 0, bigs: str = "") -> dict[str, Any]:
        """A server on standard streams. Drivers run in the benchmark's folder, and so do their children."""
        words = ["-m", "servers.stdio", "--tools", str(tools), "--era", self.era, "--bigs", bigs]
        return {"command": sys.executable, "args": words}

    def slow_stdio(self, tools: int, delay: float) -> dict[str, Any]:
        """The same behind a wrapper that waits first, as one does that fetches its server."""
        plain = self.stdio(tools)
        words = shlex.join([plain["command"], *plain["args"]])
        return {"command": "/bin/sh", "args": ["-c", f"sleep {delay}; exec {words}"]}

    @contextlib.asynccontextmanager
    async def drivers(self) -> AsyncIterator[dict[str, Worker]]:
        """A driver of each peer, all of them alive until the end; raises Missing."""
        async with contextlib.AsyncExitStack() as stack:
            drivers = {}
            for peer in self.peers:
                their = PEERS[peer]
                drivers[peer] = await stack.enter_async_context(worker(peer, their.python, *their.driver))
                self.hellos[peer] = drivers[peer].hello["packages"]
            yield drivers

    @contextlib.contextmanager
    def failing(self, drivers: dict[str, Worker], peer: str):
        """A peer that fails is out for the rest of the phase, and the run has failed; the others go on."""
        try:
            yield
        except ChildFailed as error:
            self.failures.append(str(error))
            self.say(f"  failed: {error}")
            drivers.pop(peer)


async def calls(run: Run) -> None:
    """Calls one after the other, then 32 at once, over HTTP, HTTP answered as a stream, and stdio."""
    async with (
        http_servers("--era", run.era) as plain,
        http_servers("--era", run.era, "--sse") as sse_servers,
    ):
        kinds = {"http": {"url": plain[0]}, "sse": {"url": sse_servers[0]}, "stdio": run.stdio()}
        for kind, target in kinds.items():
            run.say(f"calls over {kind}")
            async with run.drivers() as drivers:
                for peer in run.peers:
                    with run.failing(drivers, peer):
                        await drivers[peer].ask("open", targets=[target])
                        await drivers[peer].ask("calls", times=64, at_once=1)
                        await drivers[peer].ask("calls", times=64, at_once=32)
                for turn in run.turns(run.sizes.rounds):
                    for peer in filter(drivers.__contains__, turn):
                        with run.failing(drivers, peer):
                            await _calls_round(run, kind, peer, drivers[peer])


async def _calls_round(run: Run, kind: str, peer: str, driver: Worker) -> None:
    times = run.sizes.calls
    call_times = await driver.ask("calls", times=times, at_once=1)
    run.note(f"{kind}.call.cpu", peer, call_times["cpu"] / times)
    run.note(f"{kind}.call.wall", peer, call_times["wall"] / times)
    times = run.sizes.calls_at_once
    call_times = await driver.ask("calls", times=times, at_once=32)
    run.note(f"{kind}.rate", peer, times / call_times["wall"])
    run.note(f"{kind}.busy.cpu", peer, call_times["cpu"] / times)


async def lists(run: Run) -> None:
    """Lists 500 tools again and again on an open connection."""
    async with http_servers("--era", run.era, "--tools", "500") as urls:
        for kind, target in {"http": {"url": urls[0]}, "stdio": run.stdio(tools=500)}.items():
            run.say(f"500 tools over {kind}")
            async with run.drivers() as drivers:
                for peer in run.peers:
                    with run.failing(drivers, peer):
                        await drivers[peer].ask("open", targets=[target])
                        await drivers[peer].ask("list", times=2)
                for turn in run.turns(run.sizes.rounds):
                    for peer in filter(drivers.__contains__, turn):
                        with run.failing(drivers, peer):
                            call_times = await drivers[peer].ask("list", times=run.sizes.lists)
                            run.note(f"{kind}.list.cpu", peer, call_times["cpu"] / run.sizes.lists)
                            run.note(f"{kind}.list.wall", peer, call_times["wall"] / run.sizes.lists)


async def ten(run: Run) -> None:
    """Connects to ten servers at once and lists their tools; the first round of each peer does not count."""
    async with http_servers("--era", run.era, "--tools", "20", count=10) as urls:
        slow = [run.slow_stdio(20, delay=0.05 * number) for number in range(1, 11)]
        kinds: dict[str, list[dict[str, Any]]] = {
            "ten.http": [{"url": url} for url in urls],
            "ten.stdio": [run.stdio(20)] * 10,
            "one.stdio": [run.stdio(20)],
            "ten.slow": slow,
            "one.slow": slow[-1:],
        }
        for kind, targets in kinds.items():
            run.say(f"connect and list: {kind}")
            async with run.drivers() as drivers:
                for number, turn in enumerate(run.turns(run.sizes.connects + 1)):
                    for peer in filter(drivers.__contains__, turn):
                        with run.failing(drivers, peer):
                            await _connect_round(run, kind, peer, drivers[peer], targets, warm=number == 0)


async def _connect_round(
    run: Run, kind: str, peer: str, driver: Worker, targets: list[dict[str, Any]], *, warm: bool
) -> None:
    open_times = await driver.ask("open", targets=targets)
    close_times = await driver.ask("close")
    if not warm:
        run.note(f"{kind}.cpu", peer, open_times["cpu"])
        run.note(f"{kind}.wall", peer, open_times["wall"])
        run.note(f"{kind}.bound", peer, (open_times["cpu"] + close_times["children_cpu"]) / cores())


async def memory(run: Run) -> None:
    """Holds 50 HTTP servers open in a fresh process, one peer at a time."""
    run.say("memory with 50 HTTP servers")
    async with http_servers("--era", run.era, "--tools", "20", count=50) as urls:
        for turn in run.turns(run.sizes.memory_rounds):
            for peer in turn:
                their = PEERS[peer]
                bare = _fields(await output(peer, their.python, BARE))
                alone = {}
                async with worker(peer, their.python, *their.driver) as alone[peer]:
                    with run.failing(alone, peer):
                        await alone[peer].ask("open", targets=[{"url": url} for url in urls])
                        memory = await alone[peer].ask("memory")
                        for kind in ("uss", "rss"):
                            run.note(f"memory.{kind}", peer, memory[kind] - bare[kind])


def _fields(rollup: str) -> dict[str, int]:
    """The same two numbers that a driver gives, out of the text of a smaps_rollup."""
    sizes_by_name = {
        line.split(":")[0]: int(line.split()[1]) * 1024 for line in rollup.splitlines()[1:] if line
    }
    return {
        "rss": sizes_by_name["Rss"],
        "uss": sizes_by_name["Private_Clean"] + sizes_by_name["Private_Dirty"],
    }


async def bigs(run: Run) -> None:
    """Results of 10 and 40 MB in turn."""
    async with http_servers("--era", run.era, "--bigs", "10,40") as urls:
        for kind, target in {"http": {"url": urls[0]}, "stdio": run.stdio(bigs="10,40")}.items():
            run.say(f"large results over {kind}")
            async with run.drivers() as drivers:
                for peer in run.peers:
                    with run.failing(drivers, peer):
                        await drivers[peer].ask("open", targets=[target])
                        await drivers[peer].ask("big", megabytes=1)
                for turn in run.turns(run.sizes.bigs):
                    for peer in filter(drivers.__contains__, turn):
                        last = run.samples[f"{kind}.big40.wall"][peer]
                        if last and last[-1] > FAST_ENOUGH:
                            continue
                        with run.failing(drivers, peer):
                            await _bigs_round(run, kind, peer, drivers[peer])


async def _bigs_round(run: Run, kind: str, peer: str, driver: Worker) -> None:
    seconds_by_size = {size: await driver.ask("big", megabytes=size, within=240.0) for size in (10, 40)}
    for size, times in seconds_by_size.items():
        run.note(f"{kind}.big{size}.wall", peer, times["wall"])
        run.note(f"{kind}.big{size}.cpu", peer, times["cpu"])
    run.note(f"{kind}.big.growth", peer, seconds_by_size[40]["wall"] / seconds_by_size[10]["wall"])


async def imports(run: Run) -> None:
    """What importing a client costs in a fresh interpreter."""
    run.say("imports")
    for number, turn in enumerate(run.turns(run.sizes.imports + 1)):
        for peer in turn:
            import_seconds = float(await output(peer, PEERS[peer].python, IMPORT.format(PEERS[peer].imports)))
            if number:
                run.note("import.cpu", peer, import_seconds)


PHASES = {"calls": calls, "lists": lists, "ten": ten, "memory": memory, "bigs": bigs, "imports": imports}
