"""Approvals: pending questions about calls, and grants that allow calls within limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from toolyard.types.tool import JsonObject

__all__ = ["Approval", "Grant", "select_usable_grants"]


@dataclass(frozen=True, slots=True)
class Approval:
    """Request to approve one call. Only its owner can answer it, and only once."""

    id: str
    owner: str
    tool: str
    """The canonical id."""
    name: str
    """The exposed name."""
    definition_hash: str
    arguments: JsonObject
    reason: str
    """Explanation of the policy rule that requires the approval."""
    asked_at: float
    chat_id: str | None = None
    """None: requested by a client of the gateway or of the API."""
    call_id: str | None = None
    answered_at: float | None = None
    yes: bool | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """An approval, limited to one owner, one definition of a tool, matching arguments and a time span."""

    id: str
    owner: str
    tool: str
    name: str
    definition_hash: str
    """The grant is void for any other definition of the tool, because only this one was approved."""
    predicate: JsonObject
    """Required value by argument name, or ``{"glob": "docs/*"}`` for a string that must match.
    Empty: any arguments. ``{"": {"equal": {…}}}``: exactly these arguments and no others."""
    created_at: float
    expires_at: float
    chat_id: str | None = None
    """Valid in this chat only; None: everywhere."""
    uses: int | None = None
    """Number of calls left; None: unlimited."""


def select_usable_grants(
    grants: Iterable[Grant],
    tool: str,
    definition_hash: str,
    fits: Callable[[JsonObject], bool],
    chat_id: str | None,
) -> list[Grant]:
    """Return the grants that cover a call, unlimited ones before those with a number of uses."""
    fitting = (
        grant
        for grant in grants
        if (grant.tool, grant.definition_hash) == (tool, definition_hash)
        and grant.chat_id in (None, chat_id)
        and fits(grant.predicate)
    )
    return sorted(fitting, key=lambda grant: (grant.uses is not None, grant.expires_at))
