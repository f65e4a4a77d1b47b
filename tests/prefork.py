"""Start ``toolyard`` as processes that have imported it already.

A new interpreter takes up to two seconds of CPU to import the command line, the web app and the libraries
for models, and the tests start hundreds. Here one process for each process of pytest imports them once, and
forks for each command. A command is still a process with its own arguments, environment, folder, streams,
session, signals and exit code. Servers of tests are forked too. ``Popen`` starts a new interpreter for every
other program, and where environment variables configure the interpreter. Tests about imports and about the
interpreter use ``subprocess``.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Popen", "open_descriptors", "process_ids", "run", "take_terminal"]

_LENGTH = struct.Struct("!i")
_LIBRARIES = (
    "uvicorn",
    "sqlalchemy.dialects.sqlite",
    "pydantic_ai.models.openai",
    "pydantic_ai.providers.openai",
)
"""Modules besides our own that commands import when they need them."""

_HARMLESS = {"PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"}


# In the process of pytest.


def take_terminal() -> None:
    """Make standard input the terminal of this session: for ``preexec_fn``, with ``start_new_session``."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def run(words: Sequence[str], *, input: str | None = None, timeout: float, **options: Any) -> Any:
    """Run a command to its end, as ``subprocess.run`` does with ``capture_output`` and ``text``."""
    pipe = subprocess.PIPE
    stdin = subprocess.DEVNULL if input is None else pipe
    with Popen(list(words), stdin=stdin, stdout=pipe, stderr=pipe, encoding="utf-8", **options) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)


class Popen(subprocess.Popen[Any]):
    """``subprocess.Popen`` that forks for ``python -m toolyard …`` and ``python -I FILE.py …``."""

    _status: int | None = None

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, *others: Any) -> None:
        close_fds, pass_fds, folder, env, _, _, shell = others[:7]
        pipes, session = others[7:13], others[18]
        environment = dict(os.environ if env is None else env)
        if (
            not _can_fork(args)
            or preexec_fn not in (None, take_terminal)
            or shell
            or pass_fds
            or not close_fds
            or not _has_same_interpreter_environment(environment)
        ):
            super()._execute_child(args, executable, preexec_fn, *others)  # type: ignore[misc]
            return
        request = {
            "arguments": args[2:],
            "environment": environment,
            "folder": os.fspath(folder or os.getcwd()),
            "session": session,
            "terminal": preexec_fn is take_terminal,
        }
        stdin, _, _, stdout, _, stderr = pipes
        streams = [stream if stream != -1 else own for own, stream in enumerate((stdin, stdout, stderr))]
        try:
            self.pid, self._status = _fork_server().start(request, streams)
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._status is None:
            return super()._try_wait(wait_flags)  # type: ignore[misc]
        if wait_flags & os.WNOHANG and not select.select([self._status], [], [], 0)[0]:
            return 0, 0
        status = os.read(self._status, _LENGTH.size)
        os.close(self._status)
        return self.pid, _LENGTH.unpack(status)[0]

    def _internal_poll(self, **options: Any) -> int | None:
        if self._status is None:
            return super()._internal_poll(**options)  # type: ignore[misc]
        if self.returncode is None and self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                pid, status = self._try_wait(os.WNOHANG) if self.returncode is None else (0, 0)
                if pid:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


def _can_fork(words: object) -> bool:
    """Return whether this is ``python -m toolyard …`` or ``python -I FILE.py …``."""
    match words:
        case [sys.executable, "-m", "toolyard", *_]:
            return True
        case [sys.executable, "-I", str(file), *_]:
            return file.endswith(".py")
        case _:
            return False


def _has_same_interpreter_environment(environment: Mapping[str, str]) -> bool:
    """Return whether this environment configures the interpreter as that of the forking process."""
    locale = environment.get("LC_ALL") or environment.get("LC_CTYPE") or environment.get("LANG") or "C"
    others = {name for name in environment if name.startswith("PYTHON")} - _HARMLESS
    return not others and (locale in ("C", "POSIX") or locale.lower().endswith((".utf-8", ".utf8")))


