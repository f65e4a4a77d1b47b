"""Approvals: a call that waits for somebody's yes, and the yes that was given, with its bounds."""

from __future__ import annotations

from dataclasses import dataclass

from toolyard.types.tool import JsonObject

__all__ = ["Approval", "Grant"]


@dataclass(frozen=True, slots=True)
class Approval:
    """A call that somebody is asked about. Its owner alone can answer, once."""

    id: str
    owner: str
    tool: str
    """The canonical id."""
    name: str
    """The exposed name."""
    definition_hash: str
    arguments: JsonObject
    reason: str
    """The rule's words for why it asks."""
    asked_at: float
    chat_id: str | None = None
    """None: asked by a client of the gateway or of the API."""
    call_id: str | None = None
    answered_at: float | None = None
    yes: bool | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """A yes. It counts for one owner, one tool as it was defined then, arguments that fit, and some time."""

    id: str
    owner: str
    tool: str
    name: str
    definition_hash: str
    """Another definition of the tool is not what was approved: the grant does not count for it."""
    predicate: JsonObject
    """By argument: the value that it must have, or ``{"glob": "docs/*"}`` for a text that must match.
    Empty: any arguments. ``{"": {"equal": {…}}}``: exactly these and no others."""
    created_at: float
    expires_at: float
    chat_id: str | None = None
    """Counts in this chat only; None: everywhere."""
    uses: int | None = None
    """How many calls it is still good for; None: any number."""
