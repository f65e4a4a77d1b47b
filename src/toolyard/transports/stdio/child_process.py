"""A child process with three pipes, the same on every event loop.

The loops' own subprocesses differ: one keeps a thread for each child; another hands it second copies of
its streams, so that a child that closes its output is never seen to do so, and raises where the first is
silent. Reading, writing and reaping need little of a loop, so that little is done here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Protocol, cast

__all__ = ["Child", "Parent"]

_CHUNK = 256 * 1024
_FULL = 64 * 1024
"""Bytes that wait to be written, from which on the writer should wait too."""


class Parent(Protocol):
    """Who is told about a child, in the event loop."""

    def on_output(self, data: bytes) -> None: ...

    def on_errors(self, data: bytes) -> None: ...

    def on_output_end(self) -> None: ...

    def on_errors_end(self) -> None: ...

    def on_exit(self) -> None: ...


class Child:
    """A running child, leader of a session and process group of its own.

    Making one raises OSError or ValueError where it cannot be started. ``close`` must be called.
    """

    def __init__(
        self, parent: Parent, words: Sequence[str], *, cwd: str | None, env: Mapping[str, str]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._parent = parent
        self._process = subprocess.Popen(
            words,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._input = cast("IO[bytes]", self._process.stdin)
        self._output = cast("IO[bytes]", self._process.stdout)
        self._errors = cast("IO[bytes]", self._process.stderr)
        self._unsent = bytearray()
        self._ending = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._pidfd = -1
        self._closed = False
        self._returncode: int | None = None
        for pipe in (self._input, self._output, self._errors):
            os.set_blocking(pipe.fileno(), False)
        self._follow(self._output, parent.on_output, parent.on_output_end)
        self._follow(self._errors, parent.on_errors, parent.on_errors_end)
        self._watch()

    @property
    def returncode(self) -> int | None:
        return self._returncode

    # Its input.

    def write(self, data: bytes) -> bool:
        """Send it, now or as soon as the child reads. False: it no longer takes anything."""
        if self._input.closed or self._ending:
            return False
        if not self._unsent:
            try:
                sent = os.write(self._input.fileno(), data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._drop_input()
                return False
            if sent == len(data):
                return True
            data = data[sent:]
            self._loop.add_writer(self._input.fileno(), self._write_more)
        self._unsent += data
        if len(self._unsent) > _FULL:
            self._flowing.clear()
        return True

    async def flow(self) -> None:
        """Wait while too much waits to be written."""
        if not self._flowing.is_set():
            await self._flowing.wait()

    def end_input(self) -> None:
        """No more will be written; what was, is still sent."""
        self._ending = True
        if not self._unsent:
            self._drop_input()

    def _write_more(self) -> None:
        try:
            sent = os.write(self._input.fileno(), self._unsent)
        except BlockingIOError:
            return
        except OSError:
            self._drop_input()
            return
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._input.fileno())
            self._flowing.set()
            if self._ending:
                self._drop_input()

    def _drop_input(self) -> None:
        if not self._input.closed:
            self._loop.remove_writer(self._input.fileno())
            self._input.close()
        self._unsent.clear()
        self._flowing.set()

    # Its output.

    def pause_output(self) -> None:
        """Stop reading its standard output, so that the child waits once its pipe is full."""
        if not self._output.closed:
            self._loop.remove_reader(self._output.fileno())

    def resume_output(self) -> None:
        """Read its standard output again."""
        if not self._output.closed:
            self._follow(self._output, self._parent.on_output, self._parent.on_output_end)

    def _follow(self, pipe: IO[bytes], on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        def read() -> None:
            try:
                data = os.read(fd, _CHUNK)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if data:
                on_data(data)
            else:
                self._drop(pipe)
                on_end()

        fd = pipe.fileno()
        self._loop.add_reader(fd, read)

    def _drop(self, pipe: IO[bytes]) -> None:
        if not pipe.closed:
            self._loop.remove_reader(pipe.fileno())
            pipe.close()

    # Its end.

    def _watch(self) -> None:
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except (OSError, AttributeError):
            threading.Thread(target=self._wait, name=f"toolyard:child-{self.pid}", daemon=True).start()
        else:
            self._loop.add_reader(self._pidfd, self._on_pidfd)

    def _wait(self) -> None:
        """For systems where nothing else tells of an exit."""
        code = self._exit_code(0)
        with contextlib.suppress(RuntimeError):  # The loop may be closed by now.
            self._loop.call_soon_threadsafe(self._on_exit, code)

    def _on_pidfd(self) -> None:
        if (code := self._exit_code(os.WNOHANG)) is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._on_exit(code)

    def _exit_code(self, flags: int) -> int | None:
        """Return the exit code without reaping: until then the process id cannot be given to another process,
        and the group of this name is that of the child."""
        try:
            status = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | flags)
        except (AttributeError, ChildProcessError):  # macOS before Python 3.13; or somebody else reaped it
            return self._process.poll() if flags else self._process.wait()
        if status is None:
            return None
        return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status

    def _on_exit(self, code: int | None) -> None:
        self._returncode = code
        if self._closed:
            self._process.wait()
        self._parent.on_exit()

    def close(self) -> None:
        """Let go of its pipes, and kill it if it lives. It is reaped now, or as soon as it is dead."""
        self._drop_input()
        self._drop(self._output)
        self._drop(self._errors)
        self._closed = True
        if self._returncode is not None:
            self._process.wait()
        elif self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
