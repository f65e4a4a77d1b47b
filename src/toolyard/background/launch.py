"""Start of the background process: detached from the client that needs it first."""

import os
import sys

__all__ = ["LOG_FILE_NAME", "is_running", "launch_background"]

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
