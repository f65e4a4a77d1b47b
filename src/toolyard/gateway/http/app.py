"""The gateway over Streamable HTTP: both protocol eras at every address.

The creator decides about access: ``endpoint_for`` returns the endpoint for a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast

from toolyard.errors import TooManyStreams
from toolyard.gateway.endpoint import Endpoint
from toolyard.gateway.error_responses import RpcErrorResponse
from toolyard.gateway.http.event_streams import EventStream, StreamLimits
from toolyard.gateway.http.exchange import (
    DisconnectWatcher,
    HttpExchange,
    HttpRequestRejected,
    ListenRequests,
    Scope,
    accepts_media_type,
)
from toolyard.gateway.http.legacy import INVALID_MESSAGE, LegacyHttp
from toolyard.gateway.http.sessions import HttpSessions
from toolyard.gateway.incoming_request import (
    ClientRequest,
    discard_message,
    is_jsonrpc_message,
    is_request_id,
    parse_stateless_request,
)
from toolyard.protocol.codec import decode
from toolyard.protocol.constants import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR
from toolyard.protocol.eras import Era, detect_era
from toolyard.protocol.incremental_decoder import MAX_ONE_STEP_BYTES, MessageLimitExceeded, decode_message
from toolyard.protocol.jsonrpc import (
    Message,
    RequestId,
    RpcFailure,
    build_error_message,
    build_failure_message,
    build_result_message,
)
from toolyard.protocol.server import RequestRejection, http_status
from toolyard.types.json_values import object_or_empty

__all__ = ["EndpointFor", "HttpGateway", "HttpRequestRejected"]

EndpointFor: TypeAlias = Callable[[Scope], Awaitable[Endpoint]]
"""Return the endpoint for a request. Raises HttpRequestRejected."""

_JSON_MEDIA_TYPE = "application/json"


class HttpGateway:
    """Answers HTTP requests to the gateway. ``close`` ends sessions and streams."""

    def __init__(self, endpoint_for: EndpointFor, stream_limits: StreamLimits) -> None:
        self._endpoint_for = endpoint_for
        self._stream_limits = stream_limits
        self.listeners = ListenRequests(endpoint_for)
        self.sessions = HttpSessions()
        """Sessions of legacy clients."""
        self._legacy_http = LegacyHttp(self.listeners, self.sessions)

    def end_listen_streams(self) -> None:
        """End the streams that only listen. Requests in progress are still answered."""
        self._legacy_http.end_listen_streams()

    async def close(self) -> None:
        await self._legacy_http.close()

    async def handle(self, http: HttpExchange) -> None:
        """Answer one request. Raises what ``http.read_body`` raises."""
        method = http.scope["method"]
        try:
            front = await self._endpoint_for(http.scope)
            if method == "POST":
                await self._handle_post(http, front)
            elif method == "GET":
                with self._stream_limits.hold(front.caller.principal.id):
                    await self._legacy_http.handle_get(http, front)
            elif method == "DELETE":
                await self._legacy_http.handle_delete(http, front)
            else:
                raise HttpRequestRejected(405, "use POST", {"Allow": "GET, POST, DELETE"})
        except HttpRequestRejected as away:
            message = build_error_message(None, away.code, away.message)
            await http.respond(away.status, message, away.headers)
        except TooManyStreams as error:
            message = build_error_message(None, INTERNAL_ERROR, str(error))
            await http.respond(429, message, {"Retry-After": f"{error.retry_after:.0f}"})

    # POST.

    async def _handle_post(self, http: HttpExchange, front: Endpoint) -> None:
        kind = http.headers.get("content-type", "")
        if kind != _JSON_MEDIA_TYPE and kind.partition(";")[0].strip().lower() != _JSON_MEDIA_TYPE:
            raise HttpRequestRejected(415, "send messages as application/json")
        if not accepts_media_type(http.headers.get("accept", "*/*")):
            raise HttpRequestRejected(406, "the client must accept application/json and text/event-stream")
        try:
            body = await http.read_body()
            message: object = decode(body) if len(body) <= MAX_ONE_STEP_BYTES else await decode_message(body)
        except MessageLimitExceeded as error:
            await http.respond_error(400, None, RpcFailure(INVALID_REQUEST, f"the message {error}"))
            return
        except ValueError:
            await http.respond_error(400, None, RpcFailure(PARSE_ERROR, "Parse error"))
            return
        if isinstance(message, list):
            await self._legacy_http.handle_batch(http, front, cast("list[object]", message))
            return
        if not is_jsonrpc_message(message):
            id = object_or_empty(message).get("id")
            await http.respond_error(400, id if is_request_id(id) else None, INVALID_MESSAGE)
            return
        era = detect_era(message, http.headers.get("mcp-protocol-version"))
        if era.has_sessions:
            await self._legacy_http.handle_post(http, front, message)
        else:
            await self._handle_stateless(http, front, era, message)

    async def _handle_stateless(self, http: HttpExchange, front: Endpoint, era: Era, body: Message) -> None:
        method, id = cast("str | None", body.get("method")), cast("RequestId", body.get("id"))
        if method is None:
            raise HttpRequestRejected(400, "send inputResponses with the next request, not as a message")
        if "id" not in body:
            await http.respond(202)
            return
        request = parse_stateless_request(body, era, discard_message, headers=http.headers)
        if isinstance(request, RequestRejection):
            await http.respond_error(request.status, id, request.failure)
            return
        with DisconnectWatcher(http.receive) as watched:
            if method == "subscriptions/listen":
                with self._stream_limits.hold(front.caller.principal.id):
                    await self._handle_listen(http, front, id, request)
                return
            # Most responses need no stream. One is created with the first message that precedes the response.
            streams: list[EventStream] = []

            def send_to_client(message: Message) -> None:
                if not streams:
                    streams.append(EventStream())
                    watched.writing = asyncio.ensure_future(streams[0].write_to(http.send))
                streams[0].put(message)

            request.send_to_client = send_to_client
            outcome = await front.handle(request)
            if isinstance(outcome, RpcFailure):
                answer, status = build_failure_message(id, outcome), http_status(outcome)
            else:
                answer, status = build_result_message(id, outcome), 200
            if watched.writing is None:
                await http.respond(status, answer)
            else:
                streams[0].put(answer)
                streams[0].end()
                await watched.writing

    async def _handle_listen(
        self, http: HttpExchange, front: Endpoint, id: RequestId, request: ClientRequest
    ) -> None:
        stream = EventStream()
        request.send_to_client = stream.put
        listening = asyncio.ensure_future(front.listen(id, request))
        writing: asyncio.Future[bool] | None = None
        try:
            # A refusal that comes before any message gets an HTTP status of its own. Once a stream has begun,
            # its status is 200.
            more = asyncio.ensure_future(stream.wait_for_message())
            await asyncio.wait((listening, more), return_when=asyncio.FIRST_COMPLETED)
            more.cancel()
            if listening.done() and stream.is_empty:
                failure = _listen_failure(listening)
                await http.respond_error(http_status(failure), id, failure)
                return
            writing = asyncio.ensure_future(stream.write_to(http.send))
            with self.listeners.track(http.scope, listening.cancel):
                await asyncio.wait((listening,))
            if not listening.cancelled():
                stream.put(build_result_message(id, listening.result()))
            stream.end()
            await writing
        finally:
            listening.cancel()
            if writing is not None:
                writing.cancel()


def _listen_failure(task: asyncio.Future[dict[str, Any]]) -> RpcFailure:
    error = task.exception()
    if isinstance(error, RpcErrorResponse):
        return error.failure
    return RpcFailure(INVALID_REQUEST, "the subscription could not be created")
