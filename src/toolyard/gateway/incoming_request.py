"""One request of a client while it is being answered, and the session of a legacy client.

A session is begun by ``initialize``, with cancellable requests in both directions.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, TypeAlias, TypeGuard, cast

from toolyard.clients import Callbacks
from toolyard.clients.callbacks import CapabilityNotOffered
from toolyard.concurrency.lru_cache import LruCache
from toolyard.errors import RpcError
from toolyard.gateway.input_required.visible_questions import escape_hidden_in_params
from toolyard.gateway.subscriptions import Subscription
from toolyard.protocol.constants import CLIENT_INFO_KEY, LOG_LEVELS
from toolyard.protocol.eras import Era
from toolyard.protocol.jsonrpc import (
    Message,
    PendingRequests,
    RequestId,
    RpcResponse,
    build_notification,
    build_request,
)
from toolyard.protocol.server import RequestRejection, parse_request_metadata
from toolyard.types.account import Principal
from toolyard.types.call import OnProgress, RequestClient
from toolyard.types.json_values import object_or_empty
from toolyard.types.visible_text import visible

__all__ = [
    "CURRENT_REQUEST",
    "CancellableRequests",
    "ClientRequest",
    "LegacySession",
    "SendToClient",
    "SoleClient",
    "build_session_request",
    "describe_client",
    "discard_message",
    "forwardable_capabilities",
    "is_at_or_above_level",
    "is_jsonrpc_message",
    "is_request_id",
    "parse_stateless_request",
]


SendToClient: TypeAlias = Callable[[Message], None]
"""Sends a message to a client; never waits and never raises."""

_LINKS_SINCE_VERSION = "2025-06-18"
"""The first revision whose results may contain resource links."""
_FORWARDABLE_CAPABILITIES = ("elicitation", "sampling", "roots")


def forwardable_capabilities(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return the client capabilities to declare to servers: those that we can forward."""
    return {
        key: capabilities[key] for key in _FORWARDABLE_CAPABILITIES if isinstance(capabilities.get(key), dict)
    }


def is_at_or_above_level(params: Mapping[str, Any], level: str | None) -> bool:
    """Return whether a log message is at or above the requested level."""
    said = params.get("level")
    if level is None or said not in LOG_LEVELS:
        return True
    return LOG_LEVELS.index(cast("str", said)) >= LOG_LEVELS.index(level)


@dataclass(slots=True, eq=False)
class ClientRequest:
    """One request of a client. ``send_to_client`` sends messages that belong to it, before its response."""

    method: str
    params: dict[str, Any]
    era: Era
    send_to_client: SendToClient
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Capabilities of the client to declare to servers."""
    log_level: str | None = None
    """Log level of a request without a session; a session has its own."""
    progress_token: RequestId | None = None
    session: LegacySession | None = None
    id: RequestId | None = None
    headers: Mapping[str, str] | None = None
    """Headers of HTTP, in an era in which they mirror parameters."""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The ``_meta`` of the request, such as a trace context."""
    is_finished: bool = False
    """Whether the request has been answered, so no message can be sent with it."""

    def begin_upstream(self) -> RequestClient | None:
        """Return the client for requests to servers that the running task makes for this request.

        None if the request may take several rounds, each of which has a client of its own.
        """
        if self.session is not None:
            CURRENT_REQUEST.set(self)
            return self.session.client
        if (
            self.capabilities
            or self.log_level is not None
            or "requestState" in self.params
            or "inputResponses" in self.params
        ):
            return None
        return RequestClient(None, describe_client(self.meta.get(CLIENT_INFO_KEY)))

    @property
    def version(self) -> str:
        """Protocol version of the client."""
        return self.era.assumed_version if self.session is None else self.session.version

    @property
    def supports_resource_links(self) -> bool:
        """Whether results may contain links to resources."""
        return self.version >= _LINKS_SINCE_VERSION

    @property
    def on_progress(self) -> OnProgress | None:
        """Callback for the server's progress; None if the client did not ask for it."""
        return self.send_progress if self.progress_token is not None else None

    def send_progress(self, params: Mapping[str, Any]) -> None:
        """Forward the server's progress, if the client asked for it."""
        if self.progress_token is not None and not self.is_finished:
            self.send_to_client(
                build_notification("notifications/progress", {**params, "progressToken": self.progress_token})
            )

    def send_log(self, params: Mapping[str, Any]) -> None:
        """Forward a log message from the server, if the client asked for that level."""
        if (
            self.log_level is not None
            and not self.is_finished
            and is_at_or_above_level(params, self.log_level)
        ):
            self.send_to_client(build_notification("notifications/message", dict(params)))


