"""The folder of the socket and the locks: on this machine, and of this user alone.

They are not in the data directory, whose path may be too long for a socket and which may be on a network file
system. Their names are a hash of its real path.
"""

import _socket
import errno
import fcntl
import os
import stat
import sys

__all__ = ["RuntimeDirError", "RuntimePaths", "find_peer_uid", "lock_file"]

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
        raise RuntimeDirError(f"{folder} is not a folder")
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
