"""Real servers for whole journeys, started as programs of their own on loopback."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.ports import free_port

ROOT = Path(__file__).parent.parent.parent
NODE = ROOT / ".envs/node/node_modules/.bin"
LEGACY = ROOT / ".envs/legacy/bin"
SDK_SERVER = ROOT / "tests/servers/sdk_server.py"
PYTHONS = {"sdk2": sys.executable, "sdk1": str(LEGACY / "python")}


@dataclass
class ServerProgram:
    """A server program on a port; ``stop`` and ``start`` it again as often as you like."""

    command: list[str]
    port: int
    env: dict[str, str]
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> ServerProgram:
        self.process = subprocess.Popen(
            self.command,
            env={**os.environ, **self.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + 45
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"{self.command} exited with {self.process.returncode}"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return self
            time.sleep(0.02)
        raise AssertionError(f"{self.command} does not listen")

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(30)


class ServerPrograms:
    """Starts server programs; ``{port}`` in their arguments and environment is filled in."""

    def __init__(self) -> None:
        self.running: list[ServerProgram] = []

    def __call__(self, *command: object, **env: str) -> ServerProgram:
        port = free_port()
        words = [str(word).replace("{port}", str(port)) for word in command]
        filled_env = {name: value.replace("{port}", str(port)) for name, value in env.items()}
        self.running.append(ServerProgram(words, port, filled_env))
        return self.running[-1].start()


@pytest.fixture
def serve() -> Iterator[ServerPrograms]:
    servers = ServerPrograms()
    yield servers
    for one in servers.running:
        one.stop()
