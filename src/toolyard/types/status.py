"""What is known about one connection: the record that every door reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from toolyard.types.tool import JsonObject

__all__ = ["State", "Status"]


class State(StrEnum):
    """The state of a connection."""

    DISABLED = "disabled"
    """Switched off by its definition; nothing is started."""
    IDLE = "idle"
    """Not connected, and the next call connects."""
    CONNECTING = "connecting"
    """Being started or asked for its era; calls wait for the outcome together."""
    READY = "ready"
    """Answers calls."""
    NEEDS_AUTH = "needs_auth"
    """The server wants credentials that are missing or no longer accepted."""
    FAILED = "failed"
    """The last attempt failed, or the server exited; ``cause`` says why."""
    CLOSED = "closed"
    """Closed for good; nothing more will be called."""


@dataclass(slots=True)
class Status:
    """One record per server and principal in a process, the only truth about it.

    ``cause`` is the root cause in one sentence, ``reason`` the same as a stable word for programs: the
    ``kind`` of the error, or ``disabled``. ``next_retry`` and ``since`` are seconds since the epoch.
    """

    server: str
    principal: str
    state: State
    since: float
    cause: str | None = None
    reason: str | None = None
    hint: str | None = None
    protocol_version: str | None = None
    server_info: JsonObject = field(default_factory=dict[str, Any])
    capabilities: JsonObject = field(default_factory=dict[str, Any])
    instructions: str | None = None
    tool_count: int | None = None
    token_cost: int | None = None
    pid: int | None = None
    stderr: tuple[str, ...] = ()
    noise: int = 0
    """Lines on standard output that were no messages."""
    connects: int = 0
    restarts: int = 0
    next_retry: float | None = None
    last_call: float | None = None
    in_flight: int = 0
