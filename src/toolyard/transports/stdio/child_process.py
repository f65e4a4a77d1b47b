"""A child process with three pipes, with the same behaviour on every event loop.

The subprocess support of the loops differs. asyncio may use a thread per child. uvloop gives the child
duplicates of its streams, so closing stdout is never noticed, and raises where asyncio is silent.
Reading, writing and reaping need little of a loop, so they are implemented here with ``add_reader`` and
``add_writer``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Protocol, cast

__all__ = ["ChildProcess", "ChildProcessListener"]

_READ_CHUNK_BYTES = 256 * 1024
_WRITE_HIGH_WATER_BYTES = 64 * 1024
"""Number of unwritten bytes from which on ``drain`` waits."""


class ChildProcessListener(Protocol):
    """Receives the events of a child, in the event loop."""

    def on_stdout(self, data: bytes) -> None: ...

    def on_stderr(self, data: bytes) -> None: ...

    def on_stdout_closed(self) -> None: ...

    def on_stderr_closed(self) -> None: ...

    def on_exit(self) -> None: ...


class ChildProcess:
    """A running child, leader of its own session and process group.

    The constructor raises OSError or ValueError if the process cannot be started. ``close`` must be called.
    """

    def __init__(
        self,
        listener: ChildProcessListener,
        command: Sequence[str],
        *,
        cwd: str | None,
        env: Mapping[str, str],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._process = subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._stdin = cast("IO[bytes]", self._process.stdin)
        self._stdout = cast("IO[bytes]", self._process.stdout)
        self._stderr = cast("IO[bytes]", self._process.stderr)
        self._write_buffer = bytearray()
        self._close_stdin_when_sent = False
        self.writable = asyncio.Event()
        """Set while the write buffer is below its limit."""
        self.writable.set()
        self._pidfd = -1
        self._is_closed = False
        self._returncode: int | None = None
        for pipe in (self._stdin, self._stdout, self._stderr):
            # Only this end of the pipe: the child's end has its own file description and stays blocking.
            os.set_blocking(pipe.fileno(), False)
        self._add_pipe_reader(self._stdout, listener.on_stdout, listener.on_stdout_closed)
        self._add_pipe_reader(self._stderr, listener.on_stderr, listener.on_stderr_closed)
        self._watch_exit()

    @property
    def returncode(self) -> int | None:
        return self._returncode

    # Stdin.

    def write(self, data: bytes) -> bool:
        """Write data now, or as soon as the child reads. Return False if stdin is closed."""
        if self._stdin.closed or self._close_stdin_when_sent:
            return False
        # Written directly where the pipe has room, which saves an iteration of the loop. Behind unwritten
        # data it must queue, to keep messages in order.
        if not self._write_buffer:
            try:
                sent = os.write(self._stdin.fileno(), data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._close_stdin()
                return False
            if sent == len(data):
                return True
            data = data[sent:]
            self._loop.add_writer(self._stdin.fileno(), self._flush_write_buffer)
        self._write_buffer += data
        if len(self._write_buffer) > _WRITE_HIGH_WATER_BYTES:
            self.writable.clear()
        return True

    def write_eof(self) -> None:
        """Close stdin after everything written has been sent."""
        self._close_stdin_when_sent = True
        if not self._write_buffer:
            self._close_stdin()

    def _flush_write_buffer(self) -> None:
        try:
            sent = os.write(self._stdin.fileno(), self._write_buffer)
        except BlockingIOError:
            return
        except OSError:
            self._close_stdin()
            return
        del self._write_buffer[:sent]
        if not self._write_buffer:
            self._loop.remove_writer(self._stdin.fileno())
            self.writable.set()
            if self._close_stdin_when_sent:
                self._close_stdin()

    def _close_stdin(self) -> None:
        if not self._stdin.closed:
            # Before the descriptor is closed, whose number may be given to another file at once.
            self._loop.remove_writer(self._stdin.fileno())
            self._stdin.close()
        self._write_buffer.clear()
        self.writable.set()

    # Stdout and stderr.

    def pause_reading(self) -> None:
        """Stop reading stdout, so that the child blocks once its pipe is full."""
        if not self._stdout.closed:
            self._loop.remove_reader(self._stdout.fileno())

    def resume_reading(self) -> None:
        """Continue to read stdout."""
        if not self._stdout.closed:
            self._add_pipe_reader(self._stdout, self._listener.on_stdout, self._listener.on_stdout_closed)

    def _add_pipe_reader(
        self, pipe: IO[bytes], on_data: Callable[[bytes], None], on_end: Callable[[], None]
    ) -> None:
        def read_chunk() -> None:
            try:
                data = os.read(fd, _READ_CHUNK_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if data:
                on_data(data)
            else:
                self._close_pipe(pipe)
                on_end()

        fd = pipe.fileno()
        self._loop.add_reader(fd, read_chunk)

    def _close_pipe(self, pipe: IO[bytes]) -> None:
        if not pipe.closed:
            self._loop.remove_reader(pipe.fileno())
            pipe.close()

    # Exit.

    def _watch_exit(self) -> None:
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except (OSError, AttributeError):
            threading.Thread(
                target=self._wait_in_thread, name=f"toolyard:child-{self.pid}", daemon=True
            ).start()
        else:
            self._loop.add_reader(self._pidfd, self._on_pidfd_ready)

    def _wait_in_thread(self) -> None:
        """Wait for the exit in a thread, on systems without pidfd."""
        code = self._peek_exit_code(0)
        with contextlib.suppress(RuntimeError):  # The loop may be closed by now.
            self._loop.call_soon_threadsafe(self._on_exit, code)

    def _on_pidfd_ready(self) -> None:
        if (code := self._peek_exit_code(os.WNOHANG)) is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._on_exit(code)

    def _peek_exit_code(self, flags: int) -> int | None:
        """Return the exit code without reaping the process.

        Until it is reaped, its id cannot be reused, so that signals to its process group cannot hit another
        group by accident.
        """
        try:
            status = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | flags)
        except (AttributeError, ChildProcessError):  # macOS before Python 3.13, or reaped elsewhere.
            return self._process.poll() if flags else self._process.wait()
        if status is None:
            return None
        return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status

    def _on_exit(self, code: int | None) -> None:
        self._returncode = code
        if self._is_closed:
            self._process.wait()
        self._listener.on_exit()

    def close(self) -> None:
        """Close the pipes and kill the process if it is running. It is reaped now or when it has exited."""
        self._close_stdin()
        self._close_pipe(self._stdout)
        self._close_pipe(self._stderr)
        self._is_closed = True
        if self._returncode is not None:
            self._process.wait()
        elif self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
