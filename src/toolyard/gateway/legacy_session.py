"""A conversation of the legacy era: it began with initialize, and both sides ask questions."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Any

from toolyard.clients.callbacks import Answerer, Callbacks, NotOffered
from toolyard.errors import RpcError
from toolyard.gateway.cancellation import Cancelling
from toolyard.gateway.client_request import CURRENT, Request, Tell, mirrored, passes_level
from toolyard.gateway.client_subscriptions import Watch
from toolyard.gateway.input_required.visible_questions import visible_params
from toolyard.protocol.pending import Answer, Exchange, Message, notification, request

__all__ = ["Session"]

_KEYS = itertools.count(1)
_COMPLETED = "notifications/elicitation/complete"
"""The person did what a URL was for that they were sent to; the modern era has no such message."""


class Session:
    """One legacy client. Servers' questions are answered by it, over connections that are its own."""

    def __init__(
        self, version: str, capabilities: Mapping[str, Any], info: Mapping[str, Any], tell: Tell | None = None
    ) -> None:
        """``tell`` sends what belongs to no request; None as long as there is no way for that."""
        self.key = f"session-{next(_KEYS)}"
        self.version = version
        self.info = info
        self.capabilities = mirrored(capabilities)
        self.log_level: str | None = None
        self.tell = tell
        self.watch: Watch | None = None
        """What it is told unasked."""
        self.requests: list[Request] = []
        """Being answered, the oldest first."""
        self.cancelling = Cancelling()
        self._asked: Exchange[asyncio.Future[dict[str, Any]]] = Exchange()
        self.callbacks = self._callbacks()

    @property
    def has_lanes(self) -> bool:
        """Whether connections of its own are needed: servers may ask it, or send it their logs."""
        return bool(self.capabilities) or self.log_level is not None

    def _callbacks(self) -> Callbacks:
        def answerer(method: str) -> Answerer | None:
            if method.partition("/")[0] not in self.capabilities:
                return None
            return lambda _, params: self.ask(method, params)

        return Callbacks(
            elicitation=answerer("elicitation/create"),
            sampling=answerer("sampling/createMessage"),
            roots=answerer("roots/list"),
            log=self._logged,
            notification=self._noted,
            offers=self.capabilities,
            name_inputs=True,
        )

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The client's answer to a server's question. Raises NotOffered where it cannot be asked, RpcError
        where it answers with an error."""
        tell = self._way()
        if tell is None:
            raise NotOffered(method)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        id = self._asked.ask(answer, method)
        tell(request(id, method, visible_params(method, params)))
        try:
            return await answer
        except asyncio.CancelledError:
            tell(notification("notifications/cancelled", {"requestId": id}))
            raise
        finally:
            self._asked.forget(id)

    def answered(self, message: Message) -> None:
        """The client sent an answer. One to nothing that is asked is dropped."""
        event = self._asked.receive(message)
        if not isinstance(event, Answer) or event.token.done():
            return
        if event.failure is None:
            event.token.set_result(event.result or {})
        else:
            failure = event.failure
            event.token.set_exception(RpcError(failure.code, failure.message, failure.data))

    def inform(self, message: Message) -> None:
        """Tell the client what belongs to no request of its, if there is a way."""
        if self.tell is not None:
            self.tell(message)

    def _logged(self, _: str, params: Mapping[str, Any]) -> None:
        if passes_level(params, self.log_level) and (tell := self._way()) is not None:
            tell(notification("notifications/message", dict(params)))

    def _noted(self, _: str, method: str, params: Mapping[str, Any]) -> None:
        """Of what servers say unasked, what belongs to a question of theirs; the rest is heard elsewhere."""
        if method == _COMPLETED and (tell := self._way()) is not None:
            tell(notification(method, dict(params)))

    def _way(self) -> Tell | None:
        """Where a message goes that a server sends while it works: with the request that it works on, where
        that is known; else with the latest one, else apart from all."""
        current = CURRENT.get()
        if current is not None and current.session is self and not current.over:
            return current.tell
        return self.requests[-1].tell if self.requests else self.tell

    def end(self) -> None:
        """Nobody answers any more."""
        self.cancelling.close()
        for waiting in self._asked.tokens():
            if not waiting.done():
                waiting.cancel()
        # Both lead back to it; so it goes with whoever has it, not when somebody looks for such circles.
        self.tell, self.callbacks = None, Callbacks()
