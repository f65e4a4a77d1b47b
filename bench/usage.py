"""Measure the pages about usage and the audit log with the data of many calls.

python bench/usage.py [--calls N] [--rounds N] [--database URL] [--folder DIR] [--json FILE] [--strict]

A year of people who make 50,000 calls each, a million calls unless ``--calls`` says otherwise. The daily sums
and the entries of the audit log are written in bulk. Then the pages and the API are requested from a real
process, while another connection requests ``/healthz`` all the time: its longest response shows how long the
event loop was blocked. ``--database`` is the address of an empty PostgreSQL database; without it, SQLite is
measured. ``--folder`` keeps the data for another run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import socket
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

import aiohttp

from harness.machine import describe
from toolyard.config.settings.table import Settings
from toolyard.registry import ChoiceDraft, InstanceDraft, Registry, ServerDraft
from toolyard.store import Database
from toolyard.store.sql.stored_values import compute_digest
from toolyard.types.account import Role
from toolyard.types.audit import UsageGroup, server_of_tool

KEY = "a key for benchmarks, long enough"
DAYS, SERVERS, TOOLS = 365, 20, 15
CALLS_PER_PERSON, MIN_PEOPLE = 50_000, 4
ROWS_PER_PERSON_AND_DAY = 14
LIMIT_SECONDS, LOOP_LIMIT_SECONDS = 0.200, 0.150
DAY_SECONDS = 86_400
AUDIT_COLUMNS = ("at", "action", "actor", "actor_name", "target", "outcome", "address", "details", "server")
KEY_COLUMNS = ("day", "digest", "person", "server", "tool", "agent", "model")
SUM_COLUMNS = (
    *("calls", "failures", "seconds", "slowest_seconds"),
    *("requests", "input_tokens", "output_tokens", "cost"),
)
USAGE_COLUMNS = KEY_COLUMNS + SUM_COLUMNS
TOTAL_COLUMNS = ("category", "period", "digest", "key", *SUM_COLUMNS)


class Target:
    """A database of either kind that rows are written to in bulk."""

    def __init__(self, data: Path, url: str | None) -> None:
        self.data, self.url = data, url

    def write(self, table: str, columns: tuple[str, ...], rows: Iterator[tuple[Any, ...]]) -> None:
        names = ", ".join(columns)
        if self.url is None:
            marks = ", ".join("?" * len(columns))
            with contextlib.closing(sqlite3.connect(self.data / "toolyard.db")) as database, database:
                database.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", rows)
            return
        import psycopg

        with psycopg.connect(self.url) as connection:
            with connection.cursor().copy(f"COPY {table} ({names}) FROM STDIN".encode()) as copy_stream:
                for row in rows:
                    copy_stream.write_row(row)
            connection.commit()
            connection.execute(f"ANALYZE {table}".encode())


async def fill_accounts(target: Target, count: int) -> tuple[list[str], str]:
    """Add people, a server with an instance for half of them, and one server that is hardly used."""
    database = await Database.open(target.data, url=target.url, secret_key=KEY)
    registry = Registry(database.registry, Settings())
    people = [await database.accounts.add_user("root", Role.ADMIN)]
    people += [await database.accounts.add_user(f"person-{n}", Role.USER) for n in range(count - 1)]
    server = await registry.add_server(
        ServerDraft("Tracker", "https://tracker.example.com/mcp", choices=(ChoiceDraft("public"),))
    )
    for person in people[: count // 2]:
        draft = InstanceDraft(server.id, server.choices[0].id, "tracker", "Tracker")
        await registry.create_instance(person.id, draft)
    await database.close()
    return [each.id for each in people], server.id


def tool_of(person: str, has_instance: bool, number: int) -> str:
    if has_instance and number % 5 == 0:
        return f"@{person}/tracker/tool_{number % TOOLS}"
    return f"server-{number % SERVERS}/tool_{number % (SERVERS * TOOLS) // SERVERS}"


def usage_rows(people: list[str], calls: int, today: float) -> Iterator[tuple[Any, ...]]:
    chance = random.Random(1)
    mean = calls / (DAYS * len(people) * ROWS_PER_PERSON_AND_DAY)
    for day_number in range(DAYS):
        day = datetime.fromtimestamp(today - day_number * DAY_SECONDS, UTC).date().isoformat()
        for index, person in enumerate(people):
            numbers = chance.sample(range(SERVERS * TOOLS), ROWS_PER_PERSON_AND_DAY)
            statements: set[str] = set()
            for number in numbers:
                tool = tool_of(person, index < len(people) // 2, number)
                if tool in statements:
                    continue
                statements.add(tool)
                agent = f"agent-{number % 10}" if number % 3 else ""
                key = (person, server_of_tool(tool), tool, agent, "")
                count = max(1, int(chance.expovariate(1 / mean)))
                sums = (count, count // 50, count * 0.2, 3.0, 0, 0, 0, 0.0)
                yield (day, compute_digest(*key), *key, *sums)
            for model in range(2):
                key = (person, "", "", f"agent-{index % 10}", f"model-{(index + model) % 6}")
                yield (day, compute_digest(*key), *key, 0, 0, 0.0, 0.0, 40, 90_000, 8_000, 0.4)


def total_rows(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Sum up the rows of usage by each group, for days and months."""
    totals: dict[tuple[str, str, str], list[Any]] = {}
    slowest = SUM_COLUMNS.index("slowest_seconds")
    for row in rows:
        keys = dict(zip(KEY_COLUMNS, row, strict=False))
        for group in UsageGroup:
            if group in (UsageGroup.SERVER, UsageGroup.TOOL, UsageGroup.MODEL) and not keys[group]:
                continue
            periods = (keys["day"],) if group is UsageGroup.DAY else (keys["day"], keys["day"][:7])
            for period in periods:
                sums = totals.setdefault((group.value, period, keys[group]), [0] * len(SUM_COLUMNS))
                for index, value in enumerate(row[len(KEY_COLUMNS) :]):
                    sums[index] = max(sums[index], value) if index == slowest else sums[index] + value
    for (category, period, key), sums in totals.items():
        yield (category, period, compute_digest(key), key, *sums)


