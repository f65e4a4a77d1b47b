"""Cases, and their execution: with a deadline, beside other calls that must not notice, with a leak check."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from tests.conftest import ROOT, ListeningProgram, ResourceSnapshot

from toolyard import Toolyard
from toolyard.errors import ToolyardError

HOSTILE = ROOT / "tests/hostile/stdio_server.py"
TIMEOUTS = {"connect": 6, "silence": 3, "call": 8}
CLEANUP_DEADLINE_SECONDS = 20.0
"""Seconds for resources to be released."""


@dataclass
class CaseContext:
    """The context of a case: a folder, and the HTTP server that misbehaves."""

    folder: Path
    http: ListeningProgram
    others: int = 0
    """Calls to other servers that were answered correctly during the fault."""


Run = Callable[[CaseContext], Awaitable[str]]


@dataclass(frozen=True)
class FaultCase:
    """One fault. ``run`` returns the effect for the caller, and raises AssertionError if it is wrong."""

    group: str
    fault: str
    run: Run
    seconds: float


CASES: list[FaultCase] = []


def case(group: str, fault: str, seconds: float = 40.0) -> Callable[[Run], Run]:
    def add(run: Run) -> Run:
        CASES.append(FaultCase(group, fault, run, seconds))
        return run

    return add


@dataclass
class CaseOutcome:
    """The outcome of a case."""

    case: FaultCase
    seen: str = ""
    seconds: float = 0.0
    others: int = 0
    wrong: list[str] = field(default_factory=list)


async def run_case(
    each: FaultCase, http: ListeningProgram, cleanup_seconds: float = CLEANUP_DEADLINE_SECONDS
) -> CaseOutcome:
    outcome = CaseOutcome(each)
    before = ResourceSnapshot.take()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        room = CaseContext(Path(folder), http)
        try:
            async with asyncio.timeout(each.seconds):
                outcome.seen = await each.run(room)
        except TimeoutError:
            outcome.wrong.append(f"did not end within {each.seconds:g} s")
        except Exception as error:
            outcome.wrong.append(f"{type(error).__name__}: {error}")
    outcome.seconds, outcome.others = time.monotonic() - start, room.others
    outcome.wrong += await find_leaks(before, cleanup_seconds)
    return outcome


async def find_leaks(before: ResourceSnapshot, seconds: float = CLEANUP_DEADLINE_SECONDS) -> list[str]:
    """Return the resources that were not released in time."""
    me, deadline = asyncio.current_task(), time.monotonic() + seconds
    while True:
        now = ResourceSnapshot.take()
        now.tasks.discard(me)  # type: ignore[arg-type]
        more = now.describe_growth(before)
        if not more or time.monotonic() > deadline:
            return [f"left behind: {each}" for each in more]
        await asyncio.sleep(0.02)


def memory() -> int:
    gc.collect()
    return psutil.Process().memory_info().rss


# A yard with a server that misbehaves and a good one.


def child(mode: str, *more: str) -> dict[str, Any]:
    """The server of one mode, as an entry of the configuration."""
    return {"type": "stdio", "command": "python3", "args": ["-I", str(HOSTILE), mode, *more]}


def address(room: CaseContext, mode: str, key: str = "k", **options: str) -> dict[str, Any]:
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return {"type": "http", "url": f"{room.http.url}/{mode}/{key}?{query}"}


@contextlib.asynccontextmanager
async def open_with_good_server(
    room: CaseContext, transport: dict[str, Any], **entry: Any
) -> AsyncIterator[Toolyard]:
    """A yard with the server ``bad``, while somebody calls the server ``good`` again and again."""
    bad = {"trust": "trusted", "transport": transport, "timeouts": TIMEOUTS, **entry}
    servers = {"bad": bad, "good": {"trust": "trusted", "transport": child("good")}}
    async with Toolyard.open({"servers": servers}, data_dir=room.folder / "data") as yard:
        await yard.call("good_echo", {"text": "first"})
        done = asyncio.Event()
        calling = asyncio.create_task(keep_calling(room, yard, done))
        try:
            yield yard
        finally:
            done.set()
            await calling


async def keep_calling(room: CaseContext, yard: Toolyard, stop: asyncio.Event) -> None:
    while not stop.is_set():
        text = f"call {room.others}"
        result = await yard.call("good_echo", {"text": text})
        assert result.text == text, f"another caller was disturbed: {result.text[:80]}"
        room.others += 1
        await asyncio.sleep(0.01)


async def describe_outcome(work: Awaitable[Any]) -> str:
    """What a caller sees of a call, in one line."""
    try:
        result = await work
    except ToolyardError as error:
        return f"{type(error).__name__}: {' '.join(error.cause.split())}"
    text = result.text if len(result.text) < 60 else f"{len(result.text):,} characters"
    return f"the tool's error: {text}" if result.is_error else f"works: {text}"


async def call(yard: Toolyard, text: str = "hello", **arguments: Any) -> str:
    return await describe_outcome(yard.call("bad_echo", {"text": text, **arguments}))


async def assert_recovers(yard: Toolyard, again: str) -> str:
    """After the fault, a call works; ``again`` tells what was seen before."""
    error_text = await call(yard, "again")
    assert error_text == "works: again", f"afterwards: {error_text}"
    return f"{again}; the next call works"
