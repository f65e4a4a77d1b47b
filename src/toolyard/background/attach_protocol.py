"""Format of the messages between a shim and the process that it attaches to.

The process greets each connection with one line. The client answers with one line, a command: ``attach``,
which a hello follows, or ``status``, ``stop`` and others with their answer in lines of text. These lines do
not change with the protocol number; everything that follows ``attach`` may.

After the hello, the client's bytes are copied as they are. Frames come back. A frame says which line of the
client it answers, counted from 1, so that the shim knows without a parser which requests are open.

With the answer to the hello, the process passes the descriptor of a file in memory, where the system has
those. In it, the process counts the lines of the client before it handles each. A process that is killed
closes its connections up to some 50 ms after it has stopped running, and until then a shim can write to them.
The count outlives the process, and says which lines were never handled.
"""

import os
import sys

from toolyard.types.version import __version__

__all__ = [
    "FRAME_HEADER_BYTES",
    "PROTOCOL",
    "AttachRequest",
    "FrameKind",
    "Greeting",
    "environment_id",
    "list_namespaces",
    "open_line_count",
    "read_frame_header",
    "read_line_count",
    "write_frame",
    "write_line_count",
]

PROTOCOL = 1
"""Number of this protocol. Both sides must have the same."""
MAX_HELLO_BYTES = 8 * 1024 * 1024
FRAME_HEADER_BYTES = 9
_NAMESPACES = ("pid", "mnt", "net", "user")


class FrameKind:
    """Kinds of frames."""

    MESSAGE = 0
    """The payload goes to the client. The line is answered, unless it is 0. The payload may be empty."""
    KEEP = 1
    """Send the line again after attaching to another process, until FORGET with the same payload, its key."""
    FORGET = 2
    MOVE = 3
    """The process will close the connection. Lines after this one were not read. The payload is ``now``, or
    ``later``: attach again when the client sends something."""


def write_frame(kind: int, line: int, payload: bytes = b"") -> bytes:
    """Return the bytes of a frame."""
    return bytes((kind,)) + line.to_bytes(4, "big") + len(payload).to_bytes(4, "big") + payload


def read_frame_header(data: bytes | bytearray | memoryview, start: int) -> tuple[int, int, int]:
    """Return kind, line and size of the payload of the frame at ``start``."""
    line = int.from_bytes(data[start + 1 : start + 5], "big")
    return data[start], line, int.from_bytes(data[start + 5 : start + 9], "big")


def open_line_count() -> int | None:
    """Return the descriptor of a new count of handled lines, or None where there are no files in memory."""
    if sys.platform != "linux":
        return None
    try:
        descriptor = os.memfd_create("handled_lines")
    except OSError:
        return None  # A sandbox forbids it, or there are no descriptors left.
    write_line_count(descriptor, 0)
    return descriptor


def write_line_count(descriptor: int, count: int) -> None:
    """Store the number of lines that are or were handled."""
    os.pwrite(descriptor, count.to_bytes(4, "big"), 0)


def read_line_count(descriptor: int) -> int:
    """Return the number that was stored last, also after the death of the process that stored it."""
    return int.from_bytes(os.pread(descriptor, 4, 0), "big")


def list_namespaces() -> str:
    """Return the namespaces of this process. In another one, paths and process ids mean something else."""
    found: list[str] = []
    for name in _NAMESPACES:
        try:
            found.append(os.readlink(f"/proc/self/ns/{name}"))
        except OSError:
            found.append("")
    return ",".join(found)


def environment_id() -> str:
    """Return an id of the Python environment that this program is installed in."""
    from _blake2 import blake2b

    return blake2b(os.fsencode(sys.prefix), digest_size=8).hexdigest()


class Greeting:
    """First line of the process: its protocol number, version, environment, namespaces and process id."""

    __slots__ = ("environment", "namespaces", "pid", "protocol", "version")

    def __init__(self, protocol: int, version: str, environment: str, namespaces: str, pid: int) -> None:
        self.protocol = protocol
        self.version = version
        self.environment = environment
        self.namespaces = namespaces
        self.pid = pid

    @classmethod
    def of_this_process(cls) -> "Greeting":
        return cls(PROTOCOL, __version__, environment_id(), list_namespaces(), os.getpid())

    def to_line(self) -> bytes:
        words = (self.protocol, self.version, self.environment, self.namespaces or "-", self.pid)
        return f"toolyard {' '.join(map(str, words))}\n".encode()

    @classmethod
    def from_line(cls, line: bytes) -> "Greeting | None":
        """Return the greeting, or None if the line is not one."""
        words = line.decode("ascii", "replace").split()
        if len(words) < 6 or words[0] != "toolyard" or not (words[1].isdecimal() and words[5].isdecimal()):
            return None
        return cls(int(words[1]), words[2], words[3], words[4], int(words[5]))


class AttachRequest:
    """Description of a shim's client: version, folder, options and environment."""

    __slots__ = ("arguments", "cwd", "environment", "environment_id", "pid", "replay", "version")

    def __init__(
        self,
        version: str,
        environment_id: str,
        cwd: str,
        arguments: dict[str, str],
        environment: dict[str, str],
        pid: int,
        replay: int = 0,
    ) -> None:
        self.version = version
        self.environment_id = environment_id
        self.cwd = cwd
        self.arguments = arguments
        """Options of ``toolyard stdio``, without dashes: agent, bundle, server, mode, config."""
        self.environment = environment
        self.pid = pid
        self.replay = replay
        """Number of lines that follow first and that were answered before. Their answers are not sent."""

    def to_bytes(self) -> bytes:
        facts = (self.version, self.environment_id, self.cwd, str(self.pid), str(self.replay))
        options = [f"{name}={value}" for name, value in self.arguments.items()]
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        return os.fsencode("\0".join((*facts, str(len(options)), *options, *variables)))

    @classmethod
    def from_bytes(cls, data: bytes) -> "AttachRequest":
        """Raises ValueError."""
        version, environment_id, cwd, pid, replay, count, *rest = os.fsdecode(data).split("\0")
        options, variables = rest[: int(count)], rest[int(count) :]
        return cls(
            version, environment_id, cwd, _to_dict(options), _to_dict(variables), int(pid), int(replay)
        )


def _to_dict(pairs: list[str]) -> dict[str, str]:
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}
