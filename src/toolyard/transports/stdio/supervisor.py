"""The children of this process: marked, watched over, and gone when we are gone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping

from toolyard.errors import Unreachable
from toolyard.transports.stdio import watchdog

__all__ = ["INHERITED_VARIABLES", "ProcessSupervisor", "build_child_environment"]

log = logging.getLogger("toolyard.children")

# fmt: off
INHERITED_VARIABLES = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ",
    "TERM", "TMPDIR", "TEMP", "TMP", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy",
    "https_proxy", "all_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "SYSTEMROOT", "COMSPEC", "PATHEXT", "APPDATA",
    "LOCALAPPDATA", "USERPROFILE", "PROGRAMFILES",
)
# fmt: on
"""What a child inherits. Nothing else leaks in; a server's own ``env`` is laid over it."""
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def build_child_environment(
    extra: Mapping[str, str], inherited: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment of a child: the small base, with ``extra`` over it. Proxies are passed on without user
    and password."""
    source = os.environ if inherited is None else inherited
    base = {name: source[name] for name in INHERITED_VARIABLES if name in source}
    for name, value in base.items():
        if name.lower() in _PROXIES:
            scheme, separator, rest = value.rpartition("://")
            base[name] = scheme + separator + rest.rpartition("@")[2]
    return {**base, **extra}


class ProcessSupervisor:
    """Marks children, tells the watchdog of their groups, and ends groups whole.

    The watchdog starts with the first child. A clean ``close`` sends it home; if this process dies in
    any other way, the watchdog kills every group it was told of and whatever carries our marker.
    """

    def __init__(self, max_children: int | None = None) -> None:
        """``most`` is how many children there may be at a time; None: any number."""
        self._max_children = max_children
        self._owner_pid = os.getpid()
        owner = f"{self._owner_pid}:{watchdog.process_start_time(self._owner_pid)}:{watchdog.pid_namespace()}"
        self._marker = f"{owner}:{secrets.token_hex(5)}"
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._process_groups: set[int] = set()
        self._spawn_count = 0
        self._child_descriptor_limit = _read_descriptor_limit()
        """What children get, though this process may raise its own limit after this was made."""

    @property
    def is_owner_process(self) -> bool:
        """Whether the children are those of this process. Those of a parent, which a fork has the records of,
        are not ours to end."""
        return os.getpid() == self._owner_pid

    @property
    def is_full(self) -> bool:
        """Whether there are as many children as may be."""
        return self._max_children is not None and len(self._process_groups) >= self._max_children

    def mark(self) -> tuple[str, str]:
        """The environment variable that every child must carry, fresh for each child."""
        self._spawn_count += 1
        return watchdog.MARKER_VARIABLE, f"{self._marker}:{self._spawn_count}"

    def prepare_start(self) -> None:
        """Have a watchdog. To be called before each child is started: it may have been killed.

        Raises Unreachable where there are as many children as may be, or there is no watchdog to be had.
        """
        if self.is_full:
            raise Unreachable(
                f"{self._max_children} stdio servers run already, which is the most that may",
                hint="raise the setting max_stdio_servers, or set 'stopWhenIdle' for servers that rest",
            )
        if self._watchdog is not None and self._watchdog.poll() is None:
            return
        self._stop_watchdog()
        try:
            self._watchdog = subprocess.Popen(
                [sys.executable, "-I", "-S", watchdog.__file__, str(os.getpid()), self._marker],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=build_child_environment({}),
            )
        except OSError as error:
            cause = f"the watchdog, without which no server is started, could not be started: {error}"
            raise Unreachable(cause, hint="look at the limits of this process (`ulimit -a`)") from None
        for group in self._process_groups:
            self._notify_watchdog(f"+{group}")

    def register_group(self, group: int, marker: str) -> None:
        """A child leads this new process group."""
        self._process_groups.add(group)
        _set_marker_limit(group, marker)
        _set_descriptor_limit(group, self._child_descriptor_limit)
        self._notify_watchdog(f"+{group}")

    def unregister_group(self, group: int) -> None:
        """That group is gone."""
        self._process_groups.discard(group)
        self._notify_watchdog(f"-{group}")

    async def kill_escaped(self, marker: str) -> None:
        """Kill what left its group but carries the marker of this child."""
        count = await asyncio.to_thread(watchdog.kill_marked_processes, marker)
        if count:
            log.warning("killed %d processes that had left their server's process group", count)

    async def close(self) -> None:
        """Send the watchdog home. The children must be gone."""
        if self._watchdog is not None and self.is_owner_process:
            self._notify_watchdog("bye")
            await asyncio.to_thread(self._stop_watchdog)

    def _notify_watchdog(self, line: str) -> None:
        dog = self._watchdog
        if dog is not None and dog.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                dog.stdin.write(line.encode() + b"\n")
                dog.stdin.flush()

    def _stop_watchdog(self) -> None:
        dog, self._watchdog = self._watchdog, None
        if dog is None:
            return
        if dog.stdin is not None:
            with contextlib.suppress(OSError):
                dog.stdin.close()
        try:
            dog.wait(timeout=2)
        except subprocess.TimeoutExpired:
            dog.kill()
            dog.wait()


def _set_marker_limit(pid: int, marker: str) -> None:
    """Mark a process and all that it will start by a limit, where the system allows it; see watchdog."""
    if sys.platform == "linux":
        import resource

        limit, _ = watchdog.marker_limit_range(marker)
        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_RTTIME, (limit, limit))


def _read_descriptor_limit() -> tuple[int, int] | None:
    if sys.platform != "linux":
        return None
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)


def _set_descriptor_limit(pid: int, limits: tuple[int, int] | None) -> None:
    """Give a child the limit on open files that this process had at first, where the system allows it.

    A child has ours for a moment. To set it before the child starts would take Python code between fork and
    exec, which is not safe in a process with threads.
    """
    if sys.platform == "linux" and limits is not None:
        import resource

        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


def signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal to a whole group; a group that is gone is fine.

    Its leader must not have been waited for: otherwise the number may be that of another group by now.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
