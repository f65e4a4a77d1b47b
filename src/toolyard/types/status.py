"""State of one connection, as all interfaces read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from toolyard.types.tool import JsonObject

__all__ = ["ServerProcess", "State", "Status"]


class State(StrEnum):
    """State of a connection."""

    DISABLED = "disabled"
    """Disabled by its definition; nothing is started."""
    IDLE = "idle"
    """Not connected; the next call connects."""
    CONNECTING = "connecting"
    """Being started or probed; all calls wait for the same attempt."""
    READY = "ready"
    """Connected."""
    NEEDS_AUTH = "needs_auth"
    """Credentials are missing or no longer accepted."""
    FAILED = "failed"
    """The last attempt failed, or the server exited; ``cause`` is the reason."""
    CLOSED = "closed"
    """Closed permanently; no further calls are possible."""


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """One running process of a stdio server."""

    pid: int
    users: tuple[str, ...] = ()
    """Names of the clients that use it and have a session."""
    launch: str | None = None
    """How it was started, if there are processes with different launches. Without values of variables."""


@dataclass(slots=True)
class Status:
    """State of the connection of one principal to one server. A process has exactly one record of each.

    ``cause`` is the root cause in one sentence, ``reason`` the same as a stable identifier for programs: the
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
    processes: tuple[ServerProcess, ...] = ()
    """All processes of this server for this principal."""
    stderr: tuple[str, ...] = ()
    noise: int = 0
    """Number of lines on standard output that were not MCP messages."""
    connects: int = 0
    restarts: int = 0
    next_retry: float | None = None
    last_call: float | None = None
    in_flight: int = 0
