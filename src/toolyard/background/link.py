"""Connections to the background process of a data directory, which is started where none runs."""

import _socket
import os
import sys
import time

from toolyard.background import attach_protocol
from toolyard.background.runtime_dir import (
    LOG_FILE_NAME,
    RuntimePaths,
    find_peer_uid,
    is_running,
    launch_background,
    lock_file,
)
from toolyard.types.version import __version__

__all__ = ["STANDALONE_VARIABLE", "BackgroundLink", "NotAttached", "read_line"]

STANDALONE_VARIABLE = "TOOLYARD_STANDALONE"
"""Environment variable to set to 1 where no background process shall be used."""
_START_TIMEOUT_SECONDS = 5.0
"""Time for a background process to answer the first connection."""
_HELLO_TIMEOUT_SECONDS = 60.0
"""Time for it to load the configuration, and its own program after a start."""
_COMMAND_TIMEOUT_SECONDS = 10.0
"""The same for a command, which does without it otherwise."""
_RETRY_SECONDS = 0.01
_MAX_ATTACH_ATTEMPTS = 3
"""Number of processes in a row that may end just as a client attaches to them."""


class NotAttached(Exception):
    """Raised when there is no process to attach to. The message is the reason, for people."""

    def __init__(self, reason: str, *, is_absent: bool = False) -> None:
        super().__init__(reason)
        self.is_absent = is_absent
        """Whether no process runs, as opposed to one that cannot be used."""


