"""The MCP server that one caller talks to, in both protocol eras."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from toolyard.errors import ServerError, ToolyardError
from toolyard.gateway.caller_view import CallerView
from toolyard.gateway.error_responses import RpcErrorResponse, error_to_failure, method_not_found
from toolyard.gateway.gateway import SERVER_INFO, Gateway
from toolyard.gateway.incoming_request import ClientRequest, LegacySession, SendToClient
from toolyard.gateway.input_required.rounds import InputRequiredRunner
from toolyard.gateway.input_required.visible_questions import check_question, escape_hidden_in_requests
from toolyard.gateway.subscriptions import ELICITATION_COMPLETE, Subscription
from toolyard.gateway.surface.prompts import PromptHandlers
from toolyard.gateway.surface.resources import ResourceHandlers
from toolyard.gateway.surface.tools import ToolHandlers
from toolyard.meta_tools import ToolMode, with_direct_mode
from toolyard.protocol.codec import encode_large_members
from toolyard.protocol.constants import INTERNAL_ERROR, INVALID_PARAMS, LOG_LEVELS, SUBSCRIPTION_ID_KEY
from toolyard.protocol.eras import ERAS
from toolyard.protocol.jsonrpc import (
    Message,
    RequestId,
    RpcFailure,
    build_failure_message,
    build_notification,
    build_result_message,
)
from toolyard.protocol.server import (
    build_discover_result,
    build_initialize_result,
    build_subscription_notification,
)
from toolyard.results.json_size import is_large
from toolyard.tracing.tracer import Attributes
from toolyard.types.call import Caller
from toolyard.types.json_values import list_or_empty, object_or_empty

__all__ = ["MISSING_SERVERS_META_KEY", "Endpoint", "make_endpoint"]

log = logging.getLogger("toolyard.gateway")

_Handler: TypeAlias = Callable[[ClientRequest], Awaitable[dict[str, Any]]]

MISSING_SERVERS_META_KEY = "toolyard/missing"
"""Key in the ``_meta`` of a list: the servers whose part is missing, each with the reason."""
_INCOMPLETE_LIST_TTL_MILLISECONDS = 10_000
"""Lifetime that is declared for an incomplete list."""
_MAX_TRACED_NAME_CHARACTERS = 128
_LIST_CHANGED_FLAGS = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}


class Endpoint:
    """Answers the requests of one caller, for all reachable servers or only for the server ``only``, under
    its own names.

    Lives as long as the caller, because data prepared for one listing is reused by the next.
    """

    def __init__(
        self,
        gateway: Gateway,
        caller: Caller,
        only_server_id: str | None = None,
        mode: ToolMode | None = None,
    ) -> None:
        if mode == "direct":
            caller = with_direct_mode(caller)
        self.gateway = gateway
        self.caller = caller
        self.only_server_id = only_server_id
        self.caller_view = CallerView(gateway, caller, only_server_id)
        rounds = InputRequiredRunner(gateway, caller)
        self.tools = ToolHandlers(self.caller_view, rounds, mode)
        self.prompts = PromptHandlers(self.caller_view, rounds)
        self.resources = ResourceHandlers(self.caller_view, rounds)
        handlers: dict[str, _Handler] = {
            "tools/list": self._report_missing_servers(self.tools.list),
            "tools/call": self.tools.call,
            "prompts/list": self._report_missing_servers(self.prompts.list),
            "prompts/get": self.prompts.get,
            "resources/list": self._report_missing_servers(self.resources.list),
            "resources/templates/list": self._report_missing_servers(self.resources.list_templates),
            "resources/read": self.resources.read,
            "completion/complete": self._complete_argument,
            "server/discover": self._discover_server,
            "ping": _answer_ping,
            "logging/setLevel": self._set_log_level,
            "resources/subscribe": self.resources.subscribe,
            "resources/unsubscribe": self.resources.unsubscribe,
        }
        self._handlers = {
            era: {method: handlers[method] for method in handlers if era.has_method(method)} for era in ERAS
        }

    async def respond(self, id: RequestId, request: ClientRequest) -> Message:
        """Return the response to a request. Never raises, except when cancelled."""
        outcome = await self.handle(request)
        if isinstance(outcome, RpcFailure):
            return build_failure_message(id, outcome)
        return build_result_message(id, outcome)

    async def handle(self, request: ClientRequest) -> dict[str, Any] | RpcFailure:
        """Return the result of a request, or its failure."""
        try:
            handler = self._handlers[request.era].get(request.method)
            if handler is None:
                raise method_not_found(request.method)
            result = await handler(request)
            # Lists have pages of encoded entries; other results may be as large as a server sends them.
            has_large_members = not request.method.endswith("/list") and is_large(result)
            if request.era.asks_in_results and result.get("resultType") == "input_required":
                result = await escape_hidden_in_requests(result)
            else:
                info = SERVER_INFO if self.only_server_id is None else self.caller_view.server_info
                result = request.era.finish_result(result, request.method, info)
            return await encode_large_members(result) if has_large_members else result
        except RpcErrorResponse as refusal:
            return refusal.failure
        except ToolyardError as error:
            if isinstance(error, ServerError):
                self.gateway.call_path.redact_error(error)
            return error_to_failure(error)
        except Exception as error:
            # The outermost boundary of a request: a bug must not end the client's session.
            log.exception("%s failed unexpectedly", request.method)
            return RpcFailure(INTERNAL_ERROR, f"unexpected error: {type(error).__name__}")
        finally:
            request.is_finished = True

    def _report_missing_servers(self, handler: _Handler) -> _Handler:
        """Wrap a list handler: name the missing servers in ``_meta`` and shorten the declared lifetime."""
        if self.only_server_id is not None:
            return handler

        async def list_with_missing_servers(request: ClientRequest) -> dict[str, Any]:
            result = await handler(request)
            if missing := self.caller_view.missing_servers(request.method):
                result["_meta"] = {**object_or_empty(result.get("_meta")), MISSING_SERVERS_META_KEY: missing}
                if "ttlMs" in result:
                    result["ttlMs"] = min(result["ttlMs"], _INCOMPLETE_LIST_TTL_MILLISECONDS)
            return result

        return list_with_missing_servers

    # Sessions.

    async def initialize(self, params: Mapping[str, Any]) -> tuple[dict[str, Any], LegacySession]:
        """Return the response to ``initialize``, and the new session."""
        sole = self.gateway.sole_client
        if sole is not None and sole.declare(object_or_empty(params.get("capabilities"))):
            # Servers that were told other capabilities are connected again.
            await self.gateway.manager.close_principal(self.caller.principal.id)
        offered = await self.caller_view.capabilities()
        result = build_initialize_result(
            params.get("protocolVersion"),
            self.caller_view.server_info,
            offered,
            self.caller_view.instructions(),
        )
        session = LegacySession(
            result["protocolVersion"],
            object_or_empty(params.get("capabilities")),
            object_or_empty(params.get("clientInfo")),
            key=None if sole is None else sole.key,
            check_question=self._check_question,
        )
        if sole is not None:
            sole.session = session
        return result, session

    def _check_question(self, server_id: str, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        server = self.gateway.manager.find(server_id, self.caller.principal)
        return check_question(server, method, params)

    def subscribe_session(self, session: LegacySession, send_to_client: SendToClient) -> None:
        """Start sending a session the notifications that belong to none of its requests."""
        session.send_to_client = send_to_client
        if session.subscription is None:

            def notify(method: str, params: Mapping[str, Any]) -> None:
                message = build_notification(method, dict(params))
                if method == ELICITATION_COMPLETE:
                    session.notify_during_request(message)
                else:
                    session.notify(message)

            opens_urls = "url" in object_or_empty(session.capabilities.get("elicitation"))
            session.subscription = Subscription(
                self.caller.principal,
                self.caller_view.can_see_server,
                notify,
                {"tools", "prompts", "resources", *(("elicitations",) if opens_urls else ())},
                only_server_id=self.only_server_id,
            )
            self.gateway.client_subscriptions.add(session.subscription)

    async def end_session(self, session: LegacySession) -> None:
        """End a session: stop its notifications, and release the connections that it used."""
        session.end()
        watch, session.subscription = session.subscription, None
        if watch is not None:
            await self.gateway.client_subscriptions.remove(watch)
        await self.gateway.manager.release_connections(session.key)

    async def listen(self, id: RequestId, request: ClientRequest) -> dict[str, Any]:
        """Handle ``subscriptions/listen``: acknowledge, then send notifications until cancelled or closed.

        Returns the result that ends the stream. Raises RpcErrorResponse.
        """
        wanted = object_or_empty(request.params.get("notifications"))
        watch = Subscription(
            self.caller.principal,
            self.caller_view.can_see_server,
            lambda method, params: request.send_to_client(
                build_subscription_notification(method, id, params)
            ),
            only_server_id=self.only_server_id,
        )
        try:
            honoured = await self._add_subscriptions(watch, wanted)
            request.send_to_client(
                build_subscription_notification(
                    "notifications/subscriptions/acknowledged", id, {"notifications": honoured}
                )
            )
            # Added only now: the acknowledgement comes before all notifications of the stream.
            self.gateway.client_subscriptions.add(watch)
            await self.gateway.shutdown.wait()
        finally:
            request.is_finished = True
            await self.gateway.client_subscriptions.remove(watch)
        return {"resultType": "complete", "_meta": {SUBSCRIPTION_ID_KEY: id}}

    async def _add_subscriptions(self, watch: Subscription, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Add the subscriptions that can be granted, and return those."""
        offered = await self.caller_view.capabilities()
        honoured: dict[str, Any] = {}
        for kind, key in _LIST_CHANGED_FLAGS.items():
            if wanted.get(key) is True and object_or_empty(offered.get(kind)).get("listChanged") is True:
                watch.kinds.add(kind)
                honoured[key] = True
        uris = wanted.get("resourceSubscriptions")
        followed: list[str] = []
        for uri in list_or_empty(uris):
            with contextlib.suppress(RpcErrorResponse, ServerError):
                server_id, own = await self.resources.locate(uri)
                await self.gateway.client_subscriptions.subscribe(watch, server_id, own, str(uri))
                followed.append(str(uri))
        if followed:
            honoured["resourceSubscriptions"] = followed
        await self.caller_view.connect_only_server()
        return honoured

    async def _discover_server(self, request: ClientRequest) -> dict[str, Any]:
        return build_discover_result(await self.caller_view.capabilities(), self.caller_view.instructions())

    async def _set_log_level(self, request: ClientRequest) -> dict[str, Any]:
        level = request.params.get("level")
        if level not in LOG_LEVELS:
            raise RpcErrorResponse(INVALID_PARAMS, "level is not a known log level")
        if request.session is not None:
            request.session.client.log_level = level
        return {}

    async def _complete_argument(self, request: ClientRequest) -> dict[str, Any]:
        ref = object_or_empty(request.params.get("ref"))
        if ref.get("type") == "ref/prompt":
            return await self.prompts.complete(request, ref)
        if ref.get("type") == "ref/resource":
            return await self.resources.complete(request, ref)
        raise RpcErrorResponse(INVALID_PARAMS, "ref is neither a prompt nor a resource")


