"""Entries of the audit log, and the usage statistics that are summed from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from toolyard.types.server import NATIVE_SERVER_ID
from toolyard.types.tool import JsonObject

__all__ = ["AuditEntry", "ToolUsage", "UsageGroup", "UsageTotals", "server_of_tool"]


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


class UsageGroup(StrEnum):
    """Group of usage sums. Each is a column of the stored sums."""

    DAY = "day"
    PERSON = "person"
    SERVER = "server"
    TOOL = "tool"
    AGENT = "agent"
    MODEL = "model"


@dataclass(frozen=True, slots=True)
class ToolUsage:
    """Calls by canonical id of the tool since a time; ``since`` is None if no calls were counted."""

    calls: Mapping[str, int] = field(default_factory=dict[str, int])
    since: float | None = None


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """Sums of one group. ``key`` is a date like ``2026-01-31``, or an id; it is empty for calls without an
    agent."""

    key: str
    calls: int = 0
    """Tool calls that reached the decision to call a known tool, whatever their outcome."""
    failures: int = 0
    """Calls among them that ended with an error, other than a cancellation."""
    seconds: float = 0.0
    """Total duration of the calls."""
    slowest_seconds: float = 0.0
    requests: int = 0
    """Requests to models."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    """Cost of the model requests in US dollars, as far as it is known."""

    @property
    def tokens(self) -> int:
        """Tokens sent to and received from models."""
        return self.input_tokens + self.output_tokens

    @property
    def mean_seconds(self) -> float:
        """Mean duration of a call."""
        return self.seconds / self.calls if self.calls else 0.0


def server_of_tool(tool_id: str) -> str:
    """Return the server's part of a canonical tool id: ``github``, or ``@owner/slug`` for an instance."""
    first, _, rest = tool_id.partition("/")
    if not first.startswith("@") or first == NATIVE_SERVER_ID:
        return first
    return f"{first}/{rest.partition('/')[0]}"