class BackgroundLink:
    """Connects to the background process of a data directory, and starts it where none runs."""

    def __init__(self, data_dir: str, options: dict[str, str]) -> None:
        """Raises RuntimeDirError or OSError."""
        self._data_dir = data_dir
        self._paths = RuntimePaths(data_dir, os.environ.get("XDG_RUNTIME_DIR", ""))
        arguments = {name: value for name, value in options.items() if name != "data-dir"}
        self._hello = attach_protocol.AttachRequest(
            __version__,
            attach_protocol.environment_id(),
            os.getcwd(),
            arguments,
            dict(os.environ),
            os.getpid(),
        )

    def attach(self, replay: int = 0) -> tuple[_socket.socket, int | None]:
        """Return a connection on which the client is served, and the descriptor of its line count, if there
        is one. Raises NotAttached or OSError."""
        self._hello.replay = replay
        for _ in range(_MAX_ATTACH_ATTEMPTS):
            connection = self.connect()
            is_accepted, line_count = self._send_hello(connection, b"attach", _HELLO_TIMEOUT_SECONDS)
            if is_accepted:
                connection.setblocking(False)
                return connection, line_count
            # It was about to end. The next one answers, or is started.
        raise NotAttached(f"the background process ended; see {self._data_dir}/{LOG_FILE_NAME}")

    def attach_command(self) -> _socket.socket:
        """Return a connection on which one operation of a command is carried out, by a process of the same
        version. Raises NotAttached or OSError."""
        connection = self.connect(start=False, same_version=True)
        if not self._send_hello(connection, b"operate", _COMMAND_TIMEOUT_SECONDS)[0]:
            raise NotAttached("the background process is shutting down", is_absent=True)
        connection.setblocking(False)
        return connection

    def _send_hello(
        self, connection: _socket.socket, command: bytes, timeout: float
    ) -> tuple[bool, int | None]:
        """Send the hello. Return whether it was accepted, with the descriptor that came with the answer.

        False: the process is about to end, or has ended.
        """
        body = self._hello.to_bytes()
        connection.settimeout(timeout)
        try:
            connection.sendall(b"%s %d\n" % (command, len(body)) + body)
            # The descriptor comes with the first byte of the answer. Reading more here could take bytes of
            # the frames that follow it.
            first, line_count = _receive_with_descriptor(connection)
            answer = first + read_line(connection) if first else b""
        except ConnectionError:
            # It ended after its greeting. The caller tries the next process.
            answer, line_count = b"", None
        except OSError as error:
            raise NotAttached(f"the background process is not responding: {error}") from None
        if answer == b"ok":
            return True, line_count
        connection.close()
        if answer not in (b"", b"gone"):
            raise NotAttached(answer.decode("utf-8", "replace").partition(" ")[2])
        return False, None

    def connect(self, *, start: bool = True, same_version: bool = False) -> _socket.socket:
        """Return a connection to a process whose greeting was accepted. Raises NotAttached or OSError."""
        deadline = time.monotonic() + _START_TIMEOUT_SECONDS
        started: int | None = None
        lock: int | None = None
        try:
            while True:
                connection = self._try_connect(deadline, same_version)
                if connection is not None:
                    return connection
                if not start:
                    raise NotAttached("no background process is running", is_absent=True)
                if lock is None:
                    # Only the holder of this lock starts a process, so that clients that begin at the same
                    # time share one.
                    lock = lock_file(self._paths.start_lock)
                    if lock is not None:
                        continue  # It may have been started before the lock was ours.
                elif started is None:
                    started = launch_background(self._data_dir, self._paths.folder)
                elif not is_running(started):
                    raise NotAttached("the background process exited immediately; see `toolyard status`")
                if time.monotonic() > deadline:
                    raise NotAttached(
                        f"the background process did not respond within {_START_TIMEOUT_SECONDS:g} s"
                    )
                time.sleep(_RETRY_SECONDS)
        finally:
            if lock is not None:
                os.close(lock)

    def _try_connect(self, deadline: float, same_version: bool) -> _socket.socket | None:
        """Return None if no process listens. Raises NotAttached if one does that cannot be used."""
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            connection.settimeout(max(0.1, deadline - time.monotonic()))
            try:
                connection.connect(self._paths.socket)
            except (FileNotFoundError, ConnectionRefusedError):
                connection.close()
                return None
            # Before anything is sent: the folder is ours, but root may have put a socket there.
            if find_peer_uid(connection) != os.getuid():
                raise NotAttached(f"another user listens on {self._paths.socket}")
            try:
                line = read_line(connection)
            except ConnectionResetError:
                line = b""
            except TimeoutError:
                raise NotAttached("the background process is not responding") from None
            if not line:
                connection.close()
                return None
            self._check_greeting(connection, attach_protocol.Greeting.from_line(line), same_version)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_greeting(
        self, connection: _socket.socket, greeting: attach_protocol.Greeting | None, same_version: bool
    ) -> None:
        if greeting is None or greeting.protocol != attach_protocol.PROTOCOL:
            # It ends once it is idle, so that the next client starts a process of its own version.
            connection.sendall(b"replace\n")
            version = "unknown" if greeting is None else greeting.version
            raise NotAttached(f"the background process runs another version ({version})")
        namespaces = attach_protocol.list_namespaces()
        if greeting.namespaces != namespaces:
            raise NotAttached("the background process runs in another container or sandbox")
        own = (self._hello.version, self._hello.environment_id)
        if same_version and (greeting.version, greeting.environment) != own:
            raise NotAttached(f"the background process runs another version ({greeting.version})")


def read_line(connection: _socket.socket) -> bytes:
    """Return one line without its end, or b"" if the connection ends. Reads no further than the line."""
    line = b""
    while not line.endswith(b"\n"):
        byte = connection.recv(1)
        if not byte:
            return b""
        line += byte
    return line[:-1]


def _receive_with_descriptor(connection: _socket.socket) -> tuple[bytes, int | None]:
    """Return the next byte, or b"" at the end, and the descriptor that was passed with it."""
    data, control, _, _ = connection.recvmsg(1, _socket.CMSG_SPACE(4))
    for level, kind, descriptor in control:
        if (level, kind, len(descriptor)) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, 4):
            return data, int.from_bytes(descriptor, sys.byteorder)
    return data, None
