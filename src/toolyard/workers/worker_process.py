"""Run untrusted work in a separate process that can be killed.

A regular expression or a crafted page can keep an interpreter busy in a way that no thread can interrupt.
Such work runs in a small program that receives only its input and cannot open files.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from types import TracebackType

from toolyard.transports.stdio.supervisor import build_child_environment

__all__ = ["WorkerFailed", "WorkerProcess"]

_LIFETIME_SECONDS = 120
"""Time after which the program ends by itself, in case the parent process has died."""
_MAX_RESPONSE_BYTES = 64 * 1024 * 1024
_BOOTSTRAP_CODE = (
    "import importlib, os, sys; sys.path[:0] = sys.argv[1].split(os.pathsep); "
    "importlib.import_module(sys.argv[2]).main()"
)


class WorkerFailed(Exception):
    """Raised when a worker exits, or answers with invalid data, instead of answering a request."""


class WorkerProcess:
    """A running worker program: ``async with WorkerProcess(module) as worker``."""

    def __init__(self, module: str, *, with_site_packages: bool = False) -> None:
        """``module`` is the full name of a module with ``main``.

        ``with_site_packages`` makes installed packages importable.
        """
        self._module = module
        self._with_site_packages = with_site_packages
        self._process: Process | None = None

    async def __aenter__(self) -> WorkerProcess:
        import_path = str(Path(__file__).parents[2])
        if self._with_site_packages:
            import_path = os.pathsep.join((import_path, *filter(None, sys.path)))
        command = (
            sys.executable,
            "-I",
            "-S",
            "-c",
            _BOOTSTRAP_CODE,
            import_path,
            self._module,
            str(_LIFETIME_SECONDS),
        )
        self._process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env=build_child_environment({}),
            cwd="/",
            start_new_session=True,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        if process.stdin is not None:
            process.stdin.close()
        # Shielded, so that a cancelled caller leaves no zombie process behind.
        await asyncio.shield(process.wait())

    async def send_request(self, message: bytes) -> bytes:
        """Return the worker's response.

        Raises WorkerFailed if it exited instead; the caller limits the time.
        """
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise RuntimeError("the worker process is not running")
        try:
            # uvloop raises RuntimeError for a write to a closed pipe.
            if process.stdin.is_closing():
                raise BrokenPipeError
            process.stdin.write(b"%d\n" % len(message))
            process.stdin.write(message)
            await process.stdin.drain()
            length = int(await process.stdout.readuntil(b"\n"))
            if length > _MAX_RESPONSE_BYTES:
                raise ValueError("the response is too long")
            return await process.stdout.readexactly(length)
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            raise WorkerFailed(
                "the worker process failed, probably because it reached a resource limit"
            ) from None
