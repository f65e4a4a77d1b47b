"""A small program that outlives Toolyard by a moment, to end what Toolyard started.

Run by path with the standard library alone: ``python -I -S watchdog.py OWNER_PID MARKER``. Its
standard input is a pipe from Toolyard, on which come lines: ``+PGID`` (a group was started), ``-PGID``
(it is gone) and ``bye`` (a clean end). When the pipe ends without ``bye``, or the owner is gone, it
kills the groups it was told of and every process that carries the marker in its environment. At its
start it sweeps what dead owners left behind; children of living ones are never touched.
"""

# Only modules that every interpreter has loaded anyway, or nearly: this program is started together with
# the first server and must not compete with it.
import os
import select
import signal
import sys

VARIABLE = "TOOLYARD_CHILD"


def start_time(pid: int) -> str:
    """When a process began, in the system's own unit; empty if there is no such process.

    A process id alone does not name a process: it is used again.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return "" if fields[0] == b"Z" else fields[19].decode()
    except (OSError, IndexError):
        pass
    if os.path.isdir("/proc/self"):
        return ""
    return "-".join(_ps("-o", "lstart=", "-p", str(pid)).replace(":", " ").split())


def namespace() -> str:
    """Which process ids we can name: a container's are not ours."""
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return "0"


def _ps(*arguments: str) -> str:
    import subprocess  # where there is no /proc

    return subprocess.run(["ps", *arguments], capture_output=True, text=True, check=False).stdout


def marked() -> dict[int, str]:
    """Every process that we may look at and that carries a marker, with that marker."""
    found: dict[int, str] = {}
    if not os.path.isdir("/proc/self"):
        for line in _ps("-axwwE", "-o", "pid=,command=").splitlines():
            head, found_it, tail = line.partition(f" {VARIABLE}=")
            if found_it:
                found[int(head.split()[0])] = tail.split()[0]
        return found
    needle = f"{VARIABLE}=".encode()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                environment = file.read()
        except OSError:
            continue
        if needle in environment:
            for variable in environment.split(b"\0"):
                if variable.startswith(needle):
                    found[int(name)] = variable[len(needle) :].decode("utf-8", "replace")
    return found


def kill_marked(marker: str) -> int:
    """Kill whatever carries this marker or one below it, again and again for what forks meanwhile."""
    killed: set[int] = set()
    for _ in range(5):
        victims = [pid for pid, mark in marked().items() if f"{mark}:".startswith(f"{marker}:")]
        if not victims:
            break
        killed.update(pid for pid in victims if _kill(pid))
    return len(killed)


def sweep() -> None:
    """Kill what carries the marker of an owner that is dead."""
    here = namespace()
    for pid, mark in marked().items():
        parts = mark.split(":")
        if len(parts) < 3 or parts[2] != here or not (parts[0].isascii() and parts[0].isdigit()):
            continue
        if len(parts[0]) < 20 and start_time(int(parts[0])) != parts[1]:
            _kill(pid)


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return True


def watch(owner: int) -> set[int] | None:
    """Follow the pipe until it ends. The groups that are left, or None after a clean end."""
    groups: set[int] = set()
    buffer = b""
    poll = select.poll()
    poll.register(0, select.POLLIN | select.POLLHUP)
    try:
        pidfd = os.pidfd_open(owner)
        poll.register(pidfd, select.POLLIN)
    except (OSError, AttributeError):
        pidfd = -1
    while True:
        # A pipe alone would not do: a fork of the owner keeps it open.
        ready = {fd for fd, _ in poll.poll(None if pidfd >= 0 else 1000)}
        if 0 in ready:
            chunk = os.read(0, 65536)
            if not chunk:
                return groups
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                if line == b"bye":
                    return None
                if line[:1] == b"+":
                    groups.add(int(line[1:]))
                elif line[:1] == b"-":
                    groups.discard(int(line[1:]))
            continue
        if pidfd in ready or (pidfd < 0 and os.getppid() != owner):
            return groups


def main() -> None:
    owner, marker = int(sys.argv[1]), sys.argv[2]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    sweep()
    groups = watch(owner)
    if groups is None:
        return
    for group in groups:
        _kill(-group)
    kill_marked(marker)


if __name__ == "__main__":
    main()
