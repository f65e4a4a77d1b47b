"""Compare Toolyard's client with its peers on the same servers, taking turns in one run.

python bench/client.py [--quick] [--json FILE] [--write-docs] [--strict]

Each peer has its own environment (``make bench-envs``). The run fails if a peer is missing or fails. A missed
bar is reported, and fails the run only with ``--strict``.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import sys
from pathlib import Path

from harness.bars import judge
from harness.client_phases import PEERS, PHASES, Run, Sizes
from harness.machine import describe
from harness.processes import ROOT, Missing
from harness.report import Column, Section, peer_table, replace_between, verdict_table

DOCS = ROOT / "docs" / "benchmarks.md"
START, END = "<!-- bench/client.py: start -->", "<!-- bench/client.py: end -->"


def _calls(kind: str, title: str) -> Section:
    return Section(
        title,
        (
            Column(f"{kind}.call.cpu", "CPU per call, ms", decimals=3),
            Column(f"{kind}.call.wall", "wall per call, ms", decimals=3),
            Column(f"{kind}.rate", "calls/s, 32 at once", scale=1, decimals=0),
            Column(f"{kind}.busy.cpu", "CPU per call, 32 at once, ms", decimals=3),
        ),
    )


def _bigs(kind: str, title: str) -> Section:
    return Section(
        title,
        (
            Column(f"{kind}.big10.wall", "10 MB, wall, s", scale=1, decimals=3),
            Column(f"{kind}.big40.wall", "40 MB, wall, s", scale=1, decimals=3),
            Column(f"{kind}.big40.cpu", "40 MB, CPU, s", scale=1, decimals=3),
            Column(f"{kind}.big.growth", "40 MB over 10 MB", scale=1, decimals=1, compared=False),
        ),
    )


SECTIONS = (
    _calls("http", "Calls over HTTP"),
    _calls("sse", "Calls over HTTP, answered as an event stream"),
    _calls("stdio", "Calls over stdio"),
    Section(
        "500 tools listed on an open connection",
        (
            Column("http.list.cpu", "HTTP, CPU, ms"),
            Column("http.list.wall", "HTTP, wall, ms"),
            Column("stdio.list.cpu", "stdio, CPU, ms"),
            Column("stdio.list.wall", "stdio, wall, ms"),
        ),
    ),
    Section(
        "Ten HTTP servers: connect and list 20 tools each",
        (
            Column("ten.http.cpu", "CPU, ms", decimals=1),
            Column("ten.http.wall", "wall, ms", decimals=1),
        ),
    ),
    Section(
        "Ten stdio servers: start, connect and list 20 tools each",
        (
            Column("ten.stdio.cpu", "CPU of the client, ms", decimals=1),
            Column("ten.stdio.bound", "CPU of all over the cores, ms", decimals=1),
            Column("ten.stdio.wall", "wall, ms", decimals=1),
            Column("one.stdio.wall", "one alone, wall, ms", decimals=1),
        ),
    ),
    Section(
        "Ten stdio servers that wait 0.05 to 0.5 s before they start",
        (
            Column("ten.slow.cpu", "CPU of the client, ms", decimals=1),
            Column("ten.slow.wall", "wall, ms", decimals=1),
            Column("one.slow.wall", "the slowest alone, wall, ms", decimals=1),
        ),
    ),
    Section(
        "Memory with 50 HTTP servers, and the import",
        (
            Column("memory.uss", "private, over the bare interpreter, MB", scale=1e-6, decimals=1),
            Column("memory.rss", "resident, over the bare interpreter, MB", scale=1e-6, decimals=1),
            Column("import.cpu", "import, CPU, ms", decimals=0),
        ),
    ),
    _bigs("http", "Large results over HTTP"),
    _bigs("stdio", "Large results over stdio"),
)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write all samples, medians and verdicts there"
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--write-docs", action="store_true", help="put the tables into docs/benchmarks.md")
    parser.add_argument("--strict", action="store_true", help="a missed bar fails the run")
    parser.add_argument(
        "--era", choices=("both", "modern", "legacy"), default="both", help="what the servers speak"
    )
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), help="only these")
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=list(PHASES), help="only these")
    options = parser.parse_args()
    if options.write_docs and (len(options.peers) < len(PEERS) or len(options.phases) < len(PHASES)):
        parser.error("--write-docs needs all peers and all phases")
    return options


def report(run: Run, machine: dict[str, str]) -> str:
    """The tables as Markdown."""
    medians = run.medians
    about = ", ".join(f"{machine_item} {value}" for machine_item, value in machine.items())
    lines = [
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}. {about}. Protocol of the servers: {run.era}.",
        f"Medians of up to {run.sizes.rounds} rounds, in which the peers take turns; ratios to `mcp` in"
        " parentheses.",
        "",
    ]
    lines += [f"- {peer}: {_versions(packages)}" for peer, packages in run.hellos.items() if packages]
    lines += ["", "### Targets of the client", "", verdict_table(judge(medians))]
    for section in SECTIONS:
        if any(column.measure in medians for column in section.columns):
            lines += ["", f"### {section.title}", "", peer_table(section, run.peers, medians)]
    return "\n".join(lines)


def _versions(packages: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in packages.items())


async def measure(options: argparse.Namespace) -> Run:
    """Runs the phases; raises Missing when a peer cannot be started."""
    run = Run(
        options.peers,
        Sizes.quick() if options.quick else Sizes(),
        options.era,
        lambda line: print(line, flush=True),
    )
    async with run.drivers():
        pass
    for phase in options.phases:
        await PHASES[phase](run)
    return run


def main() -> int:
    """Measures, prints, writes; gives the exit code."""
    options = arguments()
    machine = describe()
    try:
        run = asyncio.run(measure(options))
    except Missing as error:
        print(f"error: a peer is missing: {error}\nhint: make bench-envs", file=sys.stderr)
        return 2
    text, verdicts = report(run, machine), judge(run.medians)
    print(f"\n{text}")
    if options.json:
        options.json.write_text(json.dumps(_record(run, machine), indent=1) + "\n")
    if options.write_docs:
        DOCS.write_text(replace_between(DOCS.read_text(), START, END, text))
    for failure in run.failures:
        print(f"error: {failure}", file=sys.stderr)
    is_missed = options.strict and not all(verdict.met for verdict in verdicts)
    return 1 if run.failures or is_missed else 0


def _record(run: Run, machine: dict[str, str]) -> dict[str, object]:
    return {
        "machine": machine,
        "era": run.era,
        "versions": run.hellos,
        "samples": run.samples,
        "medians": run.medians,
        "verdicts": [
            {"bar": verdict.bar.says, "limit": verdict.bar.limit, "ratio": verdict.ratio, "met": verdict.met}
            for verdict in judge(run.medians)
        ],
        "failures": run.failures,
    }


if __name__ == "__main__":
    sys.exit(main())
