"""A small program that outlives Toolyard by a moment, to end what Toolyard started.

Run by path with the standard library alone: ``python -I -S watchdog.py OWNER_PID MARKER``. Its
standard input is a pipe from Toolyard, on which come lines: ``+PGID`` (a group was started), ``-PGID``
(it is gone) and ``bye`` (a clean end). When the pipe ends without ``bye``, or the owner is gone, it
kills the groups it was told of and every process that carries the marker, in its environment or as a
resource limit. At its start it sweeps what dead owners left behind; those of living ones are never touched.

The limit finds daemons that dropped their environment. It is the hard limit of realtime CPU time
(RLIMIT_RTTIME), so high that it limits nothing: every descendant inherits it, and no process without
privileges can raise it again. A process that lowers it on purpose is no longer found by it.
"""

# Only modules that every interpreter has loaded anyway, or nearly: this program is started together with
# the first server and must not compete with it.
import os
import select
import signal
import sys

MARKER_VARIABLE = "TOOLYARD_CHILD"
_MARKER_LIMIT_FLAG = 1 << 61
_CHILD_NUMBER_BITS = 21
_UNMARKED_LIMIT = 1 << 60


def marker_limit_range(marker: str) -> tuple[int, int]:
    """Return the limits, from the first to the last, of the processes that a marker stands for.

    ``marker`` is that of an owner, ``PID:START:NAMESPACE:RANDOM``, with ``:NUMBER`` that of one child.
    """
    parts = marker.split(":")
    first = _MARKER_LIMIT_FLAG | int(parts[3], 16) << _CHILD_NUMBER_BITS
    if len(parts) == 4:
        return first, first + (1 << _CHILD_NUMBER_BITS) - 1
    number = int(parts[4]) % (1 << _CHILD_NUMBER_BITS)
    return first + number, first + number


def _read_proc_stat(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the state on; none if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def process_start_time(pid: int) -> str:
    """When a process began, in the system's own unit; empty if there is no such process.

    A process id alone does not name a process: it is used again.
    """
    fields = _read_proc_stat(pid)
    if len(fields) > 19 and fields[0] != b"Z":
        return fields[19].decode()
    if os.path.isdir("/proc/self"):
        return ""
    return "-".join(_run_ps("-o", "lstart=", "-p", str(pid)).replace(":", " ").split())


def pid_namespace() -> str:
    """Which process ids we can name: a container's are not ours."""
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return "0"


def _run_ps(*arguments: str) -> str:
    import subprocess  # where there is no /proc

    return subprocess.run(["ps", *arguments], capture_output=True, text=True, check=False).stdout


def group_members(group: int) -> list[int]:
    """Return the processes of a group that run. One that ended and was not waited for does not count."""
    if not os.path.isdir("/proc/self"):
        lines = (line.split() for line in _run_ps("-ax", "-o", "pid=,pgid=,stat=").splitlines())
        return [int(pid) for pid, of, state in lines if of == str(group) and state[0] != "Z"]
    return [
        pid
        for pid in _list_pids()
        if _get_process_group(pid) == group and _read_proc_stat(pid)[:1] not in ([], [b"Z"])
    ]


def _get_process_group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def _list_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _find_limited_processes(first: int, last: int) -> set[int]:
    """Return the processes whose limit lies in a range, of those that we may signal."""
    if sys.platform != "linux":
        return set()
    import resource

    found: set[int] = set()
    for pid in _list_pids():
        try:
            if first <= resource.prlimit(pid, resource.RLIMIT_RTTIME)[1] <= last:
                found.add(pid)
        except OSError:
            continue
    return found


def find_marked_processes() -> dict[int, str]:
    """Every process that we may look at and that carries a marker, with that marker."""
    found: dict[int, str] = {}
    if not os.path.isdir("/proc/self"):
        for line in _run_ps("-axwwE", "-o", "pid=,command=").splitlines():
            head, found_it, tail = line.partition(f" {MARKER_VARIABLE}=")
            if found_it:
                found[int(head.split()[0])] = tail.split()[0]
        return found
    needle = f"{MARKER_VARIABLE}=".encode()
    for pid in _list_pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environment = file.read()
        except OSError:
            continue
        if needle in environment:
            for variable in environment.split(b"\0"):
                if variable.startswith(needle):
                    found[pid] = variable[len(needle) :].decode("utf-8", "replace")
    return found


def kill_marked_processes(marker: str) -> int:
    """Kill whatever carries this marker or one below it, again and again for what forks meanwhile."""
    killed: set[int] = set()
    for _ in range(5):
        victims = {
            pid for pid, mark in find_marked_processes().items() if f"{mark}:".startswith(f"{marker}:")
        }
        victims |= _find_limited_processes(*marker_limit_range(marker))
        if not victims:
            break
        killed.update(pid for pid in victims if _send_sigkill(pid))
    return len(killed)


def kill_orphans() -> None:
    """Kill what carries the marker of an owner that is dead."""
    here = pid_namespace()
    for pid, mark in find_marked_processes().items():
        parts = mark.split(":")
        if len(parts) < 3 or parts[2] != here or not (parts[0].isascii() and parts[0].isdigit()):
            continue
        if len(parts[0]) < 20 and process_start_time(int(parts[0])) != parts[1]:
            _send_sigkill(pid)


def kill_group(group: int, leader_start: str) -> None:
    """Kill a group, unless its number belongs to another process by now."""
    if process_start_time(group) in ("", leader_start):
        _send_sigkill(-group)


def _send_sigkill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return True


def watch_owner(owner: int) -> dict[int, str] | None:
    """Follow the pipe until it ends. The groups that are left, with the start times of their leaders, or None
    after a clean end."""
    groups: dict[int, str] = {}
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
                    groups[int(line[1:])] = process_start_time(int(line[1:]))
                elif line[:1] == b"-":
                    groups.pop(int(line[1:]), None)
            continue
        if pidfd in ready or (pidfd < 0 and os.getppid() != owner):
            return groups


def main() -> None:
    owner, marker = int(sys.argv[1]), sys.argv[2]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    _drop_inherited_limit()
    kill_orphans()
    groups = watch_owner(owner)
    if groups is None:
        return
    for group, leader_start in groups.items():
        kill_group(group, leader_start)
    kill_marked_processes(marker)


def _drop_inherited_limit() -> None:
    """Lose the mark of an outer Toolyard that started our owner: it must not end us before we are done."""
    import resource

    if sys.platform == "linux":
        hard = resource.getrlimit(resource.RLIMIT_RTTIME)[1]
        if hard == resource.RLIM_INFINITY or hard > _UNMARKED_LIMIT:
            resource.setrlimit(resource.RLIMIT_RTTIME, (_UNMARKED_LIMIT, _UNMARKED_LIMIT))


if __name__ == "__main__":
    main()
