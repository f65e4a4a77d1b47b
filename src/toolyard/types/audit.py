"""Entries of the audit log, and the interface to write them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from toolyard.types.tool import JsonObject

__all__ = ["AuditEntry", "AuditLog"]


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One event. ``action`` is a stable identifier such as ``sign_in``, ``server.add``, ``tool.call``."""

    at: float
    action: str
    actor: str
    """Id of the user; empty for an unauthenticated request."""
    actor_name: str = ""
    target: str = ""
    """Canonical id of a tool, id of a server or instance, or name of a user."""
    outcome: str = "ok"
    address: str = ""
    """Network address of the caller; empty if the event did not come over the network."""
    details: JsonObject = field(default_factory=dict[str, Any])
    """Additional facts. Must not contain secrets, arguments or results."""
    id: int = 0


class AuditLog(Protocol):
    """Destination of audit entries. ``record`` returns quickly and never raises."""

    def record(self, entry: AuditEntry) -> None:
        """Queue an entry to be written. All queued entries are stored when the log has been closed."""
        ...