class TracedEndpoint(Endpoint):
    """Endpoint that records a span for each request, under the trace context in its ``_meta`` or, without
    one, in the headers of HTTP."""

    async def handle(self, request: ClientRequest) -> dict[str, Any] | RpcFailure:
        method = request.method if request.method in self._handlers[request.era] else "_OTHER"
        target = request.params.get("name") if method in ("tools/call", "prompts/get") else None
        target = target[:_MAX_TRACED_NAME_CHARACTERS] if isinstance(target, str) else None
        attributes: Attributes = {
            "mcp.method.name": method,
            "mcp.protocol.version": request.version,
            "jsonrpc.request.id": None
            if request.id is None
            else str(request.id)[:_MAX_TRACED_NAME_CHARACTERS],
            "gen_ai.operation.name": "execute_tool" if method == "tools/call" else None,
            "gen_ai.tool.name" if method == "tools/call" else "gen_ai.prompt.name": target,
        }
        name = method if target is None else f"{method} {target}"
        with self.gateway.manager.tracer.span(name, "server", attributes, request.meta) as span:
            outcome = await super().handle(request)
            if isinstance(outcome, RpcFailure):
                span.set({"rpc.response.status_code": str(outcome.code)})
                span.fail(str(outcome.code))
            elif outcome.get("isError") is True:
                span.fail("tool_error")
            return outcome


def make_endpoint(
    gateway: Gateway, caller: Caller, only_server_id: str | None, mode: ToolMode | None
) -> Endpoint:
    """Return the endpoint of a caller, traced if traces are on."""
    kind = TracedEndpoint if gateway.manager.tracer.is_on else Endpoint
    return kind(gateway, caller, only_server_id, mode)


async def _answer_ping(request: ClientRequest) -> dict[str, Any]:
    return {}
