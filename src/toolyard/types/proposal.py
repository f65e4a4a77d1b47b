"""Servers that people propose, and what an admin decided about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

__all__ = ["Proposal", "ProposalState"]


class ProposalState(StrEnum):
    """Decision about a proposal."""

    OPEN = "open"
    """No admin has decided yet."""
    ACCEPTED = "accepted"
    """An admin added the server."""
    DECLINED = "declined"
    """An admin declined, with a reason for the person."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A server that a person wants. It never has secrets, and Toolyard does not contact its address."""

    id: str
    user_id: str
    user_name: str
    name: str
    reason: str
    created_at: float
    known_id: str | None = None
    """Id of a server of the catalogue; None if the person gave an address."""
    entry: Mapping[str, Any] | None = None
    """Entry with the address, as under ``mcpServers``; None for a server of the catalogue."""
    state: ProposalState = ProposalState.OPEN
    answer: str = ""
    decided_by: str = ""
    """Name of the admin who decided."""
    decided_at: float | None = None
    server_id: str | None = None
    """The registry server that was added for it. It may be gone."""
    seen_at: float | None = None
    """Time at which the person saw the decision."""