class _ForkServer:
    """The process that forks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, child_socket = socket.socketpair()
        with child_socket:
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(
                [sys.executable, __file__, str(child_socket.fileno())],
                # Most commands have pipes: Python checks once whether a stream is seekable.
                stdin=pipe,
                stdout=pipe,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ["PATH"]},
                pass_fds=[child_socket.fileno()],
            )
        atexit.register(self._close)

    @property
    def descriptors(self) -> list[int]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        return [each.fileno() for each in (self._socket, self.process.stdin, self.process.stdout)]

    def start(self, request: Mapping[str, Any], streams: Sequence[int]) -> tuple[int, int]:
        """Return the process id, and the descriptor from which its exit status can be read."""
        status, child_pipe = os.pipe()
        try:
            body = json.dumps(request).encode()
            with self._lock:
                socket.send_fds(self._socket, [_LENGTH.pack(len(body))], [*streams, child_pipe])
                self._socket.sendall(body)
        finally:
            os.close(child_pipe)
        answer = os.read(status, _LENGTH.size)
        if not answer:
            os.close(status)
            assert self.process.stdout is not None
            raise AssertionError(f"no process was forked: {self.process.stdout.read().decode()}")
        return _LENGTH.unpack(answer)[0], status

    def _close(self) -> None:
        self._socket.close()
        self.process.communicate()


_running: list[_ForkServer] = []


def process_ids() -> set[int]:
    """Return the forking process, which runs until pytest ends."""
    return {each.process.pid for each in _running}


def open_descriptors() -> set[int]:
    """Return the descriptors open for it."""
    return {number for each in _running for number in each.descriptors}


def _fork_server() -> _ForkServer:
    if not _running:
        _running.append(_ForkServer())
    return _running[-1]


# In the process that forks.


def _import_everything() -> None:
    import importlib
    import pkgutil

    import toolyard

    for module in pkgutil.walk_packages(toolyard.__path__, "toolyard."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in _LIBRARIES:
        importlib.import_module(name)
    # A forked process has one thread: locks held by other threads would stay locked.
    assert len(os.listdir("/proc/self/task")) == 1, threading.enumerate()


def _serve_requests(control: socket.socket) -> dict[str, Any]:
    """Fork for each request. Return it in the forked process; the first process ends with pytest."""
    children_by_pid: dict[int, tuple[int, int]] = {}
    while True:
        ready = select.select([control, *children_by_pid], [], [])[0]
        for descriptor in ready:
            if isinstance(descriptor, int):
                pid, status = children_by_pid.pop(descriptor)
                os.close(descriptor)
                with contextlib.suppress(OSError):
                    os.write(status, _LENGTH.pack(os.waitpid(pid, 0)[1]))
                os.close(status)
        if control not in ready:
            continue
        head, descriptors, _, _ = socket.recv_fds(control, _LENGTH.size, 4)
        if not head:
            os._exit(0)
        body = bytearray()
        while len(body) < _LENGTH.unpack(head)[0]:
            body += control.recv(_LENGTH.unpack(head)[0] - len(body))
        pid = os.fork()
        if not pid:
            control.detach()
            for number, descriptor in enumerate(descriptors[:3]):
                os.dup2(descriptor, number)
            os.closerange(3, min(4096, os.sysconf("SC_OPEN_MAX")))
            return json.loads(body)
        os.write(descriptors[3], _LENGTH.pack(pid))
        for descriptor in descriptors[:3]:
            os.close(descriptor)
        children_by_pid[os.pidfd_open(pid)] = pid, descriptors[3]


def _apply_request(request: Mapping[str, Any]) -> None:
    if request["session"]:
        os.setsid()
    if request["terminal"]:
        take_terminal()
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["folder"])
    sys.path.insert(0, os.getcwd())
    sys.argv = request["arguments"]
    sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.enable()


if __name__ == "__main__":
    import runpy

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    del sys.path[0]
    gc.disable()
    _import_everything()
    gc.freeze()
    _apply_request(_serve_requests(socket.socket(fileno=int(sys.argv[1]))))
    code: object = None
    try:
        if sys.argv[0] == "toolyard":
            runpy.run_module("toolyard", run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        code = end.code
    # Exit as the interpreter does, but without tearing down modules, which takes longer than most commands.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        os._exit(120)
    os._exit(code or 0)