def build_session_request(
    body: Message, era: Era, session: LegacySession | None, send_to_client: SendToClient
) -> ClientRequest:
    """Build a request of an era with sessions."""
    params: dict[str, Any] = body.get("params") or {}
    meta = object_or_empty(params.get("_meta"))
    token = meta.get("progressToken")
    return ClientRequest(
        body["method"],
        params,
        era,
        send_to_client,
        progress_token=token if is_request_id(token) else None,
        session=session,
        id=body.get("id"),
        meta=meta,
    )


def parse_stateless_request(
    body: Message,
    era: Era,
    send_to_client: SendToClient,
    *,
    headers: Mapping[str, str] | None = None,
) -> ClientRequest | RequestRejection:
    """Build a request of an era without sessions, or return its rejection. ``headers`` are those of HTTP."""
    metadata = parse_request_metadata(body, headers=headers)
    if isinstance(metadata, RequestRejection):
        return metadata
    params: dict[str, Any] = body["params"]
    return ClientRequest(
        body["method"],
        params,
        era,
        send_to_client,
        forwardable_capabilities(metadata.capabilities),
        metadata.log_level,
        metadata.progress_token,
        id=body.get("id"),
        headers=headers,
        meta=params["_meta"],
    )


CURRENT_REQUEST: ContextVar[ClientRequest | None] = ContextVar("gateway_request", default=None)
"""The request that the running task works on.

Over HTTP a server's messages within a response are read by that task, so this identifies their request. On a
shared channel it may be an earlier request that has ended.
"""


def discard_message(message: Message) -> None:
    """Drop a message: the sender of a client that cannot be reached."""


def is_jsonrpc_message(value: object) -> TypeGuard[Message]:
    """Return whether a JSON value is a JSON-RPC message."""
    if not isinstance(value, dict):
        return False
    body = cast("Message", value)
    method, params = body.get("method"), body.get("params")
    known = is_request_id(body.get("id")) or "id" not in body
    well = isinstance(method, str) or (method is None and ("result" in body or "error" in body))
    return known and well and (params is None or isinstance(params, dict))


def is_request_id(value: object) -> TypeGuard[RequestId]:
    """Return whether a value is a valid request id."""
    return isinstance(value, int | str) and not isinstance(value, bool)


_EARLY_CANCELLATION_SECONDS = 30.0
"""Time for which a cancellation is kept for a request that has not arrived."""
_MAX_REMEMBERED_IDS = 64
"""Maximum number of kept cancellations, and of answered ids; the oldest are dropped first."""
_MAX_ID_LENGTH = 128
"""Maximum length of a remembered id, in characters or bits."""


