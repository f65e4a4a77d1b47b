"""Calls: the caller, the call, the request to a server, the request for approval, and the record of the
outcome."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from toolyard.types.account import TokenScope
from toolyard.types.agent import Agent
from toolyard.types.decision import Decision, Surface
from toolyard.types.principal import LOCAL_PRINCIPAL, Principal
from toolyard.types.result import ResultLimits
from toolyard.types.server import Bundle, Timeouts
from toolyard.types.tool import Definition, JsonObject

__all__ = [
    "ApprovalRequest",
    "CallRecord",
    "Caller",
    "McpRequest",
    "OnProgress",
    "RequestClient",
    "ToolCall",
]

OnProgress: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[None] | None]
"""Called with the params of each progress notification of a call. May be a coroutine function."""


@dataclass(frozen=True, slots=True, eq=False)
class Caller:
    """Identity of a caller and everything that narrows its tools: agent, bundles, selected tools, token.

    Compiled policy is cached per ``Caller`` object (compared by identity), so reuse the object between calls.
    """

    principal: Principal = LOCAL_PRINCIPAL
    surface: Surface = Surface.OPERATOR
    agent: Agent | None = None
    bundles: tuple[Bundle, ...] = ()
    choice: frozenset[str] | None = None
    """Canonical ids of the tools selected in a chat; None: no selection, all tools."""
    scope: TokenScope | None = None
    """Limits of the API token that authenticated the call; None: no token was used."""
    chat: str | None = None
    """Id of the chat. Calls of a chat to instances use connections dedicated to that chat."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class RequestClient:
    """Client of ours that a request to a server is made for: a gateway client or a chat.

    A modern server learns its capabilities with the request. A legacy server on a channel that several
    clients share does not say which call its question belongs to: the client of all unanswered calls gets it.
    """

    key: str | None
    """Requests with equal keys are of one client. None: no other request is known to be of the same one."""
    name: str = "a client"
    """Name for people."""
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    ask: Callable[[str, str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]] | None = None
    """Returns the client's answer to a request of a server: server id, method, params."""
    log_level: str | None = None
    """Level from which on the client wants the log messages of servers; None if it wants none."""
    send_log: Callable[[Mapping[str, Any]], None] | None = None
    """Sends the client the params of a log message, if they are at its level."""
    on_progress: OnProgress | None = None
    """Progress handler for calls that are made for this client."""
    round_params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Params of a request that continues an earlier one, for servers that ask in results."""
    on_input_required: Callable[[str, dict[str, Any]], dict[str, Any]] | None = None
    """Checks and returns an ``input_required`` result, for a client that answers by another request: server
    id, result. None: ``ask`` is used."""

    @property
    def is_of_one_request(self) -> bool:
        """True if this object stands for the client during one request only."""
        return self.on_input_required is not None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool, as an interface requests it."""

    name: str
    """The exposed name."""
    arguments: JsonObject = field(default_factory=dict[str, Any])
    meta: Mapping[str, Any] | None = None
    """Keys for the ``_meta`` of the request, such as a trace context."""
    on_progress: OnProgress | None = None
    timeouts: Timeouts | float | None = None
    """None: those of the server. A number of seconds only shortens them."""
    limits: ResultLimits | None = None
    """Limits of the shaped result. None: those of the settings."""
    client: RequestClient | None = None
    """Client that the call is made for; None: the program itself, or the caller's chat."""
    approve: Callable[[ApprovalRequest], Awaitable[bool]] | None = None
    """Approval handler of this call; None: that of the process."""


@dataclass(frozen=True, slots=True)
class McpRequest:
    """One request to a server, passed unchanged from its origin to the session."""

    method: str
    params: Mapping[str, Any] | None = None
    repeatable: bool = False
    """Executing the request twice does no harm, so it is sent again if its outcome is unknown."""
    timeouts: Timeouts | None = None
    """None: those of the server."""
    meta: Mapping[str, Any] | None = None
    """Keys for the ``_meta`` of the request, such as a trace context."""
    on_progress: OnProgress | None = None
    client: RequestClient | None = None
    """Client that the request is made for."""


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A call that policy allows only after an approval."""

    decision: Decision
    arguments: JsonObject
    caller: Caller
    definition: Definition
    """Definition of the tool that would be called."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """Outcome of one call for audit log, metrics and traces. Contains neither arguments nor results."""

    tool: str
    """The canonical id."""
    name: str
    principal: str
    agent: str | None
    outcome: str
    """``ok``, ``tool error``, ``cancelled``, or the ``kind`` of the error."""
    seconds: float
    error: str | None = None
