"""What tests of every room share: a watch for leaks, real servers, programs that listen."""

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
from tests import postgres, prefork
from tests.chromium import EXECUTABLE, OPTIONS
from tests.ports import free_port
from tests.processes import is_shared

# Names that nobody has are asked for on purpose; where no name server answers, that ends soon.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")
# ``toolyard stdio`` starts no background process, except in tests/background.
os.environ["TOOLYARD_STANDALONE"] = "1"
expect.set_options(timeout=60_000)

# Machines that run many things at once are slow at moments; that is no failure of a law. The examples are the
# same in every run, so that a change is judged by what it changed; with TOOLYARD_SEEK set they are others.
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
PROGRAMS = {"cli", "docs", "faults"}
"""Folders in which nearly every test starts programs, and takes as long as several others."""


# Event loops.


def pytest_configure(config: pytest.Config) -> None:
    # A shell ignores these signals in background jobs, and child processes would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    config.addinivalue_line("markers", "both_loops: run on asyncio's own loop and on uvloop")
    config.pluginmanager.register(postgres, "toolyard_postgres")
    # What is loaded and collected stays: a fifth of the time would go into looking for what could be freed.
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Workers take whole files, one after the other: slow ones first, then those with most to do, so that
    none is left for the end."""
    if hasattr(config, "workerinput"):
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        slow |= {item.path for item in items if "journeys" in item.path.parts}
        work: Counter[Path] = Counter()
        for item in items:
            work[item.path] += 1 if PROGRAMS.isdisjoint(item.path.parts) else 5
        items.sort(key=lambda item: (item.path not in slow, -work[item.path], str(item.path)))


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.get_closest_marker("both_loops") is None:
        return {"asyncio": asyncio.new_event_loop}
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


# Waiting.


async def _until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"did not come true within {seconds:g} s"
        await asyncio.sleep(0.01)


@pytest.fixture
def until() -> Callable[..., Awaitable[None]]:
    """``await until(condition, seconds)``: wait for something that nobody announces, with a deadline."""
    return _until


# Leaks.


def _descriptors() -> dict[str, str]:
    found: dict[str, str] = {}
    shared = set(map(str, prefork.held_descriptors()))
    for name in set(os.listdir("/proc/self/fd")) - shared:
        with contextlib.suppress(OSError):
            found[name] = os.readlink(f"/proc/self/fd/{name}")
    return found


def _processes() -> set[int]:
    """All of this machine."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def _marked(pid: int) -> bool:
    """Whether this process started it through Toolyard, whoever its parent is by now."""
    with contextlib.suppress(OSError):
        return f"TOOLYARD_CHILD={os.getpid()}:".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    return False


