"""Run every server scenario of the official suite through the gateway, each alone, and print the table.

``server_scenarios.py --modules FOLDER [--backend WORD ...] [--only WORD] [--suite VERSION] [--together]
[--write-docs]``. An origin server built with the official SDK provides the suite's fixtures. It is tested
directly, and behind ``toolyard serve`` at ``/mcp/servers/origin``, which uses the legacy era, the modern era,
or the era that it detects. A run passes only if the suite reports so and its process exits with code 0 before
the deadline. With ``--together`` one process of the suite runs all scenarios of a revision, which is a tenth
of the work.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import socket
import sys
import tempfile
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from client_scenarios import DOCS, SUITES, Suites

HERE = Path(__file__).parent
MAX_PARALLEL_SCENARIOS = 2
BACKENDS = ("direct", "legacy", "modern", "auto")
"""Without a gateway, and with one that uses this era for the origin; ``auto`` detects it."""
COLUMNS = (("0.1.16", None), ("0.2.0-alpha.12", "2025-11-25"), ("0.2.0-alpha.12", "2026-07-28"))
OUT_OF_SCOPE = re.compile(r"^tasks-|sep-2640")
"""Extensions that Toolyard does not carry: tasks and skills."""

_SCENARIO_LINE = re.compile(r"^\s+- (\S+) \[([^\]]*)\]")
_SUMMARY_LINE = re.compile(r"^[✓✗] (\S+): (\d+) passed, (\d+) failed$", re.MULTILINE)
_COUNTS = re.compile(r"Passed: (\d+)/(\d+), (\d+) failed, (\d+) warnings")


@dataclass(frozen=True)
class ServerScenarioRun:
    backend: str
    suite: str
    revision: str | None
    scenario: str


@dataclass(frozen=True)
class ServerScenarioOutcome:
    run: ServerScenarioRun
    passed: bool
    checks: str
    output: str


async def scenarios(suites: Suites) -> list[tuple[str, str | None, str]]:
    """Return suite, revision and name of all scenarios in scope."""
    scenario_names: list[tuple[str, str | None, str]] = []
    for suite, revision in COLUMNS:
        _, scenario_list = await suites.ask(suite, "list", "--server")
        for line in scenario_list.splitlines():
            match = _SCENARIO_LINE.match(line)
            if match is None or OUT_OF_SCOPE.search(match[1]):
                continue
            if revision is None or revision in match[2].split(","):
                scenario_names.append((suite, revision, match[1]))
    return scenario_names


async def one(suites: Suites, url: str, run: ServerScenarioRun) -> ServerScenarioOutcome:
    words = ["server", "--url", url, "--scenario", run.scenario]
    if run.revision is not None:
        words += ["--spec-version", run.revision]
    code, stdout = await suites.ask(run.suite, *words)
    counts = _COUNTS.search(stdout)
    is_passed = code == 0 and counts is not None and counts[1] == counts[2] and counts[3] == "0"
    return ServerScenarioOutcome(
        run, is_passed, f"{counts[1]}/{counts[2]}" if counts else f"exit {code}", stdout
    )


async def together(suites: Suites, url: str, runs: list[ServerScenarioRun]) -> list[ServerScenarioOutcome]:
    """Return the outcomes of scenarios of one suite and revision, run by one process.

    The process gives no reasons for failures: failed scenarios are run alone.
    """
    revision = [] if runs[0].revision is None else ["--spec-version", runs[0].revision]
    code, stdout = await suites.ask(runs[0].suite, "server", "--url", url, "--suite", "all", *revision)
    counts_by_name = {name: (int(good), int(bad)) for name, good, bad in _SUMMARY_LINE.findall(stdout)}
    sound = code == 0 or any(bad for _, bad in counts_by_name.values())
    outcomes: list[ServerScenarioOutcome] = []
    for run in runs:
        good, bad = counts_by_name.get(run.scenario, (0, 0))
        is_passed = sound and good > 0 and not bad
        outcomes.append(
            ServerScenarioOutcome(run, True, f"{good}/{good}", "")
            if is_passed
            else await one(suites, url, run)
        )
    return outcomes


# Servers under test.


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.asynccontextmanager
async def run_process(url: str, *words: str, **environment: str) -> AsyncGenerator[None]:
    """Start a process that answers at this address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, env={**os.environ, **environment}, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(180), aiohttp.ClientSession() as session:
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(url):
                        break
                await asyncio.sleep(0.1)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


