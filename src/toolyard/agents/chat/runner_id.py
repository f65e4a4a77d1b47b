"""Who works on a turn: an id that tells whether its process is still there."""

from __future__ import annotations

import os
import secrets
import socket

from toolyard.transports.stdio.watchdog import pid_namespace, process_start_time

__all__ = ["create_runner_id", "is_runner_gone"]

_RUNNER_TIMEOUT_SECONDS = 30.0
"""Seconds without a beat after which a runner of another machine counts as gone."""


def create_runner_id() -> str:
    """An id of this process, and of whoever asks within it: ``host:pid:start:more``."""
    pid = os.getpid()
    return ":".join((_get_host_id(), str(pid), process_start_time(pid), secrets.token_hex(4)))


def is_runner_gone(runner: str, seconds_since_heartbeat: float) -> bool:
    """Whether a runner works no more: its process on this machine is dead, or it was not heard of for long.

    ``seconds`` is how long its last beat is ago.
    """
    host, _, rest = runner.partition(":")
    pid, _, rest = rest.partition(":")
    started = rest.partition(":")[0]
    if host == _get_host_id() and pid.isdigit() and process_start_time(int(pid)) != started:
        return True
    return seconds_since_heartbeat > _RUNNER_TIMEOUT_SECONDS


def _get_host_id() -> str:
    """This machine, as far as its processes can be told apart: a container has ids of its own."""
    return f"{socket.gethostname().replace(':', '-')}/{pid_namespace()}"