# The specification (2025-11-25, Cancellation) lets a receiver ignore a cancellation of an unknown request.
# Over HTTP a request and its cancellation may use two connections, and the cancellation may be read first;
# ignoring it would leave a request running that cannot be stopped. So it is kept for a short time, and the
# request is not started.
class CancellableRequests:
    """The requests of one session by their ids, so that the client can cancel them, even before they arrive.

    Like any cancelled request, one that was cancelled early gets no response. A client that reuses ids is not
    harmed: recently answered ids are kept, and a late cancellation of one of them is dropped.
    """

    def __init__(self, early_cancellation_seconds: float = _EARLY_CANCELLATION_SECONDS) -> None:
        self.early_cancellation_seconds = early_cancellation_seconds
        self._running_tasks: dict[RequestId, asyncio.Task[Any]] = {}
        self._early_cancellations: LruCache[RequestId, float] = LruCache(_MAX_REMEMBERED_IDS)
        self._answered_ids: LruCache[RequestId, None] = LruCache(_MAX_REMEMBERED_IDS)

    def begin(self, id: RequestId, task: asyncio.Task[Any]) -> None:
        """Register a request and the task that answers it. Raises CancelledError if it has been cancelled
        already."""
        came = self._early_cancellations.pop(id, None) if self._early_cancellations else None
        if came is not None and time.monotonic() - came < self.early_cancellation_seconds:
            raise asyncio.CancelledError
        self._running_tasks[id] = task

    def end(self, id: RequestId) -> None:
        """Unregister a request that has been answered or cancelled."""
        if self._running_tasks.pop(id, None) is not None:
            _remember_id(self._answered_ids, id, None)

    def cancel(self, id: RequestId) -> None:
        """Cancel a request, or remember the cancellation if the request has not arrived."""
        if (task := self._running_tasks.get(id)) is not None:
            task.cancel()
        elif id not in self._answered_ids:
            _remember_id(self._early_cancellations, id, time.monotonic())

    def close(self) -> None:
        """Cancel all requests in progress."""
        for task in list(self._running_tasks.values()):
            task.cancel()


def _remember_id(memory: LruCache[RequestId, Any], id: RequestId, value: object) -> None:
    # The client chooses ids. Remembering long ones would let it fill the memory.
    if (len(id) if isinstance(id, str) else id.bit_length()) <= _MAX_ID_LENGTH:
        memory[id] = value


_SESSION_NUMBERS = itertools.count(1)
_MAX_NAME_CHARACTERS = 60

CheckQuestion: TypeAlias = Callable[[str, str, Mapping[str, Any]], Mapping[str, Any]]
"""Returns the checked params of a question: server id, method, params. Raises BadAnswer."""


def describe_client(info: object) -> str:
    """Return the name of a client for people, from its ``clientInfo``, which may be of any type."""
    if not isinstance(info, dict):
        return "a client"
    known = cast("dict[str, object]", info)
    words = (known.get("title") or known.get("name"), known.get("version"))
    return _join_client_name(
        *(word[:_MAX_NAME_CHARACTERS] if isinstance(word, str) else "" for word in words)
    )


@lru_cache(maxsize=256)
def _join_client_name(name: str, version: str) -> str:
    # Cached, because a modern client sends its name with every request.
    words = " ".join(word for word in (name, version) if word)
    return visible(words[:_MAX_NAME_CHARACTERS]) or "a client"


