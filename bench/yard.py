"""Compare calls through the library with the raw SDK client, and measure the cost of startup.

python bench/yard.py [--quick] [--json FILE] [--write-docs] [--strict]
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import shlex
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from harness.bars import Bar, judge
from harness.machine import describe
from harness.processes import ROOT, Missing, http_servers, output, worker
from harness.report import Column, Section, peer_table, replace_between, verdict_table

DOCS = ROOT / "docs" / "benchmarks.md"
START, END = "<!-- bench/yard.py: start -->", "<!-- bench/yard.py: end -->"

OURS = str(ROOT / ".venv" / "bin" / "python")
PEER_PYTHON = str(ROOT / ".envs" / "bench-mcp" / "bin" / "python")
PEERS = {"mcp": (PEER_PYTHON, "peers.mcp"), "toolyard": (OURS, "peers.yard")}
TIMED_IMPORT = "import time; began = time.process_time(); {}; print(time.process_time() - began)"
LOAD = (
    "import time; from toolyard import load_config; load_config({small!r}); began = time.perf_counter();"
    " found = load_config({path!r}); print(time.perf_counter() - began); assert len(found.servers) == 1000"
)

BARS = (
    Bar("CPU per call, HTTP", "http.call.cpu", 0.30),
    Bar("CPU per call, stdio", "stdio.call.cpu", 0.45),
    Bar("import toolyard, CPU, over import mcp", "import.cpu", 0.3),
    Bar("toolyard --help, CPU, over python -c pass", "help.cpu", 8.0, base=("help.cpu", "bare")),
    Bar("tools(agent) of 10,000 cached tools, over 50 ms", "tools.wall", 1.0, base=("tools.wall", "allowed")),
    Bar("load 1,000 servers, over 150 ms", "load.wall", 1.0, base=("load.wall", "allowed")),
)
SECTIONS = (
    Section(
        "Calls through the library",
        (
            Column("http.call.cpu", "HTTP, CPU, ms", decimals=3),
            Column("http.call.wall", "HTTP, wall, ms", decimals=3),
            Column("stdio.call.cpu", "stdio, CPU, ms", decimals=3),
            Column("stdio.call.wall", "stdio, wall, ms", decimals=3),
        ),
    ),
    Section(
        "Startup",
        (
            Column("import.cpu", "import, CPU, ms", decimals=1),
            Column("face.cpu", "import of a client, CPU, ms", decimals=1),
            Column("help.cpu", "--help, CPU, ms", decimals=1, compared=False),
            Column("tools.wall", "tools(agent), a new agent, ms", decimals=1, compared=False),
            Column("again.wall", "the same again, ms", decimals=2, compared=False),
            Column("load.wall", "load 1,000 servers, ms", decimals=1, compared=False),
        ),
    ),
)


class Samples:
    """What was measured, by measure and peer."""

    def __init__(self) -> None:
        self.all: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.add("tools.wall", "allowed", 0.050)
        self.add("load.wall", "allowed", 0.150)

    def add(self, measure: str, peer: str, value: float) -> None:
        self.all[measure][peer].append(value)

    def medians(self) -> dict[str, dict[str, float]]:
        return {
            measure: {peer: median(values) for peer, values in row.items()}
            for measure, row in self.all.items()
        }


async def calls(samples: Samples, rounds: int, times: int) -> None:
    """Both clients on the same server, by turns."""
    async with http_servers() as (url,):
        await _calls(samples, "http", {"url": url}, rounds, times)
    start = f"cd {shlex.quote(str(ROOT / 'bench'))}; exec {shlex.quote(sys.executable)} -m servers.stdio"
    stdio = {"command": "/bin/sh", "args": ["-c", start]}
    await _calls(samples, "stdio", stdio, rounds, times)


async def _calls(samples: Samples, kind: str, target: dict[str, Any], rounds: int, times: int) -> None:
    async with worker("mcp", *PEERS["mcp"]) as peer_worker, worker("toolyard", *PEERS["toolyard"]) as ours:
        both = {"mcp": peer_worker, "toolyard": ours}
        for peer in both.values():
            await peer.ask("open", targets=[target])
            await peer.ask("calls", times=200, at_once=1)
        for _ in range(rounds):
            for name, peer in both.items():
                call_times = await peer.ask("calls", times=times, at_once=1, within=120)
                samples.add(f"{kind}.call.cpu", name, call_times["cpu"] / times)
                samples.add(f"{kind}.call.wall", name, call_times["wall"] / times)
        for peer in both.values():
            await peer.ask("close")


async def listing(samples: Samples, rounds: int) -> None:
    """Ten thousand tools of twenty servers, for agents that were never asked for and again for the same.

    The servers are of the legacy era, which gives no hints: the configured time counts, so all is cached.
    """
    async with (
        http_servers("--tools", "499", "--era", "legacy", count=20) as urls,
        worker("toolyard", *PEERS["toolyard"]) as ours,
    ):
        await ours.ask("open", targets=[{"url": url} for url in urls], within=120)
        for number in range(1, rounds + 1):
            for measure in ("tools.wall", "again.wall"):
                cached_times = await ours.ask("cached", index=len(urls) + number)
                if cached_times["tools"] < 8_000:
                    raise RuntimeError(f"only {cached_times['tools']} tools were listed")
                samples.add(measure, "toolyard", cached_times["wall"])
        await ours.ask("close")


async def doors(samples: Samples, rounds: int) -> None:
    """Imports, help and loading, each in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        path, small = Path(folder) / "many.json", Path(folder) / "one.json"
        path.write_text(json.dumps({"servers": {f"server{n}": _server(n) for n in range(1000)}}, indent=2))
        small.write_text(json.dumps({"servers": {"one": _server(1)}}))
        for _ in range(rounds):
            samples.add(
                "import.cpu",
                "mcp",
                float(await output("mcp", PEER_PYTHON, TIMED_IMPORT.format("import mcp"))),
            )
            ours = await output("toolyard", OURS, TIMED_IMPORT.format("import toolyard"))
            samples.add("import.cpu", "toolyard", float(ours))
            face = await output("toolyard", OURS, TIMED_IMPORT.format("from toolyard import Toolyard"))
            samples.add("face.cpu", "toolyard", float(face))
            samples.add(
                "face.cpu",
                "mcp",
                float(await output("mcp", PEER_PYTHON, TIMED_IMPORT.format("from mcp import Client"))),
            )
            samples.add("help.cpu", "bare", await _cpu(OURS, "-c", "pass"))
            samples.add("help.cpu", "toolyard", await _cpu(str(ROOT / ".venv/bin/toolyard"), "--help"))
            load_times = await output("toolyard", OURS, LOAD.format(path=str(path), small=str(small)))
            samples.add("load.wall", "toolyard", float(load_times))


