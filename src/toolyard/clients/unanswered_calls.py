"""Unanswered calls of one session, and the client that a question of a legacy server belongs to."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from toolyard.errors import ServerError
from toolyard.types.call import McpRequest, RequestClient

__all__ = ["AbandonedCalls", "UnansweredCall", "can_answer", "describe_call", "find_sole_client", "is_call"]

_CALL_NAMES: Mapping[str, str | None] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "completion/complete": None,
}
"""Methods during which a server may ask a question, each with the parameter that names its target."""
_MAX_ABANDONED_CALLS = 1_000
"""Maximum number of abandoned calls per session. The oldest are dropped first."""


def is_call(method: str) -> bool:
    """Return True for requests during which a server may ask a question."""
    return method in _CALL_NAMES


def describe_call(request: McpRequest) -> str:
    """Return the target of a call: the server's name of the tool or prompt, or the URI of the resource."""
    key = _CALL_NAMES.get(request.method)
    return str((request.params or {}).get(key)) if key is not None else request.method


@dataclass(frozen=True, slots=True)
class UnansweredCall:
    """A call that the server has not answered yet, whether somebody still waits for it or not."""

    name: str
    client: RequestClient | None
    report_progress: Callable[[str], None] | None = None
    """Tells the caller why the call waits. None if nobody waits for it any more."""
    fail: Callable[[ServerError], None] | None = None
    """Ends the call with an error. None if nobody waits for it any more."""

    @property
    def client_name(self) -> str:
        """Name of the client for people."""
        return "a program" if self.client is None else self.client.name


def find_sole_client(
    calls: Sequence[UnansweredCall], method: str, params: Mapping[str, Any]
) -> RequestClient | None:
    """Return the client that all these calls belong to, if it can answer this request of the server.

    Return None if there is no call, if the calls belong to several clients or to none, and if the client
    lacks the capability. A request of a legacy server names no call, so that anything else would be a guess.
    """
    sole: RequestClient | None = None
    for call in calls:
        client = call.client
        if client is None or not (sole is None or client is sole or (client.key and client.key == sole.key)):
            return None
        sole = client
    return sole if sole is not None and can_answer(sole, method, params) else None


def can_answer(client: RequestClient, method: str, params: Mapping[str, Any]) -> bool:
    """Return True if a client declared the capability for a request of a server."""
    offered = client.capabilities.get(method.partition("/")[0])
    if client.ask is None or not isinstance(offered, Mapping):
        return False
    if method != "elicitation/create":
        return True
    kinds = cast("Mapping[str, Any]", offered)
    kind = str(params.get("mode", "form"))
    # A capability without kinds means forms.
    return kind in kinds or (kind == "form" and not kinds)


class AbandonedCalls:
    """Calls whose callers have stopped waiting, until the server answers them.

    A server need not answer a cancelled call, so each is forgotten after its time limit. Clients are
    referenced weakly: an abandoned call must not keep a session in memory.
    """

    def __init__(self) -> None:
        self._calls: dict[int, tuple[float, str, weakref.ref[RequestClient] | None]] = {}

    def add(self, id: int, request: McpRequest, forget_at: float) -> None:
        """Add a call; ``forget_at`` is on the clock of the event loop."""
        client = None if request.client is None else weakref.ref(request.client)
        self._calls[id] = (forget_at, describe_call(request), client)
        if len(self._calls) > _MAX_ABANDONED_CALLS:
            del self._calls[next(iter(self._calls))]

    def on_answer(self, id: int | None) -> None:
        """Forget a call that the server has answered."""
        if self._calls and id is not None:
            self._calls.pop(id, None)

    def list_calls(self, now: float) -> list[UnansweredCall]:
        """Return the calls that may still be running."""
        self._calls = {id: call for id, call in self._calls.items() if call[0] > now}
        return [
            UnansweredCall(name, None if client is None else client())
            for _, name, client in self._calls.values()
        ]
