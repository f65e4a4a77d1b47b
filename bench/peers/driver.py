"""What all drivers share: a line protocol with the orchestrator, and the taking of time, CPU and memory.

A driver runs as a process of its own in its peer's environment. It says hello, then reads one JSON command a
line from its standard input and answers each with one line; it ends with its input. Commands:

    {"do": "open", "targets": [{"url": …} | {"command": …, "args": […]}, …]}   connect to all and list tools
    {"do": "list", "times": n}                  list the first target's tools again, over the wire
    {"do": "cached", "index": n}                list for agent n, from what is known
    {"do": "calls", "times": n, "at_once": k}   call echo on the first target, k calls in flight
    {"do": "big", "megabytes": n}               call big on the first target
    {"do": "memory"}                            this process's memory as it is now
    {"do": "close"}                             close all; says what CPU the ended child processes took

CPU is that of this process and all its threads. The collector runs before each timing and is never off.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, TypedDict

__all__ = ["Group", "Peer", "Target", "drive"]


class Target(TypedDict, total=False):
    """A server to connect to: a URL, or a command with its arguments."""

    url: str
    command: str
    args: list[str]


class Peer(Protocol):
    """A client under measurement, connected to one server or to many."""

    async def open(self, targets: list[Target]) -> None:
        """Connects to all, at once where the client can."""
        ...

    async def list(self, index: int) -> int:
        """Lists a target's tools over the wire, never from a cache, and says how many there are."""
        ...

    async def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        """Calls a tool of the first target, the way that the client's users do."""
        ...

    def text(self, answer: Any) -> str:
        """The text in what ``call`` gave."""
        ...

    async def close(self) -> None:
        """Closes every connection."""
        ...


class Group:
    """Many clients of a library that has no manager: each is entered in a task of its own, all at once."""

    def __init__(self, make: Callable[[Target], Any]) -> None:
        self.make = make
        self.clients: list[Any] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.leave = asyncio.Event()

    async def open(self, targets: list[Target]) -> None:
        self.leave = asyncio.Event()
        ready = [asyncio.get_running_loop().create_future() for _ in targets]
        self.tasks = [
            asyncio.create_task(self._hold(target, future))
            for target, future in zip(targets, ready, strict=True)
        ]
        self.clients = await asyncio.gather(*ready)

    async def close(self) -> None:
        self.leave.set()
        await asyncio.gather(*self.tasks)
        self.clients = []

    async def _hold(self, target: Target, ready: asyncio.Future[Any]) -> None:
        try:
            async with self.make(target) as client:
                ready.set_result(client)
                await self.leave.wait()
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)


async def measure(work: Awaitable[Any]) -> tuple[Any, dict[str, float]]:
    """What the work gave, with the wall time and this process's CPU time that it took, in seconds."""
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    result = await work
    return result, {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


class Driver:
    """Answers the orchestrator's commands for one peer."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.targets: list[Target] = []
        self.children = 0.0

    async def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        return await getattr(self, "do_" + command.pop("do"))(**command)

    async def do_open(self, targets: list[Target]) -> dict[str, Any]:
        self.targets = targets
        self.children = _children_cpu()
        counts, seconds = await measure(self._open())
        return seconds | {"tools": counts}

    async def do_list(self, times: int) -> dict[str, Any]:
        before = await self._lists_seen()
        count, seconds = await measure(self._list(times))
        if (list_count := await self._lists_seen() - before) != times:
            raise RuntimeError(f"{times} listings were timed, but the server saw {list_count}")
        return seconds | {"tools": count}

    async def do_cached(self, index: int) -> dict[str, Any]:
        count, seconds = await measure(self.peer.list(index))
        return seconds | {"tools": count}

    async def do_calls(self, times: int, at_once: int) -> dict[str, Any]:
        if self.peer.text(await self.peer.call("echo", {"text": "á\n?"})) != "á\n?":
            raise RuntimeError("echo gave back another text")
        each, more = divmod(times, at_once)
        workers = [self._calls(each + (number < more)) for number in range(at_once)]
        _, seconds = await measure(asyncio.gather(*workers) if at_once > 1 else workers[0])
        return seconds

    async def do_big(self, megabytes: int) -> dict[str, Any]:
        answer, seconds = await measure(self.peer.call("big", {"mb": megabytes}))
        if len(text := self.peer.text(answer)) < megabytes * 999_000:
            raise RuntimeError(f"{megabytes} MB were asked for, {len(text)} characters came")
        return seconds

    async def do_memory(self) -> dict[str, Any]:
        gc.collect()
        return memory()

    async def do_close(self) -> dict[str, Any]:
        _, seconds = await measure(self.peer.close())
        return seconds | {"children_cpu": _children_cpu() - self.children}

    async def _open(self) -> list[int]:
        await self.peer.open(self.targets)
        return await asyncio.gather(*(self.peer.list(index) for index in range(len(self.targets))))

    async def _list(self, times: int) -> int:
        for _ in range(times - 1):
            await self.peer.list(0)
        return await self.peer.list(0)

    async def _calls(self, times: int) -> None:
        call, arguments = self.peer.call, {"text": "The quick brown fox jumps over the lazy dog."}
        for _ in range(times):
            await call("echo", arguments)

    async def _lists_seen(self) -> int:
        lines = self.peer.text(await self.peer.call("seen", {})).splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("tools/list "))


def memory() -> dict[str, int]:
    """Bytes: ``rss`` all resident, ``uss`` what this process alone holds. Empty where there is no /proc."""
    rollup = Path("/proc/self/smaps_rollup")
    if not rollup.exists():
        return {}
    fields = {}
    for line in rollup.read_text().splitlines()[1:]:
        name, value = line.split(":")
        fields[name] = int(value.split()[0]) * 1024
    return {"rss": fields["Rss"], "uss": fields["Private_Clean"] + fields["Private_Dirty"]}


def drive(make: Callable[[], Peer], *packages: str, runner: Callable[..., None] = asyncio.run) -> None:
    """Runs a driver until the orchestrator closes its input. ``packages`` are named in the hello."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not look like a reply
    runner(_serve(Driver(make()), replies, packages))


async def _serve(driver: Driver, replies: Any, packages: tuple[str, ...]) -> None:
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)

    def reply(line: dict[str, Any]) -> None:
        print(json.dumps(line), file=replies, flush=True)

    reply({"python": platform.python_version(), "packages": {name: version(name) for name in packages}})
    while line := await commands.readline():
        try:
            reply(await driver.answer(json.loads(line)))
        except Exception as error:
            reply({"error": f"{type(error).__name__}: {error}"})


def _children_cpu() -> float:
    children_usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children_usage.ru_utime + children_usage.ru_stime
