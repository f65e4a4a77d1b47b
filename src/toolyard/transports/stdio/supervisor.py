"""Supervises the child processes of this process, so that none of them outlives it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping

from toolyard.errors import Unreachable
from toolyard.transports.stdio import watchdog

__all__ = [
    "INHERITED_VARIABLES",
    "SIGTERM_GRACE_SECONDS",
    "ProcessSupervisor",
    "build_child_environment",
]

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
"""Environment variables that a child inherits. Others are not passed on; a server's ``env`` is added."""
SIGTERM_GRACE_SECONDS = 5.0
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy")
_OWN_LIMIT_LOCK = threading.Lock()


def build_child_environment(
    extra: Mapping[str, str], inherited: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment of a child: the inherited variables, overridden by ``extra``. User and password
    are removed from proxy URLs."""
    source = os.environ if inherited is None else inherited
    base = {name: source[name] for name in INHERITED_VARIABLES if name in source}
    for name, value in base.items():
        if name.lower() in _PROXY_VARIABLES:
            scheme, separator, rest = value.rpartition("://")
            base[name] = scheme + separator + rest.rpartition("@")[2]
    return {**base, **extra}


class ProcessSupervisor:
    """Marks child processes, reports their process groups to the watchdog, and kills escaped descendants.

    Signalling the child alone is not enough: ``npx`` and ``sh -c`` start grandchildren. Each child therefore
    leads its own process group, and carries a marker in its environment and as a resource limit, which also
    finds descendants that left the group. The watchdog starts with the first child. ``close`` stops it; if
    this process ends in any other way, the watchdog kills the registered groups and all marked processes.
    """

    def __init__(
        self, max_children: int | None = None, sigterm_grace_seconds: float = SIGTERM_GRACE_SECONDS
    ) -> None:
        """``max_children`` is the maximum number of concurrent children; None means no limit."""
        self.sigterm_grace_seconds = sigterm_grace_seconds
        """Seconds for which a process group may exit after SIGTERM, before SIGKILL."""
        self._max_children = max_children
        self._owner_pid = os.getpid()
        # A later watchdog decides by this text whether the owner is dead. The process id alone is not enough:
        # ids are reused, and those of another pid namespace mean something else.
        owner = f"{self._owner_pid}:{watchdog.process_start_time(self._owner_pid)}:{watchdog.pid_namespace()}"
        self._marker = f"{owner}:{secrets.token_hex(5)}"
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._process_groups: set[int] = set()
        self._spawn_count = 0
        self._child_descriptor_limit = _read_descriptor_limit()
        """Limit on open files that children get; this process may raise its own limit later."""

    @property
    def is_owner_process(self) -> bool:
        """True if this process started the children. After a fork the child process has a copy of these
        records, but must not kill the children of its parent."""
        return os.getpid() == self._owner_pid

    @property
    def is_full(self) -> bool:
        """True if the maximum number of children is running."""
        return self._max_children is not None and len(self._process_groups) >= self._max_children

    def make_marker(self) -> tuple[str, str]:
        """Return the name and a new value of the marker variable, which each child must carry."""
        self._spawn_count += 1
        return watchdog.MARKER_VARIABLE, f"{self._marker}:{self._spawn_count}"

    def ensure_can_start(self) -> None:
        """Make sure that the watchdog is running. Call before each start of a child: it may have been killed.

        Raise Unreachable if the maximum number of children is running, or if the watchdog cannot be started.
        """
        if self.is_full:
            raise Unreachable(
                f"{self._max_children} stdio servers are running already, which is the maximum",
                hint="raise the setting max_stdio_servers, or set 'stopWhenIdle' for servers that are idle",
            )
        if self._watchdog is not None and self._watchdog.poll() is None:
            return
        self._stop_watchdog()
        try:
            self._watchdog = subprocess.Popen(
                # Isolated and without site packages: neither the environment nor the current folder can
                # change what it imports, and it starts faster.
                [sys.executable, "-I", "-S", watchdog.__file__, str(os.getpid()), self._marker],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Otherwise Ctrl+C in a terminal, or a signal to our process group, would reach the watchdog
                # as well.
                start_new_session=True,
                env=build_child_environment({}),
            )
        except OSError as error:
            cause = f"the watchdog process, which every server needs, could not be started: {error}"
            raise Unreachable(cause, hint="check the limits of this process (`ulimit -a`)") from None
        # A watchdog that was killed knew these groups; its successor must learn of them.
        for group in self._process_groups:
            self._notify_watchdog(f"+{group}")

    def register_group(self, group: int, marker: str) -> None:
        """Register the process group of a new child and apply its limits."""
        self._process_groups.add(group)
        _set_marker_limit(group, marker)
        _set_descriptor_limit(group, self._child_descriptor_limit)
        self._notify_watchdog(f"+{group}")

    def unregister_group(self, group: int) -> None:
        """Remove a process group that has ended."""
        self._process_groups.discard(group)
        self._notify_watchdog(f"-{group}")

    @contextlib.contextmanager
    def mark_new_processes(self, marker: str) -> Generator[None]:
        """Mark each process that is started in this context from its first instruction on.

        ``register_group`` can mark a child only when it runs already, and it may have started a daemon by
        then. A soft limit of our own, which has no effect on us, is inherited. Processes that other threads
        start meanwhile inherit it too; ``watchdog`` spares them as members of our session.
        """
        if sys.platform != "linux":
            yield
            return
        import resource

        limit, _ = watchdog.marker_limit_range(marker)
        # Two threads must not restore each other's limit.
        with _OWN_LIMIT_LOCK:
            before = resource.getrlimit(resource.RLIMIT_RTTIME)
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_RTTIME, (limit, before[1]))
            try:
                yield
            finally:
                resource.setrlimit(resource.RLIMIT_RTTIME, before)

    async def kill_escaped(self, marker: str) -> None:
        """Kill processes that left their group but carry the marker of this child."""
        count = await asyncio.to_thread(watchdog.kill_marked_processes, marker)
        if count:
            log.warning("killed %d processes that had left their server's process group", count)

    async def close(self) -> None:
        """Stop the watchdog. The children must have ended before."""
        if self._watchdog is not None and self.is_owner_process:
            self._notify_watchdog("bye")
            await asyncio.to_thread(self._stop_watchdog)

    def _notify_watchdog(self, line: str) -> None:
        process = self._watchdog
        if process is not None and process.stdin is not None:
            # A dead watchdog is not an error of this call: ``ensure_can_start`` replaces it before the next
            # child.
            with contextlib.suppress(OSError, ValueError):
                process.stdin.write(line.encode() + b"\n")
                process.stdin.flush()

    def _stop_watchdog(self) -> None:
        process, self._watchdog = self._watchdog, None
        if process is None:
            return
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        try:
            process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _set_marker_limit(pid: int, marker: str) -> None:
    """Mark a process and its future descendants with a resource limit, where possible (see ``watchdog``).

    The child cannot remove this mark, unlike that of ``mark_new_processes``.
    """
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

    The child runs with our current limit for a moment. Setting it earlier would need Python code between fork
    and exec, which is not safe in a process with threads.
    """
    if sys.platform == "linux" and limits is not None:
        import resource

        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


def signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal to a process group; a group that has ended is ignored.

    Its leader must not have been reaped: otherwise the id may belong to another group by now.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
