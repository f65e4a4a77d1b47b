"""Shared fixtures: leak detection, real MCP servers, a browser, programs that listen on a port."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest
import pytest_asyncio
import uvloop
from playwright.async_api import Browser, async_playwright, expect
from tests import postgres, prefork, worker_crashes
from tests.chromium import EXECUTABLE, OPTIONS
from tests.ports import free_port
from tests.processes import is_shared

# Tests look up unknown host names on purpose. Give up early where no name server answers.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")
# ``toolyard stdio`` starts no background process, except in tests/background.
os.environ["TOOLYARD_STANDALONE"] = "1"
expect.set_options(timeout=60_000)

# No deadline for examples: a busy machine must not fail a property. Examples are the same in every run,
# unless TOOLYARD_SEEK is set.
hypothesis.settings.register_profile(
    "patient",
    deadline=None,
    derandomize="TOOLYARD_SEEK" not in os.environ,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("patient")

ROOT = Path(__file__).parent.parent
NODE = ROOT / ".envs/node/node_modules/.bin"
LEGACY = ROOT / ".envs/legacy/bin"
SLOW_FOLDERS = {"cli", "docs", "faults"}
"""Folders with many tests that start programs, and take as long as several other tests."""


# Event loops.


def pytest_configure(config: pytest.Config) -> None:
    # A shell ignores these signals in background jobs, and child processes would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    config.addinivalue_line("markers", "both_loops: run on asyncio's own loop and on uvloop")
    config.pluginmanager.register(postgres, "toolyard_postgres")
    config.pluginmanager.register(worker_crashes)
    # Freeze the loaded modules: otherwise the garbage collector takes a fifth of the time.
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order files for the workers: slow ones first, then by number of tests."""
    if hasattr(config, "workerinput"):
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        slow |= {item.path for item in items if "journeys" in item.path.parts}
        work: Counter[Path] = Counter()
        for item in items:
            work[item.path] += 1 if SLOW_FOLDERS.isdisjoint(item.path.parts) else 5
        items.sort(key=lambda item: (item.path not in slow, -work[item.path], str(item.path)))


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.get_closest_marker("both_loops") is None:
        return {"asyncio": asyncio.new_event_loop}
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


# Waiting.


async def _wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"did not come true within {seconds:g} s"
        await asyncio.sleep(0.01)


@pytest.fixture
def wait_until() -> Callable[..., Awaitable[None]]:
    """``await wait_until(condition, seconds)``: poll a condition that has no event, with a deadline."""
    return _wait_until


# Leaks.


def _descriptors() -> dict[str, str]:
    marker_reasons: dict[str, str] = {}
    inherited_descriptors = set(map(str, prefork.open_descriptors()))
    for name in set(os.listdir("/proc/self/fd")) - inherited_descriptors:
        with contextlib.suppress(OSError):
            marker_reasons[name] = os.readlink(f"/proc/self/fd/{name}")
    return marker_reasons


def _processes() -> set[int]:
    """Return all processes of this machine."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def _is_started_by_toolyard(pid: int) -> bool:
    """Return whether this process started it through Toolyard, even if it has another parent now."""
    with contextlib.suppress(OSError):
        return f"TOOLYARD_CHILD={os.getpid()}:".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    return False


def _is_own_descendant(pid: int) -> bool:
    """Return whether it is a descendant of this process, and not shared by tests."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return os.getpid() in {each.pid for each in process.parents()} and not is_shared(process)
    return False


@dataclass
class ResourceSnapshot:
    """Tasks, descriptors and processes of one moment.

    Only new processes are attributed to a test, because reading the environment of all of them is slow.
    """

    tasks: set[asyncio.Task[Any]]
    descriptors: dict[str, str]
    processes: set[int]

    @classmethod
    def take(cls) -> ResourceSnapshot:
        return cls(asyncio.all_tasks(), _descriptors(), _processes())

    def describe_growth(self, before: ResourceSnapshot) -> list[str]:
        """Return a line for each resource that was added since ``before``."""
        fresh = {name: target for name, target in self.descriptors.items() if name not in before.descriptors}
        more = [f"task {task.get_name()}: {task.get_coro()}" for task in self.tasks - before.tasks]
        if len(self.descriptors) > len(before.descriptors):
            more += [f"descriptor {name}: {target}" for name, target in fresh.items()]
        others = self.processes - before.processes
        return more + [
            f"process {_describe_process(pid)}"
            for pid in others
            if _is_started_by_toolyard(pid) or _is_own_descendant(pid)
        ]


def _describe_process(pid: int) -> str:
    with contextlib.suppress(psutil.Error):
        return f"{pid}: {' '.join(psutil.Process(pid).cmdline())}"
    return str(pid)


@contextlib.asynccontextmanager
async def _check_leaks(seconds: float) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    complaints: list[str] = []
    loop.set_exception_handler(lambda _, context: complaints.append(str(context)))
    # Some event loops open descriptors for their first child process, and keep them.
    pipe = subprocess.PIPE
    await (await asyncio.create_subprocess_exec("true", stdin=pipe, stdout=pipe, stderr=pipe)).communicate()
    before = ResourceSnapshot.take()
    yield
    me, deadline = asyncio.current_task(), time.monotonic() + seconds
    while True:
        now = ResourceSnapshot.take()
        now.tasks.discard(me)  # type: ignore[arg-type]
        more = now.describe_growth(before)
        if not more or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.02)
    loop.set_exception_handler(None)
    assert not more, "left behind: " + "; ".join(more)
    assert not complaints, "the event loop complained: " + "; ".join(complaints)