@contextlib.asynccontextmanager
async def gateway(origin: str, protocol: str) -> AsyncGenerator[str]:
    """Start a Toolyard in front of the origin; return the address of the origin in it."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        entry = {"type": "http", "url": origin, "protocol": protocol}
        (Path(folder) / "mcp.json").write_text(json.dumps({"mcpServers": {"origin": entry}}))
        words = ("-m", "toolyard", "serve", "--port", str(port))
        url = f"http://127.0.0.1:{port}"
        async with run_process(url, *words, TOOLYARD_DATA_DIR=folder):
            yield f"{url}/mcp/servers/origin"


# Outcomes.


def table(outcomes: list[ServerScenarioOutcome]) -> str:
    """Return the number of passing scenarios by backend, and one line for each that fails somewhere."""
    titles = [" ".join(filter(None, column)) for column in COLUMNS]
    lines = ["| origin | " + " | ".join(titles) + " |", "|---|" + "---|" * len(COLUMNS)]
    names = {"direct": "directly", "legacy": "as legacy", "modern": "as modern", "auto": "automatic"}
    for backend in dict.fromkeys(o.run.backend for o in outcomes):
        cells: list[str] = []
        for suite, revision in COLUMNS:
            ours = [
                o
                for o in outcomes
                if (o.run.backend, o.run.suite, o.run.revision) == (backend, suite, revision)
            ]
            cells.append(f"{sum(o.passed for o in ours)}/{len(ours)}" if ours else "")
        lines.append(f"| {names[backend]} | " + " | ".join(cells) + " |")
    for outcome in outcomes:
        if not outcome.passed:
            run = outcome.run
            place = " ".join(filter(None, (run.suite, run.revision)))
            lines += [
                "",
                f"`{run.scenario}` of {place}, {names[run.backend]}: **failed** ({outcome.checks}).",
            ]
    return "\n".join(lines)


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", type=Path, required=True, help="node_modules with both versions")
    parser.add_argument("--backend", action="append", choices=BACKENDS)
    parser.add_argument("--suite", choices=list(SUITES), help="only this version")
    parser.add_argument("--only", default="", help="scenarios whose name has this in it")
    parser.add_argument("--together", action="store_true", help="one process for each revision")
    parser.add_argument("--write-docs", action="store_true")
    options = parser.parse_args()
    suites = Suites(options.modules)
    selected_scenarios = [
        each
        for each in await scenarios(suites)
        if options.only in each[2] and options.suite in (None, each[0])
    ]
    port = free_port()
    origin = f"http://127.0.0.1:{port}/mcp"
    gate = asyncio.Semaphore(MAX_PARALLEL_SCENARIOS)
    outcomes: list[ServerScenarioOutcome] = []

    async def run_limited(url: str, run: ServerScenarioRun) -> ServerScenarioOutcome:
        async with gate:
            return await one(suites, url, run)

    async with run_process(origin, str(HERE / "origin_server.py"), "--port", str(port)):
        for backend in options.backend or BACKENDS:
            async with contextlib.AsyncExitStack() as stack:
                url = origin
                if backend != "direct":
                    url = await stack.enter_async_context(gateway(origin, backend))
                runs = [ServerScenarioRun(backend, *each) for each in selected_scenarios]
                if options.together:
                    for column in dict.fromkeys((run.suite, run.revision) for run in runs):
                        these = [run for run in runs if (run.suite, run.revision) == column]
                        outcomes += await together(suites, url, these)
                else:
                    outcomes += await asyncio.gather(*(run_limited(url, run) for run in runs))
    print(table(outcomes))
    failed_outcomes = [outcome for outcome in outcomes if not outcome.passed]
    for outcome in failed_outcomes:
        print(f"\n== {outcome.run}\n{outcome.output[-3000:]}", file=sys.stderr)
    if options.write_docs:
        head, mark, rest = DOCS.read_text().partition("<!-- server -->\n")
        tail = rest.partition("<!-- end -->")[2]
        DOCS.write_text(f"{head}{mark}{table(outcomes)}\n<!-- end -->{tail}")
    print(json.dumps({"runs": len(outcomes), "failed": len(failed_outcomes)}))
    return 1 if failed_outcomes else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