def audit_rows(people: list[str], server: str, calls: int, today: float) -> Iterator[tuple[Any, ...]]:
    chance = random.Random(2)
    begin, step = today - DAYS * DAY_SECONDS, DAYS * DAY_SECONDS / calls
    for number in range(calls):
        at = begin + number * step
        if number < 1_000 and number % 20 == 0:
            yield at, "user.add", people[0], "root", people[-1], "ok", "127.0.0.1", "{}", ""
            continue
        if number < 1_000 and number % 20 == 1:
            yield at, "tool.call", people[0], "root", "rare/find", "ok", "", '{"name":"rare_find"}', "rare"
            continue
        index = int(len(people) * chance.random() ** 2)
        # On one day, a person uses few of the tools.
        kind = int(ROWS_PER_PERSON_AND_DAY * chance.random() ** 2)
        tool_number = (index * 37 + int(at // DAY_SECONDS) * 11 + kind * 17) % (SERVERS * TOOLS)
        tool = tool_of(people[index], index < len(people) // 2, tool_number)
        agent = f"agent-{tool_number % 10}" if tool_number % 3 else ""
        # Failures end some months ago, so that the newest is far away.
        outcome = "tool error" if number % 50 == 0 and number < calls // 4 else "ok"
        details = f'{{"name":"{tool[-8:]}","seconds":0.2,"agent":"{agent}","via":"chat"}}'
        name = f"person-{index - 1}" if index else "root"
        about = server if tool.startswith("@") else server_of_tool(tool)
        yield at, "tool.call", people[index], name, tool, outcome, "", details, about


@contextlib.asynccontextmanager
async def serve(target: Target, port: int) -> AsyncIterator[int]:
    env = {**os.environ, "HOME": str(target.data), "TOOLYARD_DATA_DIR": str(target.data)}
    env |= {"TOOLYARD_PEOPLE_MODE": "proxy", "TOOLYARD_TRUSTED_PROXIES": "127.0.0.1"}
    env |= {"TOOLYARD_ADMINS": "root", "TOOLYARD_SECRET_KEY": KEY}
    if target.url:
        env["TOOLYARD_DATABASE_URL"] = target.url
    words = [sys.executable, "-m", "toolyard", "serve", "--port", str(port)]
    process = await asyncio.create_subprocess_exec(*words, env=env, stdout=asyncio.subprocess.DEVNULL)
    try:
        async with asyncio.timeout(3_600):
            while True:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                await asyncio.sleep(0.05)
        yield process.pid
    finally:
        process.terminate()
        await process.wait()


async def watch_loop(session: aiohttp.ClientSession, longest: list[float]) -> None:
    while True:
        start = time.perf_counter()
        async with session.get("/healthz") as response:
            await response.read()
        longest.append(time.perf_counter() - start)
        await asyncio.sleep(0.002)


def list_pages(people: list[str], server: str) -> dict[str, tuple[str, str]]:
    """Return who requests what, by the text of the table."""
    pages = {f"own usage, {days} days": ("person-0", f"/ui/usage?days={days}") for days in (30, 365)} | {
        f"usage of everybody, {days} days": ("root", f"/ui/admin/usage?days={days}") for days in (30, 365)
    }
    pages["usage of one person, 365 days"] = ("root", f"/ui/admin/usage?days=365&person={people[1]}")
    for group in ("day", "person", "server", "tool", "agent", "model"):
        pages[f"API, everybody by {group}, 365 days"] = (
            "root",
            f"/api/v1/usage?everyone=true&days=365&group={group}",
        )
    filters = {
        "no filter": "",
        "last hour": "when=1h",
        "last 30 days": "when=30d",
        "calls": "action=tool.call",
        "a rare action": "action=user.add",
        "an action that never was": "action=lock.accept",
        "a person": f"actor={people[1]}",
        "a person with few entries": f"actor={people[-1]}",
        "a person and a rare action": f"actor={people[1]}&action=user.add",
        "a busy server": "server=server-1",
        "a server with instances": f"server={quote(server)}",
        "a server hardly used": "server=rare",
        "a server never used": "server=nothing",
        "failures": "outcome=failed",
        "failures of 30 days": "outcome=failed&when=30d",
        "failures of a server hardly used": "outcome=failed&server=rare",
        "failures of a person": f"outcome=failed&actor={people[1]}",
        "a person and a server, 30 days": f"when=30d&actor={people[1]}&server=server-1",
    }
    return pages | {f"audit: {name}": ("root", f"/ui/admin/audit?{query}") for name, query in filters.items()}


async def measure(target: Target, people: list[str], server: str, rounds: int, only: str) -> dict[str, Any]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    measurements: dict[str, Any] = {}
    async with serve(target, port), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        # Loads the code of pages, which the first request of a process waits for.
        for path in ("/ui/usage?days=7", "/ui/admin/audit"):
            await (await session.get(path, headers={"Remote-User": "root"})).read()
        for name, (user, path) in list_pages(people, server).items():
            if only not in name:
                continue
            headers = {"Remote-User": user, "Accept": "text/html, application/json"}
            times: list[float] = []
            loop: list[float] = []
            watch = asyncio.create_task(watch_loop(session, loop))
            for _ in range(rounds + 1):
                start = time.perf_counter()
                async with session.get(path, headers=headers) as response:
                    body = await response.read()
                    assert response.status == 200, f"{path}: {response.status} {body[:300]}"
                times.append(time.perf_counter() - start)
            watch.cancel()
            measurements[name] = {"first": times[0], "median": median(times[1:]), "loop": max(loop)}
            print(
                f"| {name} | {1000 * times[0]:.0f} | {1000 * median(times[1:]):.0f}"
                f" | {1000 * max(loop):.0f} | {len(body) // 1024} |",
                flush=True,
            )
    return measurements


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5, help="requests of each page after the first")
    parser.add_argument("--database", help="address of an empty PostgreSQL database")
    parser.add_argument("--folder", type=Path, help="folder of the data, used again if it is filled")
    parser.add_argument("--only", default="", help="measure pages whose name contains this")
    parser.add_argument("--json", type=Path, help="write every number there")
    parser.add_argument("--strict", action="store_true", help="a missed bar fails the run")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        target, note = Target(folder, options.database), folder / "filled.json"
        if not note.exists():
            people, server = asyncio.run(
                fill_accounts(target, max(MIN_PEOPLE, options.calls // CALLS_PER_PERSON))
            )
            today = time.time()
            for table, columns, rows in (
                ("usage", USAGE_COLUMNS, usage_rows(people, options.calls, today)),
                ("usage_totals", TOTAL_COLUMNS, total_rows(usage_rows(people, options.calls, today))),
                ("audit", AUDIT_COLUMNS, audit_rows(people, server, options.calls, today)),
            ):
                start = time.perf_counter()
                target.write(table, columns, rows)
                print(f"{table} filled in {time.perf_counter() - start:.0f} s", flush=True)
            note.write_text(json.dumps([people, server]))
        people, server = json.loads(note.read_text())
        print(", ".join(f"{machine_item} {value}" for machine_item, value in describe().items()))
        print("| what | first, ms | median, ms | longest wait of the loop, ms | KiB |\n|---|--:|--:|--:|--:|")
        result = asyncio.run(measure(target, people, server, options.rounds, options.only))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    is_met = all(
        each["median"] <= LIMIT_SECONDS and each["loop"] <= LOOP_LIMIT_SECONDS for each in result.values()
    )
    return 1 if options.strict and not is_met else 0


if __name__ == "__main__":
    sys.exit(main())