@pytest.fixture
async def leaks() -> AsyncIterator[None]:
    """Fail a test that leaks a task, a descriptor or a process, or leaves an exception unretrieved.

    A test closes everything that it opens. Request this fixture first, or make it autouse: fixtures requested
    later are then torn down before the check.
    """
    async with _check_leaks(30.0):
        yield


# Real servers.


def _require_installed(path: Path) -> str:
    if not path.exists():
        pytest.skip(f"{path.relative_to(ROOT)} is not installed; make unit installs it")
    return str(path)


@pytest.fixture(scope="session")
def everything_server() -> str:
    """The reference server that does everything (Node): ``stdio``, ``sse`` or ``streamableHttp``."""
    return _require_installed(NODE / "mcp-server-everything")


@pytest.fixture(scope="session")
def filesystem_server() -> str:
    """The file system server (Node). Its arguments are folders."""
    return _require_installed(NODE / "mcp-server-filesystem")


@pytest.fixture(scope="session")
def memory_server() -> str:
    """The knowledge graph server (Node). Set ``MEMORY_FILE_PATH``."""
    return _require_installed(NODE / "mcp-server-memory")


@pytest.fixture(scope="session")
def time_server() -> str:
    """The time server (Python, SDK of the legacy era)."""
    return _require_installed(LEGACY / "mcp-server-time")


@pytest.fixture(scope="session")
def git_server() -> str:
    """The git server (Python, SDK of the legacy era)."""
    return _require_installed(LEGACY / "mcp-server-git")


@pytest.fixture(scope="session")
def legacy_python() -> str:
    """An interpreter with the official SDK of the legacy era."""
    return _require_installed(LEGACY / "python")


# A real browser.


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser_launcher() -> AsyncIterator[Callable[[], Awaitable[Browser]]]:
    """Return the browser of this pytest process, or a new one if it died."""
    browsers: list[Browser] = []

    async def launch() -> Browser:
        if not browsers or not browsers[-1].is_connected():
            browsers.append(await playwright.chromium.launch(executable_path=EXECUTABLE, args=OPTIONS))
        return browsers[-1]

    async with async_playwright() as playwright:
        yield launch
        for each in browsers:
            await each.close()


@pytest_asyncio.fixture(loop_scope="session")
async def chromium(browser_launcher: Callable[[], Awaitable[Browser]]) -> AsyncIterator[Browser]:
    """A headless browser; the test runs in the loop of the session: ``asyncio(loop_scope="session")``.

    All tests of a process share it, because starting one takes longer than most tests.
    """
    browser = await browser_launcher()
    yield browser
    for each in browser.contexts:
        await each.close()


# Programs that listen.


@dataclass
class ListeningProgram:
    """A program that listens on a loopback port. ``stop`` and ``start`` may be called again."""

    command: list[str]
    port: int
    env: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, seconds: float = 60.0) -> ListeningProgram:
        self.process = prefork.Popen(
            self.command,
            env={**os.environ, **self.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"{self.command} exited with {self.process.returncode}"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return self
            time.sleep(0.01)
        self.stop()
        raise AssertionError(f"{self.command} does not listen on {self.port}")

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(30)


@dataclass
class ProgramStarter:
    """Starts programs that listen on a port; ``{port}`` in arguments and environment is a free port."""

    started: list[ListeningProgram] = field(default_factory=list[ListeningProgram])

    def __call__(self, *command: object, **env: str) -> ListeningProgram:
        port = free_port()
        words = [str(word).replace("{port}", str(port)) for word in command]
        words[0] = shutil.which(words[0]) or words[0]
        program = ListeningProgram(words, port, {k: v.replace("{port}", str(port)) for k, v in env.items()})
        self.started.append(program)
        return program.start()

    def stop(self) -> None:
        for program in self.started:
            program.stop()


@pytest.fixture
def start_program() -> Iterator[ProgramStarter]:
    """``start_program(command, "--port", "{port}")``: start a program and wait until it listens."""
    programs = ProgramStarter()
    yield programs
    programs.stop()


@pytest.fixture(scope="module")
def hostile_http() -> Iterator[ListeningProgram]:
    """The program ``tests/hostile/http_server.py``, shared by the tests of a file."""
    programs = ProgramStarter()
    yield programs(sys.executable, "-I", ROOT / "tests/hostile/http_server.py", "{port}")
    programs.stop()


@pytest.fixture(scope="session")
def openai_program() -> Iterator[ListeningProgram]:
    """The program ``tests/servers/openai_server.py``, shared by all tests of a process."""
    programs = ProgramStarter()
    yield programs(sys.executable, "-I", ROOT / "tests/servers/openai_server.py", "{port}")
    programs.stop()


@pytest.fixture
def model_program(openai_program: ListeningProgram) -> ListeningProgram:
    """The scripted model, with its log and scripts of earlier tests removed."""
    request = urllib.request.Request(f"{openai_program.url}/reset", method="POST")
    urllib.request.urlopen(request, timeout=30).close()
    return openai_program


@pytest.fixture(scope="session")
def hostile_stdio() -> str:
    """The path of ``tests/hostile/stdio_server.py``."""
    return str(ROOT / "tests/hostile/stdio_server.py")