def _below(pid: int) -> bool:
    """Return whether it is below this process, and not shared by tests."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return os.getpid() in {each.pid for each in process.parents()} and not is_shared(process)
    return False


@dataclass
class Held:
    """What this process holds right now, and which processes there are: whose they are is asked of those that
    were not there before, since asking all takes longer than many a test."""

    tasks: set[asyncio.Task[Any]]
    descriptors: dict[str, str]
    processes: set[int]

    @classmethod
    def now(cls) -> Held:
        return cls(asyncio.all_tasks(), _descriptors(), _processes())

    def more_than(self, before: Held) -> list[str]:
        """What is there now and was not before, in words."""
        fresh = {name: target for name, target in self.descriptors.items() if name not in before.descriptors}
        more = [f"task {task.get_name()}: {task.get_coro()}" for task in self.tasks - before.tasks]
        if len(self.descriptors) > len(before.descriptors):
            more += [f"descriptor {name}: {target}" for name, target in fresh.items()]
        others = self.processes - before.processes
        return more + [f"process {_words(pid)}" for pid in others if _marked(pid) or _below(pid)]


def _words(pid: int) -> str:
    with contextlib.suppress(psutil.Error):
        return f"{pid}: {' '.join(psutil.Process(pid).cmdline())}"
    return str(pid)


@contextlib.asynccontextmanager
async def _watched(seconds: float) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    complaints: list[str] = []
    loop.set_exception_handler(lambda _, context: complaints.append(str(context)))
    # Some loops open what they need for children with the first one, and keep it.
    pipe = subprocess.PIPE
    await (await asyncio.create_subprocess_exec("true", stdin=pipe, stdout=pipe, stderr=pipe)).communicate()
    before = Held.now()
    yield
    me, deadline = asyncio.current_task(), time.monotonic() + seconds
    while True:
        now = Held.now()
        now.tasks.discard(me)  # type: ignore[arg-type]
        more = now.more_than(before)
        if not more or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.02)
    loop.set_exception_handler(None)
    assert not more, "left behind: " + "; ".join(more)
    assert not complaints, "the event loop complained: " + "; ".join(complaints)


@pytest.fixture
async def leaks() -> AsyncIterator[None]:
    """Fails the test that leaves a task, a descriptor or a process behind, or an exception that nobody saw.

    What the test itself opens must be closed when it ends. Ask for it first, or make it autouse, so that
    other fixtures are taken down before it looks.
    """
    async with _watched(30.0):
        yield


# Real servers.


def _installed(path: Path) -> str:
    if not path.exists():
        pytest.skip(f"{path.relative_to(ROOT)} is not installed; make unit installs it")
    return str(path)


@pytest.fixture(scope="session")
def everything_server() -> str:
    """The reference server that does everything (Node): ``stdio``, ``sse`` or ``streamableHttp``."""
    return _installed(NODE / "mcp-server-everything")


@pytest.fixture(scope="session")
def filesystem_server() -> str:
    """The file system server (Node). Its arguments are folders."""
    return _installed(NODE / "mcp-server-filesystem")


@pytest.fixture(scope="session")
def memory_server() -> str:
    """The knowledge graph server (Node). Set ``MEMORY_FILE_PATH``."""
    return _installed(NODE / "mcp-server-memory")


@pytest.fixture(scope="session")
def time_server() -> str:
    """The time server (Python, SDK of the legacy era)."""
    return _installed(LEGACY / "mcp-server-time")


@pytest.fixture(scope="session")
def git_server() -> str:
    """The git server (Python, SDK of the legacy era)."""
    return _installed(LEGACY / "mcp-server-git")


@pytest.fixture(scope="session")
def legacy_python() -> str:
    """An interpreter with the official SDK of the legacy era."""
    return _installed(LEGACY / "python")


# A real browser.


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def launching() -> AsyncIterator[Callable[[], Awaitable[Browser]]]:
    """The browser of this process of pytest; another one, should it have died."""
    running: list[Browser] = []

    async def launch() -> Browser:
        if not running or not running[-1].is_connected():
            running.append(await playwright.chromium.launch(executable_path=EXECUTABLE, args=OPTIONS))
        return running[-1]

    async with async_playwright() as playwright:
        yield launch
        for each in running:
            await each.close()


@pytest_asyncio.fixture(loop_scope="session")
async def chromium(launching: Callable[[], Awaitable[Browser]]) -> AsyncIterator[Browser]:
    """A browser without windows; the test runs in the loop of the session: ``asyncio(loop_scope="session")``.

    It is one for all tests of a process, since starting one takes longer than most of them.
    """
    browser = await launching()
    yield browser
    for each in browser.contexts:
        await each.close()


# Programs that listen.


@dataclass
class Listening:
    """A program that listens on a loopback port. ``stop`` and ``start`` may be called again."""

    command: list[str]
    port: int
    env: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, seconds: float = 60.0) -> Listening:
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
class Programs:
    """Starts programs that listen; ``{port}`` in their words and environment is a free port."""

    started: list[Listening] = field(default_factory=list[Listening])

    def __call__(self, *command: object, **env: str) -> Listening:
        port = free_port()
        words = [str(word).replace("{port}", str(port)) for word in command]
        words[0] = shutil.which(words[0]) or words[0]
        program = Listening(words, port, {k: v.replace("{port}", str(port)) for k, v in env.items()})
        self.started.append(program)
        return program.start()

    def stop(self) -> None:
        for program in self.started:
            program.stop()


@pytest.fixture
def listening() -> Iterator[Programs]:
    """``listening(command, "--port", "{port}")``: a program, once it listens; ended by its own process id."""
    programs = Programs()
    yield programs
    programs.stop()


@pytest.fixture(scope="module")
def hostile_http() -> Iterator[Listening]:
    """The program ``tests/hostile/http_server.py``, one for all tests of a file."""
    programs = Programs()
    yield programs(sys.executable, "-I", ROOT / "tests/hostile/http_server.py", "{port}")
    programs.stop()


@pytest.fixture(scope="session")
def openai_program() -> Iterator[Listening]:
    """The program ``tests/servers/openai_server.py``, one for all tests of a process."""
    programs = Programs()
    yield programs(sys.executable, "-I", ROOT / "tests/servers/openai_server.py", "{port}")
    programs.stop()


@pytest.fixture
def model_program(openai_program: Listening) -> Listening:
    """A model that does what it is told, and remembers nothing of what other tests told it."""
    request = urllib.request.Request(f"{openai_program.url}/reset", method="POST")
    urllib.request.urlopen(request, timeout=30).close()
    return openai_program


@pytest.fixture(scope="session")
def hostile_stdio() -> str:
    """The path of ``tests/hostile/stdio_server.py``."""
    return str(ROOT / "tests/hostile/stdio_server.py")
