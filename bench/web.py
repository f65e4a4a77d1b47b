"""Measure the web app: pages and API with 1 and 64 connections, CPU per request, memory; and the weight and
speed of a chat's page in Chromium.

python bench/web.py [--only routes|chat] [--base DIR] [--quick] [--json FILE] [--write-docs] [--strict]

The floor is a bare ASGI application on the same uvicorn, with the same clients. ``--base`` is a working copy
of another version, whose chat page is measured beside this one's.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import aiohttp
import psutil

from chat_page import measure_chat_pages, report
from harness.machine import describe
from harness.processes import ROOT
from harness.report import replace_between
from toolyard.config.settings.table import Settings
from toolyard.registry import ChoiceDraft, InstanceDraft, Registry, ServerDraft
from toolyard.store import Database
from toolyard.types.account import Role

DOCS = ROOT / "docs" / "benchmarks.md"
MARKERS = {
    "routes": ("<!-- bench/web.py: start -->", "<!-- bench/web.py: end -->"),
    "chat": ("<!-- bench/web.py chat: start -->", "<!-- bench/web.py chat: end -->"),
}
CONNECTIONS = 64
SERVERS, INSTANCES = 500, 1_000
LIMIT = 0.100
"""Seconds that the list of 1,000 instances and the registry of 500 servers may take at the server."""
BARE = """
import sys, uvicorn
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
uvicorn.run(app, port=int(sys.argv[1]), log_level="error", lifespan="off", access_log=False)
"""


@dataclass(frozen=True)
class Route:
    """Something to ask for: who asks, and whether the bar of 100 ms is about it."""

    says: str
    path: str
    user: str = "few"
    body: Any = None
    bound: bool = False


ROUTES = (
    Route("health", "/healthz"),
    Route("home page", "/ui/"),
    Route("instances page, 1,000 of them", "/ui/mcp", "many", bound=True),
    Route("instances by the API, 1,000 of them", "/api/v1/instances", "many", bound=True),
    Route("registry page, 500 servers", "/ui/admin/mcp", "many", bound=True),
    Route("registry by the API, 500 servers", "/api/v1/servers", "many", bound=True),
    Route("status by the API", "/api/v1/status"),
    Route(
        "call of a tool by the API",
        "/api/v1/tools/demo_weekday/call",
        body={"arguments": {"date": "2026-11-15"}},
    ),
)


@dataclass
class RouteTimes:
    """One route, in seconds; ``rate`` in requests a second."""

    alone: float
    p50: float
    p99: float
    rate: float
    cpu: float


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def fill(data: Path) -> None:
    """A registry and a person with many instances, written as the web app writes them."""
    database = await Database.open(data, url=None, secret_key=None)
    registry = Registry(database.registry, Settings())
    user = await database.accounts.add_user("many", Role.ADMIN)
    choices = (ChoiceDraft("oauth"), ChoiceDraft("header", "Key", key="X-Api-Key"))
    servers = [
        await registry.add_server(
            ServerDraft(
                f"Server {n}", f"https://s{n}.example.com/mcp", choices=choices, description="What it is for"
            )
        )
        for n in range(SERVERS)
    ]
    for n in range(INSTANCES):
        server = servers[n % SERVERS]
        draft = InstanceDraft(server.id, server.choices[0].id, f"slug-{n}", f"Instance {n}")
        await registry.create_instance(user.id, draft)
    await database.close()


@contextlib.asynccontextmanager
async def run_program(*words: str, port: int, env: dict[str, str]) -> AsyncIterator[psutil.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, env=env, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                await asyncio.sleep(0.02)
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        await process.wait()


async def measure(process: psutil.Process, url: str, route: Route, seconds: float) -> RouteTimes:
    connector = aiohttp.TCPConnector(limit=CONNECTIONS)
    headers = {"Remote-User": route.user, "Accept": "text/html, application/json"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def ask() -> float:
            request_start = time.perf_counter()
            method = "GET" if route.body is None else "POST"
            async with session.request(method, url + route.path, json=route.body) as response:
                await response.read()
                assert response.status == 200, f"{route.path}: {response.status}"
            return time.perf_counter() - request_start

        for _ in range(5):
            await ask()
        alone = median([await ask() for _ in range(20)])
        times: list[float] = []
        until = time.perf_counter() + seconds

        async def worker() -> None:
            while time.perf_counter() < until:
                times.append(await ask())

        cpu = sum(process.cpu_times()[:2])
        start = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(CONNECTIONS)))
        duration = time.perf_counter() - start
        cpu = sum(process.cpu_times()[:2]) - cpu
    cuts = quantiles(times, n=100)
    return RouteTimes(alone, median(times), cuts[98], len(times) / duration, cpu / len(times))


async def run(seconds: float) -> tuple[dict[str, RouteTimes], dict[str, float]]:
    measurements: dict[str, RouteTimes] = {}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        demo = {
            "command": sys.executable,
            "args": ["-I", "-S", str(ROOT / "src/toolyard/cli/demo_server.py")],
        }
        (data / "mcp.json").write_text(json.dumps({"mcpServers": {"demo": {**demo, "shared": True}}}))
        await fill(data)
        env = {**os.environ, "HOME": folder, "TOOLYARD_DATA_DIR": folder, "TOOLYARD_PEOPLE_MODE": "proxy"}
        env |= {"TOOLYARD_TRUSTED_PROXIES": "127.0.0.1", "TOOLYARD_ADMINS": "many"}
        port, bare = free_port(), free_port()
        async with (
            run_program("-m", "toolyard", "serve", "--port", str(port), port=port, env=env) as ours,
            run_program("-c", BARE, str(bare), port=bare, env=env) as floor,
        ):
            memory = {"start": ours.memory_full_info().uss}
            measurements["floor: a bare application"] = await measure(
                floor, f"http://127.0.0.1:{bare}", Route("", "/"), seconds
            )
            for route in ROUTES:
                measurements[route.says] = await measure(ours, f"http://127.0.0.1:{port}", route, seconds)
            memory["end"] = ours.memory_full_info().uss
    return measurements, memory


def table(measurements: dict[str, RouteTimes], memory: dict[str, float]) -> str:
    floor = next(iter(measurements.values()))
    lines = [
        "| what | alone, ms | p50, ms | p99, ms | requests/s | CPU, ms | CPU over the floor |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for says, one in measurements.items():
        numbers = [f"{1000 * each:.1f}" for each in (one.alone, one.p50, one.p99)]
        cells = [*numbers, f"{one.rate:.0f}", f"{1000 * one.cpu:.2f}", f"{one.cpu / floor.cpu:.1f} ×"]
        lines.append(f"| {says} | " + " | ".join(cells) + " |")
    before, after = (f"{memory[when] / 1e6:.0f} MB" for when in ("start", "end"))
    memory_text = f"Private memory of the process: {before} before, {after} after."
    return "\n".join([*lines, "", memory_text])


def measure_routes(quick: bool, record: dict[str, Any]) -> tuple[str, bool]:
    """Return the report of the routes, and whether all bars are met."""
    measurements, memory = asyncio.run(run(1.0 if quick else 5.0))
    record |= {"memory": memory, "routes": {k: vars(v) for k, v in measurements.items()}}
    bounds = [(route.says, measurements[route.says].alone) for route in ROUTES if route.bound]
    verdicts = [
        f"- {says}: {1000 * seconds:.0f} ms at one connection, bar {1000 * LIMIT:.0f} ms, "
        f"{'met' if seconds <= LIMIT else 'missed'}"
        for says, seconds in bounds
    ]
    return "\n".join([*verdicts, "", table(measurements, memory)]), all(
        seconds <= LIMIT for _, seconds in bounds
    )


def measure_chat(quick: bool, base: Path | None, record: dict[str, Any]) -> tuple[str, bool]:
    """Return the report of the chat's page, and whether all bars are met."""
    pages = asyncio.run(measure_chat_pages((free_port(), free_port()), 5 if quick else 20, base))
    record["chat"] = {" ".join(key): [vars(each) for each in loads] for key, loads in pages.loads.items()}
    return report(pages)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=tuple(MARKERS), help="measure this part only")
    parser.add_argument("--base", type=Path, help="working copy of a version to compare the chat page with")
    parser.add_argument("--quick", action="store_true", help="shorter rounds")
    parser.add_argument("--json", type=Path, help="write every number there")
    parser.add_argument("--write-docs", action="store_true", help="put the tables into docs/benchmarks.md")
    parser.add_argument("--strict", action="store_true", help="a missed bar fails the run")
    options = parser.parse_args()
    machine = describe()
    about = ", ".join(f"{machine_item} {value}" for machine_item, value in machine.items())
    date = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    record: dict[str, Any] = {"machine": machine}
    is_met = True
    for part in MARKERS if options.only is None else (options.only,):
        figures, part_is_met = (
            measure_routes(options.quick, record)
            if part == "routes"
            else measure_chat(options.quick, options.base, record)
        )
        is_met = is_met and part_is_met
        text = f"{date}. {about}.\n\n{figures}"
        print(text)
        if options.write_docs:
            DOCS.write_text(replace_between(DOCS.read_text(), *MARKERS[part], text))
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 1 if options.strict and not is_met else 0


if __name__ == "__main__":
    sys.exit(main())
