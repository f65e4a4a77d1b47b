"""We, as one MCP server: answers the requests of one caller, in both eras, from what the rooms above have."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, cast

from toolyard.errors import ServerError, ToolyardError
from toolyard.gateway.caller_view import Offering
from toolyard.gateway.client_request import Request, Tell, as_object
from toolyard.gateway.client_subscriptions import Watch
from toolyard.gateway.error_responses import Refusal, failure_of, no_method
from toolyard.gateway.gateway import Gateway
from toolyard.gateway.input_required.rounds import Rounds
from toolyard.gateway.input_required.visible_questions import visible_requests
from toolyard.gateway.legacy_session import Session
from toolyard.gateway.surface.prompts import Prompts
from toolyard.gateway.surface.resources import Resources
from toolyard.gateway.surface.tools import Tools
from toolyard.meta import Mode, directly
from toolyard.protocol.constants import INTERNAL_ERROR, INVALID_PARAMS, LOG_LEVELS, SUBSCRIPTION_ID
from toolyard.protocol.pending import Failure, Id, Message, error_message, notification, result_message
from toolyard.protocol.server import complete, discover_result, initialize_result, subscription_note
from toolyard.types.call import Caller

__all__ = ["MISSING", "Front"]

log = logging.getLogger("toolyard.gateway")

_Handler: TypeAlias = Callable[[Request], Awaitable[dict[str, Any]]]

MISSING = "toolyard/missing"
"""In ``_meta`` of a list: the servers whose part is not there, each with the reason."""
_SOON = 10_000
"""Milliseconds for which a list is good that lacks something."""
_CHANGES = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}


class Front:
    """What one caller is offered: all servers that they reach, or ``only`` one under its own names.

    Kept for as long as the caller is, since what was prepared for one listing serves the next.
    """

    def __init__(
        self, gateway: Gateway, caller: Caller, only: str | None = None, mode: Mode | None = None
    ) -> None:
        if mode == "direct":
            caller = directly(caller)
        self.gateway = gateway
        self.caller = caller
        self.only = only
        self.offering = Offering(gateway, caller, only)
        rounds = Rounds(gateway, caller.principal)
        self.tools = Tools(self.offering, rounds, mode)
        self.prompts = Prompts(self.offering, rounds)
        self.resources = Resources(self.offering, rounds)
        self._both: dict[str, _Handler] = {
            "tools/list": self._telling(self.tools.list),
            "tools/call": self.tools.call,
            "prompts/list": self._telling(self.prompts.list),
            "prompts/get": self.prompts.get,
            "resources/list": self._telling(self.resources.list),
            "resources/templates/list": self._telling(self.resources.list_templates),
            "resources/read": self.resources.read,
            "completion/complete": self._complete,
        }
        self._modern: dict[str, _Handler] = {**self._both, "server/discover": self._discover}
        self._legacy: dict[str, _Handler] = {
            **self._both,
            "ping": _pong,
            "logging/setLevel": self._set_level,
            "resources/subscribe": self.resources.subscribe,
            "resources/unsubscribe": self.resources.unsubscribe,
        }

    async def respond(self, id: Id, request: Request) -> Message:
        """The answer to one request, whatever happens; only cancellation comes out."""
        outcome = await self.answer(request)
        if isinstance(outcome, Failure):
            return error_message(id, outcome.code, outcome.message, outcome.data)
        return result_message(id, outcome)

    async def answer(self, request: Request) -> dict[str, Any] | Failure:
        """The result of one request, or its failure."""
        try:
            handler = (self._modern if request.modern else self._legacy).get(request.method)
            if handler is None:
                raise no_method(request.method)
            result = await handler(request)
            return self._finished(request, result)
        except Refusal as refusal:
            return refusal.failure
        except ToolyardError as error:
            if isinstance(error, ServerError):
                self.gateway.parts.calls.hush(error)
            return failure_of(error)
        except Exception as error:
            # The top of a request: a fault of ours must not end the conversation.
            log.exception("%s failed in an unforeseen way", request.method)
            return Failure(INTERNAL_ERROR, f"failed in an unforeseen way: {type(error).__name__}")
        finally:
            request.over = True

    def _finished(self, request: Request, result: dict[str, Any]) -> dict[str, Any]:
        if not request.modern:
            if "resultType" in result:
                return {key: value for key, value in result.items() if key != "resultType"}
            return result
        if result.get("resultType") == "input_required":
            return visible_requests(result)
        return complete(result, request.method, self.offering.info)

    def _telling(self, handler: _Handler) -> _Handler:
        """A list of many servers says whose part is missing, and is soon asked for again then."""
        if self.only is not None:
            return handler

        async def listed(request: Request) -> dict[str, Any]:
            result = await handler(request)
            if missing := self.offering.missing(request.method):
                result["_meta"] = {**as_object(result.get("_meta")), MISSING: missing}
                if request.modern:
                    result["ttlMs"] = min(result.get("ttlMs", 0), _SOON)
            return result

        return listed

    # The conversation itself.

    async def initialize(self, params: Mapping[str, Any]) -> tuple[dict[str, Any], Session]:
        """The answer to ``initialize``, and the conversation that begins with it."""
        offered = await self.offering.capabilities()
        result = initialize_result(
            params.get("protocolVersion"), self.offering.info, offered, self.offering.instructions()
        )
        session = Session(
            result["protocolVersion"],
            as_object(params.get("capabilities")),
            as_object(params.get("clientInfo")),
        )
        return result, session

    def attend(self, session: Session, tell: Tell) -> None:
        """From now on a session can be told what belongs to no request of its."""
        session.tell = tell
        if session.watch is None:
            session.watch = Watch(
                self.caller.principal,
                self.offering.concerns,
                lambda method, params: session.inform(notification(method, dict(params))),
                {"tools", "prompts", "resources"},
                only=self.only,
            )
            self.gateway.hub.add(session.watch)

    async def leave(self, session: Session) -> None:
        """A session is over: nobody is told any more, and its connections close."""
        session.end()
        watch, session.watch = session.watch, None
        if watch is not None:
            await self.gateway.hub.remove(watch)
        await self.gateway.upstream.leave(session)

    async def listen(self, id: Id, request: Request) -> dict[str, Any]:
        """``subscriptions/listen``: acknowledges, then tells until it is cancelled or the gateway closes.
        The result that ends it. Raises Refusal."""
        wanted = as_object(request.params.get("notifications"))
        watch = Watch(
            self.caller.principal,
            self.offering.concerns,
            lambda method, params: request.tell(subscription_note(method, id, params)),
            only=self.only,
        )
        try:
            honoured = await self._subscribed(watch, wanted)
            request.tell(
                subscription_note("notifications/subscriptions/acknowledged", id, {"notifications": honoured})
            )
            self.gateway.hub.add(watch)
            await self.gateway.closing.wait()
        finally:
            request.over = True
            await self.gateway.hub.remove(watch)
        return {"resultType": "complete", "_meta": {SUBSCRIPTION_ID: id}}

    async def _subscribed(self, watch: Watch, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Subscribe to what is wanted and can be had; that is what comes back."""
        offered = await self.offering.capabilities()
        honoured: dict[str, Any] = {}
        for kind, key in _CHANGES.items():
            if wanted.get(key) is True and as_object(offered.get(kind)).get("listChanged") is True:
                watch.kinds.add(kind)
                honoured[key] = True
        uris = wanted.get("resourceSubscriptions")
        followed: list[str] = []
        for uri in cast("list[object]", uris) if isinstance(uris, list) else []:
            with contextlib.suppress(Refusal, ServerError):
                server_id, own = await self.resources.place(uri)
                await self.gateway.hub.subscribe(watch, server_id, own, str(uri))
                followed.append(str(uri))
        if followed:
            honoured["resourceSubscriptions"] = followed
        await self.offering.connect()
        return honoured

    async def _discover(self, request: Request) -> dict[str, Any]:
        offered = await self.offering.capabilities()
        return discover_result(self.offering.info, offered, instructions=self.offering.instructions())

    async def _set_level(self, request: Request) -> dict[str, Any]:
        level = request.params.get("level")
        if level not in LOG_LEVELS:
            raise Refusal(INVALID_PARAMS, "level is none of the known levels")
        if request.session is not None:
            request.session.log_level = level
        return {}

    async def _complete(self, request: Request) -> dict[str, Any]:
        ref = as_object(request.params.get("ref"))
        if ref.get("type") == "ref/prompt":
            return await self.prompts.complete(request, ref)
        if ref.get("type") == "ref/resource":
            return await self.resources.complete(request, ref)
        raise Refusal(INVALID_PARAMS, "ref is neither a prompt nor a resource")


async def _pong(request: Request) -> dict[str, Any]:
    return {}
