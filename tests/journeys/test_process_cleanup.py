"""Whatever ends a program that holds stdio servers, no process of theirs outlives it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from toolyard.transports.stdio import watchdog

from .conftest import SDK_SERVER

TINY_SERVER = SDK_SERVER.with_name("tiny_server.py")

HOLDER = """
import asyncio, os, signal, sys, threading
from toolyard.clients import ConnectionManager
from toolyard.types.server import Server, StdioSpec

how, tag, program = sys.argv[1:4]
script = f"{sys.executable} -c 'import sys, time; [None for _ in sys.stdin]; time.sleep(300)' {tag}; true"
if how == "escape":
    script = f"setsid sleep 300 & {script}"
real = f"{sys.executable} -S {program} --stays {tag}; true"

def servers(count):
    spec = StdioSpec("/bin/sh", ("-c", real if how in ("ready", "thread") else script), env={"TAG": tag})
    return [Server(f"s{n}", spec) for n in range(count)]

async def hold(count):
    manager = ConnectionManager(servers(count))
    connecting = asyncio.ensure_future(manager.connect())
    if how in ("ready", "thread"):
        statuses = await connecting
        assert all(s.state == "ready" for s in statuses), statuses
    else:
        while sum(1 for s in manager.statuses() if s.pid) < count:
            await asyncio.sleep(0.01)
    return manager

def spawn_in_thread():
    global keep
    loop = asyncio.new_event_loop()
    keep = (loop, loop.run_until_complete(hold(3)))

async def main():
    manager = await hold(10)
    print("holding", flush=True)
    await asyncio.sleep(60)

if how == "thread":
    thread = threading.Thread(target=spawn_in_thread)
    thread.start()
    thread.join()
    print("holding", flush=True)
    signal.pause()
asyncio.run(main())
"""


def list_tagged_processes(tag: str) -> list[psutil.Process]:
    leftover_processes: list[psutil.Process] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and (
                tag in process.cmdline() or process.environ().get("TAG") == tag
            ):
                leftover_processes.append(process)
    return leftover_processes


def list_leftovers(tag: str) -> list[psutil.Process]:
    """What is still there, once there was time for it to go."""
    deadline = time.monotonic() + 30
    while (leftovers := list_tagged_processes(tag)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return leftovers


@pytest.fixture
def tag() -> Iterator[str]:
    name = f"toolyard-test-{os.getpid()}-{time.monotonic_ns()}"
    yield name
    for process in list_tagged_processes(name):
        with contextlib.suppress(psutil.Error):
            process.kill()


def holder(how: str, tag: str, tmp_path: Path) -> subprocess.Popen[bytes]:
    program = tmp_path / "holder.py"
    program.write_text(HOLDER)
    process = subprocess.Popen(
        [sys.executable, str(program), how, tag, str(TINY_SERVER)],
        stdout=subprocess.PIPE,
        env={**os.environ, "TAG": tag},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"holding\n"
    return process


@pytest.mark.parametrize("how", ["starting", "ready", "thread", "escape"])
def test_after_kill_9_no_process_of_theirs_is_left(how: str, tag: str, tmp_path: Path) -> None:
    process = holder(how, tag, tmp_path)
    children = {child.pid for child in psutil.Process(process.pid).children(recursive=True)}
    assert len(children) >= 4
    process.kill()
    process.wait(30)
    assert process.stdout is not None
    process.stdout.close()
    assert list_leftovers(tag) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_other_signals_leave_nothing_either(number: signal.Signals, tag: str, tmp_path: Path) -> None:
    process = holder("starting", tag, tmp_path)
    process.send_signal(number)
    process.wait(30)
    assert process.stdout is not None
    process.stdout.close()
    assert list_leftovers(tag) == []


def test_a_killed_watchdog_is_replaced_before_the_next_child(tag: str, tmp_path: Path) -> None:
    program = """
import asyncio, sys, psutil
from toolyard.clients import ConnectionManager
from toolyard.types.server import Server, StdioSpec
async def main():
    spec = StdioSpec(sys.executable, (sys.argv[1], "stdio", "--tag", sys.argv[2]))
    manager = ConnectionManager([Server("a", spec), Server("b", spec)])
    await manager.connect(["a"])
    dogs = [p for p in psutil.Process().children() if "watchdog.py" in " ".join(p.cmdline())]
    dogs[0].kill(); dogs[0].wait()
    await manager.connect(["b"])
    print("holding", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    process = subprocess.Popen([sys.executable, "-c", program, str(SDK_SERVER), tag], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"holding\n"
    process.kill()
    process.wait(30)
    process.stdout.close()
    assert list_leftovers(tag) == []


def test_leftovers_of_a_dead_owner_are_swept_and_those_of_a_living_one_are_not(tag: str) -> None:
    here = watchdog.pid_namespace()
    dead = subprocess.Popen(["true"])
    dead_owner = f"{dead.pid}:{watchdog.process_start_time(dead.pid) or '1'}:{here}:0:1"
    dead.wait()
    living_owner = f"{os.getpid()}:{watchdog.process_start_time(os.getpid())}:{here}:0:1"
    elsewhere = f"{dead.pid}:1:4026000000:0:1"
    sleeper = ["sleep", "300"]
    marked_processes = {
        owner: subprocess.Popen(
            sleeper, env={watchdog.MARKER_VARIABLE: owner, "PATH": os.environ["PATH"], "TAG": tag}
        )
        for owner in (dead_owner, living_owner, elsewhere)
    }
    try:
        watchdog.kill_orphans()
        assert marked_processes[dead_owner].wait(30) == -signal.SIGKILL
        assert marked_processes[living_owner].poll() is None
        assert marked_processes[elsewhere].poll() is None
    finally:
        for process in marked_processes.values():
            process.kill()
            process.wait()