class LegacySession:
    """One legacy client. It answers questions from servers that belong to its calls."""

    def __init__(
        self,
        version: str,
        capabilities: Mapping[str, Any],
        client_info: Mapping[str, Any],
        send_to_client: SendToClient | None = None,
        *,
        key: str | None = None,
        check_question: CheckQuestion | None = None,
    ) -> None:
        """``send_to_client`` sends messages that belong to no request; None while the client has no stream
        for them. ``key`` identifies the client; by default each session is another client."""
        self.key = key or f"session-{next(_SESSION_NUMBERS)}"
        self.version = version
        self.client_info = client_info
        self.capabilities = forwardable_capabilities(capabilities)
        self.send_to_client = send_to_client
        self.subscription: Subscription | None = None
        """The subscription by which the client gets notifications."""
        self.active_requests: list[ClientRequest] = []
        """Requests in progress, the oldest first."""
        self.cancellable_requests = CancellableRequests()
        self._pending_requests: PendingRequests[asyncio.Future[dict[str, Any]]] = PendingRequests()
        self._check_question = check_question
        self.client = RequestClient(
            self.key,
            describe_client(client_info),
            self.capabilities,
            self._answer_server,
            send_log=self._forward_log,
        )

    async def _answer_server(
        self, server_id: str, method: str, params: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        if self._check_question is not None:
            params = self._check_question(server_id, method, params)
        return await self.ask_client(method, params)

    async def ask_client(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the client's answer to a question from a server.

        Raises NotOffered if the client cannot be asked, and RpcError if it answers with an error.
        """
        shown = await escape_hidden_in_params(method, params)
        tell = self._choose_sender()
        if tell is None:
            raise CapabilityNotOffered(method)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        id = self._pending_requests.register(answer, method)
        tell(build_request(id, method, shown))
        try:
            return await answer
        except asyncio.CancelledError:
            # The server has withdrawn its question, or its call has ended: a prompt that is open at the
            # client should close.
            tell(build_notification("notifications/cancelled", {"requestId": id}))
            raise
        finally:
            self._pending_requests.discard(id)

    def receive_response(self, message: Message) -> None:
        """Handle a response of the client. Responses to unknown requests are dropped."""
        event = self._pending_requests.receive(message)
        if not isinstance(event, RpcResponse) or event.token.done():
            return
        if event.failure is None:
            event.token.set_result(event.result or {})
        else:
            failure = event.failure
            event.token.set_exception(RpcError(failure.code, failure.message, failure.data))

    def notify(self, message: Message) -> None:
        """Send the client a message that belongs to no request, if it has a stream for that."""
        if self.send_to_client is not None:
            self.send_to_client(message)

    def _forward_log(self, params: Mapping[str, Any]) -> None:
        if (
            is_at_or_above_level(params, self.client.log_level)
            and (tell := self._choose_sender()) is not None
        ):
            tell(build_notification("notifications/message", dict(params)))

    def notify_during_request(self, message: Message) -> None:
        """Send a message that a server sent while it works, on the stream of a request if there is one."""
        if (tell := self._choose_sender()) is not None:
            tell(message)

    def _choose_sender(self) -> SendToClient | None:
        """Return the sender for a message that a server sends while it works.

        Prefers the request that it works on, if known, then the latest request, then the session's own
        stream.
        """
        current = CURRENT_REQUEST.get()
        if current is not None and current.session is self and not current.is_finished:
            return current.send_to_client
        return self.active_requests[-1].send_to_client if self.active_requests else self.send_to_client

    def end(self) -> None:
        """End the session; later questions are not answered."""
        self.cancellable_requests.close()
        for waiting in self._pending_requests.tokens():
            if not waiting.done():
                waiting.cancel()
        # All refer back to the session. Dropping them frees it by reference counting, without the garbage
        # collector.
        self.send_to_client = self.client.ask = self.client.send_log = None


class SoleClient:
    """Client that all calls belong to, and that answers all questions from servers."""

    key = "client"

    def __init__(self) -> None:
        self.session: LegacySession | None = None
        self._capabilities: dict[str, Any] = {}
        """Declared to servers that are connected from now on."""

    def declare(self, capabilities: Mapping[str, Any]) -> bool:
        """Set the capabilities of the client. Return True if servers may have been told others before."""
        new = forwardable_capabilities(capabilities)
        if new == self._capabilities:
            return False
        self._capabilities.clear()
        self._capabilities.update(new)
        return True

    def callbacks_for(self, principal: Principal, chat: str | None) -> Callbacks:
        """Return the callbacks of all connections."""
        return Callbacks(
            elicitation=partial(self._ask, "elicitation/create"),
            sampling=partial(self._ask, "sampling/createMessage"),
            roots=partial(self._ask, "roots/list"),
            # The same object, so that a connect declares the capabilities of that time.
            offers=self._capabilities,
        )

    async def _ask(self, method: str, server_id: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer a request that belongs to no call, such as one for roots after the handshake."""
        if self.session is not None and self.session.client.ask is not None:
            return await self.session.client.ask(server_id, method, params)
        raise CapabilityNotOffered(method)
