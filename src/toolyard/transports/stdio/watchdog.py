"""Watchdog process: kills the children of a Toolyard process that ended without stopping them.

Run by path, with the standard library alone: ``python -I -S watchdog.py OWNER_PID MARKER``. Its stdin is a
pipe from the owner with one command per line: ``+PGID`` (a process group was started), ``-PGID`` (it has
ended) and ``bye`` (clean shutdown). If the pipe ends without ``bye``, or the owner process ends, the watchdog
kills the registered groups and every process that carries the owner's marker, in its environment or as a
resource limit. At start it kills the orphans of dead owners; processes of live owners are never touched.

The resource limit finds daemons that dropped their environment. It is the hard limit of realtime CPU time
(RLIMIT_RTTIME), set so high that it limits nothing. Every descendant inherits it, and a process without
privileges cannot raise it again. A process that lowers it on purpose escapes this search. The first processes
of a server, started before it got the hard limit, have the soft limit, which they inherit from the owner.
"""

# Import only modules that an interpreter has loaded anyway, or nearly: this program starts together with the
# first server and must not compete with it for CPU time.
import os
import select
import signal
import sys

MARKER_VARIABLE = "TOOLYARD_CHILD"
_MARKER_LIMIT_FLAG = 1 << 61
_CHILD_NUMBER_BITS = 21
_UNMARKED_LIMIT = 1 << 60


def marker_limit_range(marker: str) -> tuple[int, int]:
    """Return the first and last limit value of the processes with a marker.

    ``marker`` is that of an owner, ``PID:START:NAMESPACE:RANDOM``, or with ``:NUMBER`` that of one child.
    """
    parts = marker.split(":")
    first = _MARKER_LIMIT_FLAG | int(parts[3], 16) << _CHILD_NUMBER_BITS
    if len(parts) == 4:
        return first, first + (1 << _CHILD_NUMBER_BITS) - 1
    number = int(parts[4]) % (1 << _CHILD_NUMBER_BITS)
    return first + number, first + number