def _server(number: int) -> dict[str, Any]:
    transport = {
        "type": "http",
        "url": f"https://host{number}.example.org/mcp",
        "headers": {"X-Key": "k" * 20},
    }
    return {
        "trust": "trusted",
        "transport": transport,
        "allowTools": ["read*", "search"],
        "timeouts": {"call": 30},
    }


async def _cpu(*command: str) -> float:
    """The CPU that a program takes from start to end."""
    pid = os.posix_spawn(
        command[0],
        list(command),
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, resource_usage = await asyncio.to_thread(os.wait4, pid, 0)
    if status:
        raise Missing(f"{' '.join(command)} failed")
    return resource_usage.ru_utime + resource_usage.ru_stime


async def measure(quick: bool) -> Samples:
    """All phases."""
    samples = Samples()
    rounds, times = (3, 500) if quick else (7, 1500)
    await calls(samples, rounds, times)
    await listing(samples, rounds)
    await doors(samples, rounds)
    return samples


def main() -> int:
    """Measures, prints, writes; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples and verdicts there")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--write-docs", action="store_true", help="put the tables into docs/benchmarks.md")
    parser.add_argument("--strict", action="store_true", help="a missed bar fails the run")
    options = parser.parse_args()
    machine = describe()
    try:
        samples = asyncio.run(measure(options.quick))
    except Missing as error:
        print(f"error: a peer is missing: {error}\nhint: make bench-envs", file=sys.stderr)
        return 2
    medians = samples.medians()
    verdicts = judge(medians, BARS)
    about = ", ".join(f"{machine_item} {value}" for machine_item, value in machine.items())
    lines = [f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}. {about}.", "", verdict_table(verdicts)]
    for section in SECTIONS:
        lines += ["", f"### {section.title}", "", peer_table(section, ("mcp", "toolyard"), medians)]
    text = "\n".join(lines)
    print(text)
    if options.json:
        bar_documents = [
            {"bar": v.bar.says, "limit": v.bar.limit, "ratio": v.ratio, "met": v.met} for v in verdicts
        ]
        record = {"machine": machine, "samples": samples.all, "medians": medians, "verdicts": bar_documents}
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    if options.write_docs:
        DOCS.write_text(replace_between(DOCS.read_text(), START, END, text))
    return 1 if options.strict and not all(verdict.met for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
