"""A conversation of the legacy era: it began with initialize, and both sides ask questions."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Any

from toolyard.clients.callbacks import Callbacks, CapabilityNotOffered, ServerRequestHandler
from toolyard.errors import RpcError
from toolyard.gateway.cancellation import CancellableRequests
from toolyard.gateway.client_request import (
    CURRENT_REQUEST,
    ClientRequest,
    SendToClient,
    forwardable_capabilities,
    is_at_or_above_level,
)
from toolyard.gateway.client_subscriptions import Subscription
from toolyard.gateway.input_required.visible_questions import escape_hidden_in_params
from toolyard.protocol.pending import Message, PendingRequests, RpcResponse, build_notification, build_request

__all__ = ["LegacySession"]

_SESSION_NUMBERS = itertools.count(1)
_ELICITATION_COMPLETE = "notifications/elicitation/complete"
"""The person did what a URL was for that they were sent to; the modern era has no such message."""


class LegacySession:
    """One legacy client. Servers' questions are answered by it, over connections that are its own."""

    def __init__(
        self,
        version: str,
        capabilities: Mapping[str, Any],
        client_info: Mapping[str, Any],
        send_to_client: SendToClient | None = None,
    ) -> None:
        """``tell`` sends what belongs to no request; None as long as there is no way for that."""
        self.key = f"session-{next(_SESSION_NUMBERS)}"
        self.version = version
        self.client_info = client_info
        self.capabilities = forwardable_capabilities(capabilities)
        self.log_level: str | None = None
        self.send_to_client = send_to_client
        self.subscription: Subscription | None = None
        """What it is told unasked."""
        self.requests: list[ClientRequest] = []
        """Being answered, the oldest first."""
        self.cancellable_requests = CancellableRequests()
        self._pending_requests: PendingRequests[asyncio.Future[dict[str, Any]]] = PendingRequests()
        self.callbacks = self._make_callbacks()

    @property
    def needs_dedicated_connections(self) -> bool:
        """Whether connections of its own are needed: servers may ask it, or send it their logs."""
        return bool(self.capabilities) or self.log_level is not None

    def _make_callbacks(self) -> Callbacks:
        def answerer_for(method: str) -> ServerRequestHandler | None:
            if method.partition("/")[0] not in self.capabilities:
                return None
            return lambda _, params: self.ask_client(method, params)

        return Callbacks(
            elicitation=answerer_for("elicitation/create"),
            sampling=answerer_for("sampling/createMessage"),
            roots=answerer_for("roots/list"),
            log=self._forward_log,
            notification=self._forward_notification,
            offers=self.capabilities,
            name_inputs=True,
        )

    async def ask_client(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The client's answer to a server's question. Raises NotOffered where it cannot be asked, RpcError
        where it answers with an error."""
        tell = self._choose_sender()
        if tell is None:
            raise CapabilityNotOffered(method)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        id = self._pending_requests.register(answer, method)
        tell(build_request(id, method, escape_hidden_in_params(method, params)))
        try:
            return await answer
        except asyncio.CancelledError:
            tell(build_notification("notifications/cancelled", {"requestId": id}))
            raise
        finally:
            self._pending_requests.discard(id)

    def receive_response(self, message: Message) -> None:
        """The client sent an answer. One to nothing that is asked is dropped."""
        event = self._pending_requests.receive(message)
        if not isinstance(event, RpcResponse) or event.token.done():
            return
        if event.failure is None:
            event.token.set_result(event.result or {})
        else:
            failure = event.failure
            event.token.set_exception(RpcError(failure.code, failure.message, failure.data))

    def notify(self, message: Message) -> None:
        """Tell the client what belongs to no request of its, if there is a way."""
        if self.send_to_client is not None:
            self.send_to_client(message)

    def _forward_log(self, _: str, params: Mapping[str, Any]) -> None:
        if is_at_or_above_level(params, self.log_level) and (tell := self._choose_sender()) is not None:
            tell(build_notification("notifications/message", dict(params)))

    def _forward_notification(self, _: str, method: str, params: Mapping[str, Any]) -> None:
        """Of what servers say unasked, what belongs to a question of theirs; the rest is heard elsewhere."""
        if method == _ELICITATION_COMPLETE and (tell := self._choose_sender()) is not None:
            tell(build_notification(method, dict(params)))

    def _choose_sender(self) -> SendToClient | None:
        """Where a message goes that a server sends while it works: with the request that it works on, where
        that is known; else with the latest one, else apart from all."""
        current = CURRENT_REQUEST.get()
        if current is not None and current.session is self and not current.is_finished:
            return current.send_to_client
        return self.requests[-1].send_to_client if self.requests else self.send_to_client

    def end(self) -> None:
        """Nobody answers any more."""
        self.cancellable_requests.close()
        for waiting in self._pending_requests.tokens():
            if not waiting.done():
                waiting.cancel()
        # Both lead back to it; so it goes with whoever has it, not when somebody looks for such circles.
        self.send_to_client, self.callbacks = None, Callbacks()
