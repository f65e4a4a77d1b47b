"""The folder of the socket and the locks, on this machine and of this user alone, and the start of the
background process.

The socket and the locks are not in the data directory, whose path may be too long for a socket and which may
be on a network file system. Their names are a hash of its real path.
"""

import _socket
import errno
import fcntl
import os
import stat
import sys

__all__ = [
    "LOG_FILE_NAME",
    "RuntimeDirError",
    "RuntimePaths",
    "find_peer_uid",
    "is_running",
    "launch_background",
    "lock_file",
]


_MAX_SOCKET_PATH_BYTES = 107 if sys.platform == "linux" else 103
_LOCAL_PEERCRED = (0, 1)
"""Level and name of the option for the peer's user on macOS and BSD."""


class RuntimeDirError(Exception):
    """Raised when the folder cannot be used. The message is for people."""


class RuntimePaths:
    """Paths of the socket and the locks of one data directory."""

    __slots__ = ("folder", "owner_lock", "socket", "start_lock")

    def __init__(self, data_dir: str, runtime_dir: str, user_dirs: str = "/run/user") -> None:
        """Create the folder, in ``runtime_dir`` if that exists. Raises RuntimeDirError if it is not ours.

        Clients such as Codex do not pass XDG_RUNTIME_DIR to servers. Without it, the user's folder in
        ``user_dirs`` is used, which is its value on systems with systemd: all clients share one process.
        """
        from _blake2 import blake2b

        self.folder = f"/tmp/toolyard-{os.getuid()}"
        for parent in (runtime_dir, f"{user_dirs}/{os.getuid()}"):
            if os.path.isabs(parent) and os.path.isdir(parent):
                self.folder = os.path.join(parent, "toolyard")
                break
        name = blake2b(os.fsencode(os.path.realpath(data_dir)), digest_size=12).hexdigest()
        self.socket = os.path.join(self.folder, f"{name}.sock")
        self.owner_lock = os.path.join(self.folder, f"{name}.owner")
        self.start_lock = os.path.join(self.folder, f"{name}.start")
        if len(os.fsencode(self.socket)) > _MAX_SOCKET_PATH_BYTES:
            raise RuntimeDirError(f"the path {self.socket} is too long for a socket")
        _check_folder(self.folder)


def _check_folder(folder: str) -> None:
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise RuntimeDirError(f"{folder} cannot be created: {error.strerror}") from None
    # ``lstat``: a link could lead to a folder that somebody else replaces later.
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise RuntimeDirError(f"{folder} exists but is not a folder")
    if found.st_uid != os.getuid():
        raise RuntimeDirError(f"{folder} belongs to another user (id {found.st_uid})")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise RuntimeDirError(f"other users have access to {folder} (mode {stat.S_IMODE(found.st_mode):o})")


def lock_file(path: str) -> int | None:
    """Return a descriptor that holds the lock until it is closed, or None if another process holds it.

    Raises OSError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return None
        raise
    return descriptor


def find_peer_uid(connection: _socket.socket) -> int:
    """Return the user id of the process at the other end, as the kernel knows it. Raises OSError."""
    if sys.platform == "linux":
        credentials = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    else:
        credentials = connection.getsockopt(*_LOCAL_PEERCRED, 76)
    return int.from_bytes(credentials[4:8], sys.byteorder)


LOG_FILE_NAME = "background.log"
_MAX_LOG_BYTES = 1_000_000


def launch_background(data_dir: str, runtime_folder: str) -> int:
    """Start the background process of a data directory and return its process id. Raises OSError.

    It has a session of its own, and its parent ends at once: a client that ends all descendants of the
    programs that it started does not find it.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            grandchild = os.fork()
            if grandchild:
                os.write(writing, str(grandchild).encode())
                os._exit(0)
            _daemonize(data_dir, runtime_folder)
        finally:
            os._exit(127)
    os.close(writing)
    text = os.read(reading, 20)
    os.close(reading)
    os.waitpid(child, 0)
    if not text:
        raise OSError("the background process could not be started")
    return int(text)


def _daemonize(data_dir: str, runtime_folder: str) -> None:
    os.umask(0o077)
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDONLY)
    log = _open_log(data_dir, runtime_folder)
    for number, descriptor in enumerate((null, log, log)):
        os.dup2(descriptor, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    # -P: nothing is imported from the working directory.
    words = [sys.executable, "-P", "-m", "toolyard", "--background", data_dir]
    os.execv(sys.executable, words)


def _open_log(data_dir: str, runtime_folder: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    for folder in (data_dir, runtime_folder):
        path = os.path.join(folder, LOG_FILE_NAME)
        try:
            os.makedirs(folder, 0o700, exist_ok=True)
            log = os.open(path, flags, 0o600)
            if os.fstat(log).st_size > _MAX_LOG_BYTES:
                os.replace(path, f"{path}.1")
                os.close(log)
                log = os.open(path, flags, 0o600)
            return log
        except OSError:
            continue  # A read-only home, for example.
    return os.open(os.devnull, os.O_WRONLY)


def is_running(pid: int) -> bool:
    """Return whether a process of this user exists."""
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
