"""Nothing survives Toolyard, not even its own kill -9; a living Toolyard's children are never touched."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.processes import is_running

from toolyard.errors import Unreachable
from toolyard.transports.stdio import watchdog
from toolyard.transports.stdio.supervisor import (
    INHERITED_VARIABLES,
    ProcessSupervisor,
    build_child_environment,
)
from toolyard.transports.stdio.transport import StdioTransport
from toolyard.types.server import StdioSpec

if TYPE_CHECKING:
    from tests.transports.conftest import RecordingReceiver

Until = Callable[..., Awaitable[None]]

OWNER = textwrap.dedent("""
    import asyncio, sys
    from toolyard.clients import ConnectionManager
    from toolyard.types.server import Server, StdioSpec

    async def main():
        words = ("-I", "-S", sys.argv[1], "family", "--journal")
        servers = [Server(name, StdioSpec(sys.executable, (*words, sys.argv[2] + name))) for name in "ab"]
        manager = ConnectionManager(servers)
        await manager.connect()
        print("ready", flush=True)
        await asyncio.Event().wait()

    asyncio.run(main())
""")


ESCAPE = textwrap.dedent("""
    import os, subprocess, sys
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 3)
            escaped = subprocess.Popen(["/bin/sleep", "600"], env={}, start_new_session=True)
            with open(sys.argv[1] + ".part", "w") as file:
                file.write(str(escaped.pid))
            os.rename(sys.argv[1] + ".part", sys.argv[1])
        os._exit(0)
    os.wait()
    sys.stdin.read()
""")
"""A server that starts a daemon: in a session of its own, with no parent, environment or stream of ours."""

OWNER_OF_ESCAPE = textwrap.dedent("""
    import asyncio, sys
    from toolyard.types.server import StdioSpec
    from toolyard.transports.stdio.supervisor import ProcessSupervisor
    from toolyard.transports.stdio.transport import StdioTransport

    async def main():
        await StdioTransport(StdioSpec(sys.executable, tuple(sys.argv[1:])), ProcessSupervisor()).open(None)
        await asyncio.Event().wait()

    asyncio.run(main())
