"""The socket of the background process, and the lock that makes it the only one of its data directory."""

import _socket
import _thread
import contextlib
import os
import select
import signal
import time
from collections.abc import Callable

from toolyard.background.attach_protocol import Greeting
from toolyard.background.runtime_dir import RuntimePaths, find_peer_uid, lock_file

__all__ = ["ClientListener", "open_listener"]

_LOCK_TIMEOUT_SECONDS = 3.0
_BACKLOG = 128


def open_listener(
    data_dir: str, wait_seconds: float = _LOCK_TIMEOUT_SECONDS, *, wake_owner: bool = True
) -> "ClientListener | None":
    """Own the data directory, or return None if another process does. Raises RuntimeDirError or OSError.

    SIGUSR1 must have a handler: processes send it to the owner if its socket is missing.
    """
    paths = RuntimePaths(data_dir, os.environ.get("XDG_RUNTIME_DIR", ""))
    deadline = time.monotonic() + wait_seconds
    is_first = wake_owner
    while (lock := lock_file(paths.owner_lock)) is None:
        if is_first:
            # Its socket may have been deleted, or this process would not have been started.
            _wake_owner(paths)
            is_first = False
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.02)
    os.ftruncate(lock, 0)
    with contextlib.suppress(OSError):  # The file system is full. The lock holds without it.
        os.pwrite(lock, str(os.getpid()).encode(), 0)
    return ClientListener(paths, lock)


def _wake_owner(paths: RuntimePaths) -> None:
    with contextlib.suppress(OSError, ValueError), open(paths.owner_lock, "rb") as file:
        os.kill(int(file.read(20)), signal.SIGUSR1)


class ClientListener:
    """Accepts and greets connections of this user in a thread, also while the program is still loading."""

    def __init__(self, paths: RuntimePaths, lock: int) -> None:
        self.paths = paths
        self._lock = lock
        self._greeting = Greeting.of_this_process().to_line()
        self._socket = self._bind()
        self._inode = os.stat(paths.socket).st_ino
        self._wake_reading, self._wake_writing = os.pipe()
        self._guard = _thread.allocate_lock()
        self._handler: Callable[[_socket.socket], None] | None = None
        self._waiting: list[_socket.socket] = []
        self.is_open = True
        _thread.start_new_thread(self._accept_connections, ())

    def _bind(self) -> _socket.socket:
        # The holder of the lock alone may remove a socket that a former owner left.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.paths.socket)
        listening = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        # The mode is set at creation: with a later chmod, others could connect in between.
        before = os.umask(0o077)
        try:
            listening.bind(self.paths.socket)
        finally:
            os.umask(before)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
        return listening

    def deliver_to(self, handler: Callable[[_socket.socket], None]) -> None:
        """Call ``handler`` with each greeted connection, in the thread that accepts them."""
        with self._guard:
            self._handler = handler
            waiting, self._waiting = self._waiting, []
        for connection in waiting:
            handler(connection)

    def restore(self) -> None:
        """Listen again if the socket was deleted or replaced."""
        if not self.is_open:
            return
        with contextlib.suppress(OSError):
            if os.stat(self.paths.socket).st_ino == self._inode:
                return
        before, self._socket = self._socket, self._bind()
        self._inode = os.stat(self.paths.socket).st_ino
        os.write(self._wake_writing, b"x")
        before.close()

    def close(self) -> None:
        """Stop to listen and give up the data directory. Greeted connections stay."""
        if not self.is_open:
            return
        self.is_open = False
        # A poll in another thread does not notice that its descriptor is closed; the pipe wakes it.
        os.write(self._wake_writing, b"x")
        with contextlib.suppress(OSError):
            if os.stat(self.paths.socket).st_ino == self._inode:
                os.unlink(self.paths.socket)
        self._socket.close()
        # Last: once the lock is free, the next owner removes the socket at this path and binds its own.
        os.close(self._lock)

    def _accept_connections(self) -> None:
        while self.is_open:
            poller = select.poll()
            listening = self._socket
            with contextlib.suppress(OSError, ValueError):
                poller.register(listening.fileno(), select.POLLIN)
            poller.register(self._wake_reading, select.POLLIN)
            for descriptor, _ in poller.poll():
                if descriptor == self._wake_reading:
                    os.read(descriptor, 64)
            with contextlib.suppress(OSError):
                self._accept(listening)
        os.close(self._wake_reading)

    def _accept(self, listening: _socket.socket) -> None:
        """Accept all waiting connections. Raises OSError at the latest when there are no more."""
        while True:
            descriptor, _ = listening._accept()  # pyright: ignore[reportPrivateUsage,reportAttributeAccessIssue,reportUnknownMemberType,reportUnknownVariableType]
            connection = _socket.socket(fileno=descriptor)  # pyright: ignore[reportUnknownArgumentType]
            try:
                if find_peer_uid(connection) == os.getuid():
                    connection.send(self._greeting)
                    with self._guard:
                        # Under the lock: otherwise a connection could join the list after ``deliver_to`` took
                        # it, and would never be delivered.
                        handler = self._handler
                        if handler is None:
                            self._waiting.append(connection)
                    if handler is not None:
                        handler(connection)
                    continue
            except OSError:
                pass
            connection.close()
