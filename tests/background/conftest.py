"""Clients of the shared background process, each with the real program."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests import prefork
from tests.processes import is_running

DEMO = Path(__file__).parents[2] / "src/toolyard/cli/demo_server.py"
INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"did not come true within {seconds:g} s"
        time.sleep(0.01)


class StdioClient:
    """One ``toolyard stdio`` and the MCP client that started it."""

    def __init__(self, words: list[str], cwd: Path, env: dict[str, str]) -> None:
        pipe = subprocess.PIPE
        self.process = prefork.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, cwd=cwd, env=env)
        self.messages: queue.Queue[Any] = queue.Queue()
        self._count = 0
        self._answers: dict[int, Any] = {}
        self._error: str | None = None
        self.notifications: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.messages.put(json.loads(line))
        self.messages.put(None)

    def send(self, method: str, params: Any = None, *, notify: bool = False) -> int:
        self._count += 1
        message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        if not notify:
            message["id"] = self._count
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        return self._count

    def receive(self, id: int) -> Any:
        """Return the answer to a request."""
        while id not in self._answers:
            message = self.messages.get(timeout=90)
            assert message is not None, f"ended: {self.process.stderr.read().decode()}"
            if "method" in message:
                self.notifications.append(message["method"])
            else:
                self._answers[message["id"]] = message
        return self._answers.pop(id)

    def ask(self, method: str, params: Any = None) -> Any:
        return self.receive(self.send(method, params))

    def initialize(self) -> StdioClient:
        assert self.ask("initialize", INITIALIZE)["result"]["serverInfo"]["name"] == "toolyard"
        self.send("notifications/initialized", notify=True)
        return self

    def weekday(self) -> str:
        answer = self.ask("tools/call", {"name": "demo_weekday", "arguments": {"date": "2026-07-28"}})
        return answer["result"]["content"][0]["text"].split()[-1].rstrip(".")

    def start_long_call(self) -> int:
        """Call a tool that takes minutes. Returns once the call runs."""
        arguments = {"to": 100, "pause": 1}
        params = {"name": "demo_count", "arguments": arguments, "_meta": {"progressToken": "p"}}
        id = self.send("tools/call", params)
        while True:
            message = self.messages.get(timeout=90)
            assert message is not None, self.process.stderr.read().decode()
            if message.get("method") == "notifications/progress":
                return id

    def close(self) -> str:
        """Disconnect, and return the text written to standard error."""
        if self._error is not None:
            return self._error
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(30)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait(30)
        self.reader.join(30)
        self._error = self.process.stderr.read().decode()
        self.process.stdout.close()
        self.process.stderr.close()
        return self._error


@dataclass
class Machine:
    """A user's data directory and runtime folder, with the clients on them."""

    home: Path
    data: Path
    runtime: Path
    env: dict[str, str] = field(default_factory=dict[str, str])
    clients: list[StdioClient] = field(default_factory=list[StdioClient])

    def environment(self, **more: str) -> dict[str, str]:
        keep = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        own = {
            "HOME": str(self.home),
            "TOOLYARD_DATA_DIR": str(self.data),
            "XDG_RUNTIME_DIR": str(self.runtime),
            "TOOLYARD_IDLE_EXIT": "120",
        }
        return {**keep, **own, **self.env, **more}

    def write_config(self, **servers: Any) -> None:
        demo = {"command": sys.executable, "args": ["-I", "-S", str(DEMO)]}
        self.data.mkdir(exist_ok=True)
        (self.data / "mcp.json").write_text(json.dumps({"mcpServers": {"demo": demo, **servers}}))

    def start(self, *arguments: str, cwd: Path | None = None, program: str = "", **env: str) -> StdioClient:
        words = [program] if program else [sys.executable, "-m", "toolyard"]
        client = StdioClient([*words, "stdio", *arguments], cwd or self.home, self.environment(**env))
        self.clients.append(client)
        return client

    def run(self, *arguments: str, **env: str) -> Any:
        words = [sys.executable, "-m", "toolyard", *arguments]
        return prefork.run(words, cwd=self.home, env=self.environment(**env), timeout=90)

    def status(self) -> dict[str, Any]:
        return json.loads(self.run("status", "--json").stdout)

    @property
    def owner(self) -> int:
        """The process id of the background process."""
        (file,) = (self.runtime / "toolyard").glob("*.owner")
        return int(file.read_text() or 0)  # Empty for a moment when it changes.

    @property
    def socket(self) -> Path:
        (file,) = (self.runtime / "toolyard").glob("*.sock")
        return file

    @property
    def backgrounds(self) -> list[int]:
        """The background processes of this data directory that run."""
        pids: list[int] = []
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                if (
                    b"--background" in words
                    and os.fsencode(self.data) in words
                    and is_running(int(folder.name))
                ):
                    pids.append(int(folder.name))
        return pids

    def close(self) -> None:
        for client in self.clients:
            client.close()
        for pid in self.backgrounds:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not self.backgrounds)


@contextlib.contextmanager
def make_machine() -> Iterator[Machine]:
    # A short path: that of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="toolyard-") as name:
        machine = Machine(Path(name, "home"), Path(name, "data"), Path(name, "run"))
        machine.home.mkdir()
        machine.runtime.mkdir(mode=0o700)
        machine.write_config()
        try:
            yield machine
        finally:
            machine.close()


@pytest.fixture
def machine() -> Iterator[Machine]:
    """A user's machine on which nothing runs yet."""
    with make_machine() as machine:
        yield machine
