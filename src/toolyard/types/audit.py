"""What happened, who did it: one line of the audit log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from toolyard.types.tool import JsonObject

__all__ = ["AuditEntry", "AuditLog"]


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One event. ``action`` is a stable word such as ``sign_in``, ``server.add``, ``tool.call``."""

    at: float
    action: str
    actor: str
    """The user's id; empty where nobody was signed in."""
    actor_name: str = ""
    target: str = ""
    """The canonical id of a tool, the id of a server or instance, a user's name."""
    outcome: str = "ok"
    address: str = ""
    """The network address of the caller, where there was one."""
    details: JsonObject = field(default_factory=dict[str, Any])
    """Never a secret, never arguments or results."""
    id: int = 0


class AuditLog(Protocol):
    """Takes entries; never makes the caller wait for long and never raises."""

    def record(self, entry: AuditEntry) -> None:
        """Write it down soon; all that was noted is on disk after ``close``."""
        ...
