"""Answers to requests from servers: elicitation, sampling, roots.

The callbacks of the embedding program give them, or the client whose unanswered call a request belongs to.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from toolyard.errors import ServerError, ToolyardError
from toolyard.protocol.codec import encode
from toolyard.types.call import McpRequest, RequestClient

__all__ = [
    "INPUT_NAME_META_KEY",
    "AbandonedCalls",
    "Callbacks",
    "CapabilityNotOffered",
    "InFlightCall",
    "ServerRequestHandler",
    "SharedRequestHandler",
    "can_answer",
    "describe_call",
    "find_sole_client",
    "is_call",
]


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
class InFlightCall:
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
    calls: Sequence[InFlightCall], method: str, params: Mapping[str, Any]
) -> RequestClient | None:
    """Return the client that all these calls belong to, if it can answer this request from the server.

    Return None if there is no call, if the calls belong to several clients or to none, and if the client
    lacks the capability. A request from a legacy server names no call, so anything else would be a guess.
    """
    sole: RequestClient | None = None
    for call in calls:
        client = call.client
        if client is None or not (sole is None or client is sole or (client.key and client.key == sole.key)):
            return None
        sole = client
    return sole if sole is not None and can_answer(sole, method, params) else None


def can_answer(client: RequestClient, method: str, params: Mapping[str, Any]) -> bool:
    """Return True if a client declared the capability for a request from a server."""
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

    def list_calls(self, now: float) -> list[InFlightCall]:
        """Return the calls that may still be running."""
        self._calls = {id: call for id, call in self._calls.items() if call[0] > now}
        return [
            InFlightCall(name, None if client is None else client())
            for _, name, client in self._calls.values()
        ]


log = logging.getLogger("toolyard.clients")

INPUT_NAME_META_KEY = "toolyard/inputName"
"""Key in ``_meta`` of a legacy server request that carries its name among the modern ``inputRequests``. It
makes a translation between the eras reversible."""

ServerRequestHandler: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Takes the server's id and the params of its request; returns the result."""

SharedRequestHandler: TypeAlias = Callable[
    [str, str, Mapping[str, Any], Sequence[InFlightCall]], Awaitable[Mapping[str, Any]]
]
"""Takes the server's id, the method and params of its request, and the calls that it may belong to. Raises
CapabilityNotOffered."""


class CapabilityNotOffered(Exception):
    """Raised when a server requests a capability that it was not offered."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Handlers for server requests. Only capabilities with a handler are offered.

    An exception of a handler becomes a JSON-RPC error for a legacy server. A modern server has no way to
    receive an error for an input request, so its call fails.
    """

    elicitation: ServerRequestHandler | None = None
    """Prompts the person. Result: ``{"action": "accept" | "decline" | "cancel", "content": {…}}``."""
    elicitation_urls: bool = False
    """True if the person can also be sent to a URL."""
    sampling: ServerRequestHandler | None = None
    """Runs a model."""
    roots: ServerRequestHandler | None = None
    """Lists the folders that servers may work in. Result: ``{"roots": [{"uri": …}]}``."""
    log: Callable[[str, Mapping[str, Any]], None] | None = None
    """Called with each log message from a server."""
    notification: Callable[[str, str, Mapping[str, Any]], None] | None = None
    """Called with each other notification: the server's id, the method, the params."""
    offers: Mapping[str, Any] | None = None
    """Capabilities to announce in place of those derived from the handlers, for proxies of other clients."""
    shared: SharedRequestHandler | None = None
    """Answers, in place of the handlers above, requests from a server that several clients share, where no
    single client can be asked."""
    name_inputs: bool = False
    """If True, add the input's name to ``_meta`` (``INPUT_NAME_META_KEY``) of each input request."""

    @classmethod
    def from_client(cls, client: RequestClient) -> Callbacks:
        """Return callbacks that ask a client, and offer exactly its capabilities."""

        def ask_for(method: str) -> ServerRequestHandler | None:
            if client.ask is None or method.partition("/")[0] not in client.capabilities:
                return None
            ask = client.ask
            return lambda server_id, params: ask(server_id, method, params)

        send_log = client.send_log
        return cls(
            elicitation=ask_for("elicitation/create"),
            sampling=ask_for("sampling/createMessage"),
            roots=ask_for("roots/list"),
            log=None if send_log is None else lambda _, params: send_log(params),
            offers=client.capabilities,
            name_inputs=True,
        )

    def capabilities(self) -> dict[str, Any]:
        """Return the client capabilities to announce to servers."""
        if self.offers is not None:
            return dict(self.offers)
        capabilities: dict[str, Any] = {}
        if self.elicitation is not None:
            capabilities["elicitation"] = {"form": {}, "url": {}} if self.elicitation_urls else {"form": {}}
        if self.sampling is not None:
            capabilities["sampling"] = {}
        if self.roots is not None:
            capabilities["roots"] = {}
        return capabilities

    async def answer(
        self, server: str, method: str, params: Mapping[str, Any], calls: Sequence[InFlightCall] = ()
    ) -> dict[str, Any]:
        """Return the result of a server's request, ready to be sent; ``calls`` are those that it may belong
        to. Raise CapabilityNotOffered for a method without a handler, and a ToolyardError if the handler
        fails."""
        handler = {
            "elicitation/create": self.elicitation,
            "sampling/createMessage": self.sampling,
            "roots/list": self.roots,
        }.get(method)
        if handler is None and self.shared is None:
            raise CapabilityNotOffered(method)
        try:
            if self.shared is not None:
                result = dict(await self.shared(server, method, params, calls))
            else:
                assert handler is not None
                result = dict(await handler(server, params))
            encode(result)  # Fail here, with the handler's name, if the result cannot be serialised.
        except asyncio.CancelledError as error:
            # If this task is being cancelled, no answer is needed. Otherwise the handler itself raised
            # CancelledError, and the server must still get an error.
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise _callback_error(method, error) from error
        except (CapabilityNotOffered, ToolyardError):
            raise
        except Exception as error:
            log.exception("%s: the callback for %s failed", server, method)
            raise _callback_error(method, error) from error
        return result


def _callback_error(method: str, error: BaseException) -> ServerError:
    description = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return ServerError(f"the callback for {method} failed: {description}")
