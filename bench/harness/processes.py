"""Child processes of a benchmark: servers and drivers. Waits are bounded, and nothing outlives the run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

__all__ = ["BENCH", "ROOT", "ChildFailed", "Missing", "Worker", "http_servers", "output", "worker"]

BENCH = Path(__file__).resolve().parents[1]
ROOT = BENCH.parent
STOP_AFTER = 15.0
START_WITHIN = 60.0


class ChildFailed(Exception):
    """A child said that it failed, fell silent or ended; the message says which, with its last words."""


class Missing(ChildFailed):
    """A peer cannot be started at all: its environment is not there or lacks the library."""


class Worker:
    """A child that answers one line of JSON to each line of JSON, and ends with its standard input."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Any) -> None:
        self.name = name
        self.process = process
        self.log = log
        self.hello: Any = None

    async def ask(self, do: str, *, within: float = 60.0, **details: Any) -> dict[str, Any]:
        """Sends a command and waits for its answer; raises Failed."""
        stdin = self.process.stdin
        assert stdin is not None
        stdin.write(json.dumps({"do": do, **details}).encode() + b"\n")
        answer = await self.line(within)
        if "error" in answer:
            raise ChildFailed(f"{self.name}: {do}: {answer['error']}")
        return answer

    async def line(self, within: float) -> Any:
        """The child's next line, as JSON; raises Failed if it does not come in time."""
        assert self.process.stdout is not None
        try:
            line = await asyncio.wait_for(self.process.stdout.readline(), within)
        except TimeoutError:
            raise ChildFailed(f"{self.name}: no answer within {within:.0f} s{self._last_words()}") from None
        if not line:
            raise ChildFailed(f"{self.name}: ended{self._last_words()}")
        return json.loads(line)

    async def stop(self) -> None:
        """Closes its input and waits for its end; kills it if that takes too long."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), STOP_AFTER)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()

    def _last_words(self) -> str:
        self.log.flush()
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        return "".join(f"\n    {line}" for line in lines[-8:])


@contextlib.asynccontextmanager
async def worker(name: str, python: str, *words: str) -> AsyncIterator[Worker]:
    """Starts ``python -m words`` in the benchmark's folder, waits for its first line, stops it at the end."""
    with tempfile.TemporaryFile() as log:
        try:
            process = await asyncio.create_subprocess_exec(
                python, "-m", *words, stdin=-1, stdout=-1, stderr=log, cwd=BENCH, env=_environment()
            )
        except FileNotFoundError:
            raise Missing(f"{name}: its environment is not there") from None
        child = Worker(name, process, log)
        try:
            try:
                child.hello = await child.line(START_WITHIN)
            except ChildFailed as error:
                raise Missing(str(error)) from None
            yield child
        finally:
            await child.stop()


@contextlib.asynccontextmanager
async def http_servers(*words: str, count: int = 1) -> AsyncIterator[list[str]]:
    """Starts the benchmark's HTTP server and gives the URLs of its ports."""
    async with worker("server", sys.executable, "servers.http", "--ports", str(count), *words) as server:
        yield [f"http://127.0.0.1:{port}/mcp" for port in server.hello]


async def output(name: str, python: str, code: str, within: float = 60.0) -> str:
    """What a Python program prints; raises Missing if it cannot be started or fails."""
    try:
        process = await asyncio.create_subprocess_exec(
            python, "-c", code, stdin=-3, stdout=-1, stderr=-1, cwd=BENCH, env=_environment()
        )
    except FileNotFoundError:
        raise Missing(f"{name}: its environment is not there") from None
    try:
        stdout, stderr = await asyncio.wait_for(process.communicate(), within)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise ChildFailed(f"{name}: no end within {within:.0f} s") from None
    if process.returncode:
        raise Missing(f"{name}: {stderr.decode(errors='replace').strip().splitlines()[-1]}")
    return stdout.decode()


def _environment() -> dict[str, str]:
    """Ours without what would steer a child's Python, and without proxies, for calls on the loopback."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTHON") and not name.lower().endswith("_proxy") and name != "VIRTUAL_ENV"
    }
