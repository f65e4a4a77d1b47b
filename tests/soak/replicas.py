"""``toolyard serve`` as processes, which can be restarted as an operator does it."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_STARTING, _ENDING = 120.0, 60.0


@dataclass
class SoakReplica:
    """One of them, with a folder and a port of its own. Its log is a file: a pipe that nobody reads fills."""

    number: int
    port: int
    folder: Path
    settings: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None
    stopped_at: float = math.inf
    back_at: float = math.inf
    generation: int = 0
    """Counts its restarts."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    async def start(self) -> None:
        """Until it listens."""
        env = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        env |= {"HOME": str(self.folder), "TOOLYARD_DATA_DIR": str(self.folder), **self.settings}
        words = [sys.executable, "-m", "toolyard", "serve", "--port", str(self.port)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd=self.folder
            )
        log_offset, deadline = 0, time.monotonic() + _STARTING
        while log_offset <= self.generation:
            await asyncio.sleep(0.05)
            log_offset = self.log.read_text().count("Toolyard is listening on ")
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"toolyard serve does not start: {self.log.read_text()[-2000:]}")

    async def stop(self) -> None:
        """SIGTERM, and the end that follows. Raises where it does not, or not with 0."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            code = await asyncio.to_thread(self.process.wait, _ENDING)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"replica {self.number} did not end within {_ENDING:g} s of SIGTERM") from None
        self.process = None
        if code:
            raise RuntimeError(f"replica {self.number} ended with {code}: {self.log.read_text()[-2000:]}")

    def kill(self) -> None:
        """Where it is still there, though all is over."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    async def restart(self) -> None:
        """As an operator does it who takes over a new version."""
        self.stopped_at, self.back_at = time.monotonic(), math.inf
        await self.stop()
        self.generation += 1
        await self.start()
        self.back_at = time.monotonic()

    def disturbed(self, since: float) -> bool:
        """Whether a request that began then may have met the restart."""
        return self.stopped_at <= time.monotonic() and since <= self.back_at

    def tracebacks(self) -> int:
        """Errors in its log that nobody expected."""
        return self.log.read_text(errors="replace").count("Traceback (most recent call last)")
