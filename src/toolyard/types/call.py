"""A call: who makes it, what became of it, what must be asked before it."""

from __future__ import annotations

from dataclasses import dataclass

from toolyard.types.account import TokenScope
from toolyard.types.agent import Agent
from toolyard.types.decision import Decision, Surface
from toolyard.types.principal import LOCAL_PRINCIPAL, Principal
from toolyard.types.server import Bundle
from toolyard.types.tool import Definition, JsonObject

__all__ = ["ApprovalRequest", "CallRecord", "Caller"]


@dataclass(frozen=True, slots=True, eq=False)
class Caller:
    """Who calls, and through which glasses: an agent's patterns, selected bundles, a chat's choice.

    What is prepared for a caller is kept under the object itself, so keep it for the next call.
    """

    principal: Principal = LOCAL_PRINCIPAL
    surface: Surface = Surface.OPERATOR
    agent: Agent | None = None
    bundles: tuple[Bundle, ...] = ()
    choice: frozenset[str] | None = None
    """Canonical ids of the tools that were chosen in a chat; None where nothing was chosen."""
    scope: TokenScope | None = None
    """What the API token is limited to that the call came with; None where it was none."""
    chat: str | None = None
    """The id of the chat that it is part of: its calls to instances go over connections of its own."""


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A call that needs somebody's yes before it is made."""

    decision: Decision
    arguments: JsonObject
    caller: Caller
    definition: Definition
    """The tool as it would be called."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call, as audit, metrics and traces see it. No arguments and no results."""

    tool: str
    """The canonical id."""
    name: str
    principal: str
    agent: str | None
    outcome: str
    """``ok``, ``tool error``, ``cancelled``, or the kind of the error."""
    seconds: float
    error: str | None = None