def _read_proc_stat(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the state on, or [] if the process does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The second field is the program's name in parentheses, which may itself contain spaces and
            # parentheses. The last one ends it.
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def process_start_time(pid: int) -> str:
    """Return the start time of a process in the system's own unit, or "" if it does not exist.

    Together with the process id it identifies a process; ids alone are reused.
    """
    fields = _read_proc_stat(pid)
    if len(fields) > 19 and fields[0] != b"Z":
        return fields[19].decode()
    if os.path.isdir("/proc/self"):
        return ""
    return "-".join(_run_ps("-o", "lstart=", "-p", str(pid)).replace(":", " ").split())


def has_ended(pid: int, start: str) -> bool:
    """Return whether the process that had this id and start time has ended."""
    if process_start_time(pid) == start:
        return False
    if not os.path.isdir("/proc/self") or os.path.isdir(f"/proc/{pid}"):
        return True
    # With the mount option ``hidepid`` (ProtectProc= of systemd), /proc does not show protected processes,
    # such as other Toolyards: one that exists counts as the owner.
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        pass
    return pid == 0  # No process has this id; a signal to it goes to our own group.


def pid_namespace() -> str:
    """Return the id of our pid namespace. Process ids of another namespace (a container) mean nothing
    here."""
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return "0"


def _run_ps(*arguments: str) -> str:
    import subprocess  # Imported late: needed only on systems without /proc.

    return subprocess.run(["ps", *arguments], capture_output=True, text=True, check=False).stdout


def group_members(group: int) -> list[int]:
    """Return the running processes of a group. Zombies do not count."""
    if not os.path.isdir("/proc/self"):
        lines = (line.split() for line in _run_ps("-ax", "-o", "pid=,pgid=,stat=").splitlines())
        return [int(pid) for pid, pgid, state in lines if pgid == str(group) and state[0] != "Z"]
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
    """Return the processes with a limit in this range, among those that we may signal."""
    if sys.platform != "linux":
        return set()
    import resource

    pids: set[int] = set()
    session = os.getsid(0)
    for pid in _list_pids():
        try:
            soft, hard = resource.prlimit(pid, resource.RLIMIT_RTTIME)
            # Servers have sessions of their own. The owner itself, and what its other threads start, have the
            # soft limit for a moment, too.
            if first <= hard <= last or (first <= soft <= last and os.getsid(pid) != session):
                pids.add(pid)
        except OSError:
            continue
    return pids


def find_marked_processes() -> dict[int, str]:
    """Return every process with a marker that we may inspect, with its marker."""
    markers: dict[int, str] = {}
    if not os.path.isdir("/proc/self"):
        for line in _run_ps("-axwwE", "-o", "pid=,command=").splitlines():
            head, separator, tail = line.partition(f" {MARKER_VARIABLE}=")
            if separator:
                markers[int(head.split()[0])] = tail.split()[0]
        return markers
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
                    markers[pid] = variable[len(needle) :].decode("utf-8", "replace")
    return markers


def kill_marked_processes(marker: str) -> int:
    """Kill all processes with this marker or one that extends it. Return how many were killed."""
    killed: set[int] = set()
    limits = marker_limit_range(marker)
    # Several passes, because a process may fork between the search and the signal.
    for _ in range(5):
        victims = {
            pid for pid, mark in find_marked_processes().items() if f"{mark}:".startswith(f"{marker}:")
        }
        # Twice: a process that forks and exits during the first search is missed, and so is its child.
        victims |= _find_limited_processes(*limits) or _find_limited_processes(*limits)
        if not victims:
            break
        killed.update(pid for pid in victims if _send_sigkill(pid))
    return len(killed)


def kill_orphans() -> None:
    """Kill all processes with the marker of a dead owner."""
    namespace = pid_namespace()
    for pid, mark in find_marked_processes().items():
        parts = mark.split(":")
        # A marker is read from the environment of any process of this user, so it may be malformed, or come
        # from a container whose process ids mean nothing here.
        if len(parts) < 3 or parts[2] != namespace or not (parts[0].isascii() and parts[0].isdigit()):
            continue
        if len(parts[0]) < 20 and has_ended(int(parts[0]), parts[1]):
            _send_sigkill(pid)


def kill_group(group: int, leader_start: str) -> None:
    """Kill a process group, unless its id belongs to another process by now."""
    # The empty text means that the leader has ended. Its id is not given to another process while the group
    # has members, so the group is still the one that was started.
    if process_start_time(group) in ("", leader_start):
        _send_sigkill(-group)


def _send_sigkill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return True


def watch_owner(owner: int) -> dict[int, str] | None:
    """Read commands until the owner ends. Return the remaining groups with the start times of their leaders,
    or None after a clean shutdown."""
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
        # The end of the pipe alone is not reliable: a fork of the owner keeps it open. Therefore the owner's
        # process is watched as well, with a pidfd or, where there is none, by its parent id every second.
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
    # Signals for a whole session or terminal would end the watchdog together with its owner, before it has
    # cleaned up.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    _drop_inherited_limit()
    kill_orphans()
    groups = watch_owner(owner)
    if groups is None:
        return
    # Groups first: that is one system call each. The search for marked processes reads all of /proc, and
    # finds descendants that left their group.
    for group, leader_start in groups.items():
        kill_group(group, leader_start)
    kill_marked_processes(marker)


def _drop_inherited_limit() -> None:
    """Remove the marker of an outer Toolyard that started our owner, so that it cannot kill us too early."""
    import resource

    if sys.platform == "linux":
        hard = resource.getrlimit(resource.RLIMIT_RTTIME)[1]
        if hard == resource.RLIM_INFINITY or hard > _UNMARKED_LIMIT:
            resource.setrlimit(resource.RLIMIT_RTTIME, (_UNMARKED_LIMIT, _UNMARKED_LIMIT))


if __name__ == "__main__":
    main()