""")


class Owner:
    """Another Toolyard, with two servers that each have two processes of their own."""

    def __init__(self, server: str, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER, server, f"{folder}/"],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.family: list[int] = []
        self.watchdogs: list[int] = []

    def begin(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"
        me = psutil.Process(self.process.pid)
        needle = f"{self.process.pid}:"
        self.family = [
            pid for pid, mark in watchdog.find_marked_processes().items() if mark.startswith(needle)
        ]
        self.watchdogs = [child.pid for child in me.children() if "watchdog.py" in " ".join(child.cmdline())]
        assert len(self.family) == 6
        assert len(self.watchdogs) == 1

    def end(self) -> None:
        for pid in (self.process.pid, *self.watchdogs, *self.family):
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def owner(hostile_stdio: str, tmp_path: Path) -> Any:
    owner = Owner(hostile_stdio, tmp_path)
    try:
        owner.begin()
        yield owner
    finally:
        owner.end()


async def test_a_kill_leaves_no_process_even_outside_the_group(owner: Owner, wait_until: Until) -> None:
    os.kill(owner.process.pid, signal.SIGKILL)
    owner.process.wait(30)
    await wait_until(lambda: not any(is_running(pid) for pid in [*owner.family, *owner.watchdogs]))


async def test_without_its_watchdog_leftover_processes_are_killed_by_the_next_toolyard(
    owner: Owner, wait_until: Until
) -> None:
    os.kill(owner.watchdogs[0], signal.SIGKILL)
    os.kill(owner.process.pid, signal.SIGKILL)
    owner.process.wait(30)
    # Those who read the end of their input go by themselves; the others stay, until someone sweeps.
    await wait_until(lambda: sum(is_running(pid) for pid in owner.family) <= 4)
    supervisor = ProcessSupervisor()
    supervisor.ensure_can_start()
    await wait_until(lambda: not any(is_running(pid) for pid in owner.family))
    await supervisor.close()


async def test_the_children_of_a_living_toolyard_are_never_swept(
    owner: Owner, process_supervisor: ProcessSupervisor, wait_until: Until
) -> None:
    process_supervisor.ensure_can_start()
    await process_supervisor.close()
    assert all(is_running(pid) for pid in owner.family)


async def test_a_watchdog_that_was_killed_is_replaced_and_told_of_everyone(
    process_supervisor: ProcessSupervisor,
    spec: Callable[..., StdioSpec],
    recorder: RecordingReceiver,
    wait_until: Until,
) -> None:
    def watchdogs() -> list[psutil.Process]:
        return [child for child in psutil.Process().children() if "watchdog.py" in " ".join(child.cmdline())]

    one, two = (StdioTransport(spec("good"), process_supervisor) for _ in range(2))
    await one.open(recorder)
    first = watchdogs()[0]
    first.kill()
    await wait_until(lambda: not is_running(first.pid))
    await two.open(recorder)
    assert len(watchdogs()) == 1
    assert watchdogs()[0].pid != first.pid
    await asyncio.gather(one.close(), two.close())


async def test_an_environment_is_small_and_the_servers_own_wins() -> None:
    environment = {"PATH": "/bin", "HOME": "/home/me", "SECRET": "x", "TOOLYARD_SECRET_KEY": "y"}
    assert build_child_environment({"HOME": "/else", "MORE": "z"}, environment) == {
        "PATH": "/bin",
        "HOME": "/else",
        "MORE": "z",
    }
    assert not any("TOKEN" in name or "KEY" in name or "SECRET" in name for name in INHERITED_VARIABLES)


async def test_proxies_are_passed_on_without_their_passwords() -> None:
    environment = {
        "HTTP_PROXY": "http://me:secret@proxy.example:3128",
        "https_proxy": "me:sec/ret@proxy.example:3128",
        "ALL_PROXY": "socks5h://proxy.example",
        "NO_PROXY": "localhost,.example",
    }
    assert build_child_environment({}, environment) == {
        "HTTP_PROXY": "http://proxy.example:3128",
        "https_proxy": "proxy.example:3128",
        "ALL_PROXY": "socks5h://proxy.example",
        "NO_PROXY": "localhost,.example",
    }
    own = {"HTTP_PROXY": "http://its:own@proxy.example"}
    assert build_child_environment(own, environment)["HTTP_PROXY"] == own["HTTP_PROXY"]


async def test_a_process_is_named_by_its_start_and_not_by_its_number_alone() -> None:
    assert watchdog.process_start_time(os.getpid()) != ""
    assert watchdog.process_start_time(os.getpid()) == watchdog.process_start_time(os.getpid())
    assert watchdog.process_start_time(2**22 + 1) == ""


async def test_markers_are_told_apart(process_supervisor: ProcessSupervisor) -> None:
    (_, one), (_, two) = process_supervisor.make_marker(), process_supervisor.make_marker()
    assert one != two
    sleeper = subprocess.Popen(["sleep", "60"], env={watchdog.MARKER_VARIABLE: f"{one}0"})
    try:
        # Child 1 must not take child 10 along.
        assert watchdog.kill_marked_processes(one) == 0
        assert sleeper.poll() is None
        assert watchdog.kill_marked_processes(f"{one}0") >= 1
        assert sleeper.wait(30) == -signal.SIGKILL
    finally:
        sleeper.kill()
        sleeper.wait()


async def test_a_watchdog_that_cannot_be_started_is_told(
    process_supervisor: ProcessSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(Unreachable, match="the watchdog process, which every server needs"):
        process_supervisor.ensure_can_start()


async def test_a_marker_that_is_none_stops_no_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    here, killed_pids = watchdog.pid_namespace(), list[int]()
    marks = {1: f"\u00b2:1:{here}", 2: f"{'9' * 5000}:1:{here}", 3: "7", 4: f"0:gone:{here}:x:1"}
    marks[5] = f"{'9' * 19}:gone:{here}:x:1"
    monkeypatch.setattr(watchdog, "find_marked_processes", lambda: marks)
    monkeypatch.setattr(watchdog, "_send_sigkill", killed_pids.append)
    watchdog.kill_orphans()
    assert killed_pids == [4, 5]


async def test_a_fork_leaves_the_children_of_its_parent_alone(
    spec: Callable[..., StdioSpec], process_supervisor: ProcessSupervisor, recorder: RecordingReceiver
) -> None:
    transport = StdioTransport(spec("good"), process_supervisor)
    await transport.open(recorder)
    child = psutil.Process(transport.get_info().pid)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "getpid", lambda: child.pid)
        await transport.close()
        await process_supervisor.close()
    assert child.is_running()
    await transport.close()
    assert not child.is_running()


async def start_escaped_daemon(file: Path, wait_until: Until) -> int:
    await wait_until(file.exists)
    pid = int(file.read_text())
    assert is_running(pid)
    return pid


async def test_a_daemon_without_parent_and_environment_ends_with_its_server(
    process_supervisor: ProcessSupervisor, recorder: RecordingReceiver, tmp_path: Path, wait_until: Until
) -> None:
    one, two = (
        StdioTransport(StdioSpec(sys.executable, ("-c", ESCAPE, str(tmp_path / name))), process_supervisor)
        for name in ("one", "two")
    )
    await one.open(recorder)
    await two.open(recorder)
    first, second = [await start_escaped_daemon(tmp_path / name, wait_until) for name in ("one", "two")]
    # A killed process is gone once the kernel has scheduled it, which takes a while on a busy machine.
    await one.close()
    await wait_until(lambda: not is_running(first))
    assert is_running(second)
    await two.close()
    await wait_until(lambda: not is_running(second))


async def test_a_daemon_that_is_started_before_its_server_has_its_limits_ends_too(
    process_supervisor: ProcessSupervisor,
    recorder: RecordingReceiver,
    tmp_path: Path,
    wait_until: Until,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register_group, file = process_supervisor.register_group, tmp_path / "pid"

    def register_late(group: int, marker: str) -> None:
        while not file.exists():
            time.sleep(0.01)
        register_group(group, marker)

    monkeypatch.setattr(process_supervisor, "register_group", register_late)
    before = resource.getrlimit(resource.RLIMIT_RTTIME)
    transport = StdioTransport(StdioSpec(sys.executable, ("-c", ESCAPE, str(file))), process_supervisor)
    await transport.open(recorder)
    assert resource.getrlimit(resource.RLIMIT_RTTIME) == before
    daemon = await start_escaped_daemon(file, wait_until)
    await transport.close()
    await wait_until(lambda: not is_running(daemon))


async def test_processes_that_other_threads_start_beside_a_server_are_spared(
    process_supervisor: ProcessSupervisor,
) -> None:
    _, marker = process_supervisor.make_marker()
    with process_supervisor.mark_new_processes(marker):
        other = subprocess.Popen(["/bin/sleep", "600"])
    await process_supervisor.kill_escaped(marker)
    assert other.poll() is None
    other.kill()
    other.wait()


async def test_a_daemon_without_parent_and_environment_ends_after_our_kill(
    tmp_path: Path, wait_until: Until
) -> None:
    file = tmp_path / "pid"
    owner = subprocess.Popen([sys.executable, "-c", OWNER_OF_ESCAPE, "-c", ESCAPE, str(file)])
    daemon = await start_escaped_daemon(file, wait_until)
    owner.kill()
    owner.wait(30)
    await wait_until(lambda: not is_running(daemon))


async def test_a_sweep_spares_the_daemons_of_another_toolyard(
    process_supervisor: ProcessSupervisor, recorder: RecordingReceiver, tmp_path: Path, wait_until: Until
) -> None:
    transport = StdioTransport(
        StdioSpec(sys.executable, ("-c", ESCAPE, str(tmp_path / "pid"))), process_supervisor
    )
    await transport.open(recorder)
    daemon = await start_escaped_daemon(tmp_path / "pid", wait_until)
    other = ProcessSupervisor()
    other.ensure_can_start()
    await other.kill_escaped(other.make_marker()[1])
    await other.close()
    assert is_running(daemon)
    await transport.close()


async def test_a_watchdog_spares_a_process_that_got_the_number_of_a_group(tmp_path: Path) -> None:
    """The number of a group that ended is given to others."""
    bystander = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        watchdog.kill_group(bystander.pid, f"not {watchdog.process_start_time(bystander.pid)}")
        assert is_running(bystander.pid)
        watchdog.kill_group(bystander.pid, watchdog.process_start_time(bystander.pid))
        assert bystander.wait(30) == -signal.SIGKILL
    finally:
        bystander.kill()
        bystander.wait()
