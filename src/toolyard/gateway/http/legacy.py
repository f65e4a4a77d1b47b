"""The legacy era over HTTP: sessions, resumable streams and batches."""

from __future__ import annotations

import asyncio
from typing import cast

from toolyard.concurrency.tasks import BackgroundTasks
from toolyard.gateway.endpoint import Endpoint
from toolyard.gateway.http.event_streams import EventStream
from toolyard.gateway.http.exchange import (
    DisconnectWatcher,
    HttpExchange,
    HttpRequestRejected,
    ListenRequests,
    accepts_media_type,
)
from toolyard.gateway.http.sessions import HttpSession, HttpSessions
from toolyard.gateway.incoming_request import (
    ClientRequest,
    SendToClient,
    build_session_request,
    discard_message,
    is_jsonrpc_message,
    is_request_id,
)
from toolyard.protocol.constants import INVALID_REQUEST
from toolyard.protocol.eras import LEGACY
from toolyard.protocol.jsonrpc import Message, RequestId, RpcFailure, build_result_message
from toolyard.types.json_values import object_or_empty

__all__ = ["INVALID_MESSAGE", "LegacyHttp"]

INVALID_MESSAGE = RpcFailure(INVALID_REQUEST, "Invalid request: one JSON-RPC message is expected")

_STREAM_AFTER_SECONDS = 0.3
"""Delay after which a client gets a stream instead of waiting, so that it can resume."""
_SESSION_NOT_FOUND = -32001
"""The code of the official SDKs, which some clients check before they start a new session."""
_BATCH_PROTOCOL_VERSION = LEGACY.assumed_version
"""The only revision with batches; also the version of a request that names none."""
_MAX_BATCH_MESSAGES = 100


class LegacyHttp:
    """Answers requests of the legacy era. ``close`` ends sessions and streams."""

    def __init__(self, listeners: ListenRequests, sessions: HttpSessions) -> None:
        self._listeners = listeners
        self._sessions = sessions
        self._detached_tasks = BackgroundTasks()

    def end_listen_streams(self) -> None:
        """End the streams that only listen. Requests in progress are still answered."""
        self._sessions.end_listen_streams()

    async def close(self) -> None:
        await self._detached_tasks.close()
        await self._sessions.close()

    async def handle_batch(self, http: HttpExchange, endpoint: Endpoint, messages: list[object]) -> None:
        """Handle a batch: run its messages concurrently and answer them together."""
        http_session = self._find_session(http, endpoint)
        version = (
            http.headers.get("mcp-protocol-version", _BATCH_PROTOCOL_VERSION)
            if http_session is None
            else http_session.session.version
        )
        bodies = [each for each in messages if is_jsonrpc_message(each)]
        if (
            version != _BATCH_PROTOCOL_VERSION
            or not 0 < len(bodies) == len(messages) <= _MAX_BATCH_MESSAGES
            or any(body.get("method") == "initialize" for body in bodies)
        ):
            await http.respond_error(400, None, INVALID_MESSAGE)
            return
        asked: list[Message] = []
        for body in bodies:
            if "id" in body and body.get("method") is not None:
                asked.append(body)
            else:
                _handle_one_way_message(http_session, body)
        with DisconnectWatcher(http.receive):
            work = (self._handle_batch_request(endpoint, http_session, body) for body in asked)
            answers = [each for each in await asyncio.gather(*work) if each is not None]
            await http.respond(200, answers) if answers else await http.respond(202)

    async def _handle_batch_request(
        self, front: Endpoint, http_session: HttpSession | None, body: Message
    ) -> Message | None:
        """Return the response to one message of a batch, or None if the client cancelled it.

        Messages that precede the response go to the session's own stream.
        """
        request = _build_request(
            http_session,
            body,
            discard_message if http_session is None else http_session.standalone_stream.put,
        )
        work = asyncio.ensure_future(
            self._respond_into_stream(
                front, http_session, cast("RequestId", body["id"]), request, EventStream()
            )
        )
        try:
            await asyncio.wait((work,))
        finally:
            work.cancel()
        return None if work.cancelled() else work.result()

    async def handle_post(self, http: HttpExchange, endpoint: Endpoint, body: Message) -> None:
        """Handle one message."""
        method = body.get("method")
        if method == "initialize" and "id" in body:
            result, session = await endpoint.initialize(object_or_empty(body.get("params")))
            made = self._sessions.start(endpoint, session)
            answer = build_result_message(cast("RequestId", body["id"]), result)
            await http.respond(200, answer, {"Mcp-Session-Id": made.id})
            return
        http_session = self._find_session(http, endpoint)
        if method is None or "id" not in body:
            _handle_one_way_message(http_session, body)
            await http.respond(202)
        else:
            await self._handle_request(http, endpoint, http_session, body)

    async def _handle_request(
        self, http: HttpExchange, front: Endpoint, http_session: HttpSession | None, body: Message
    ) -> None:
        stream = EventStream() if http_session is None else http_session.open_stream()
        request = _build_request(http_session, body, stream.put)
        work = asyncio.ensure_future(
            self._respond_into_stream(front, http_session, cast("RequestId", body["id"]), request, stream)
        )
        with DisconnectWatcher(http.receive) as watched:
            more = asyncio.ensure_future(stream.wait_for_message())
            try:
                # A quick result is sent as plain JSON, which costs less than a stream. After a while a stream
                # is begun even without messages, because it has keepalives and can be resumed.
                pause = None if stream.name is None else _STREAM_AFTER_SECONDS
                await asyncio.wait((work, more), timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                read = True
                if work.done() and not work.cancelled() and not stream.has_started:
                    await http.respond(200, work.result())
                else:
                    # A request that the client cancelled gets no response, and its stream ends without one.
                    watched.primed = stream.name is not None
                    read = await stream.write_to(http.send)
                if not read:
                    # The client returned before its disconnection was noticed, and continues to read
                    # elsewhere.
                    self._detached_tasks.add(work)
                elif http_session is not None:
                    http_session.finish_stream(stream, was_read=True)
            except asyncio.CancelledError:
                if not watched.primed or not watched.gone:
                    work.cancel()
                else:
                    # The client knows how to resume, so the work continues.
                    self._detached_tasks.add(work)
                raise
            finally:
                more.cancel()

    async def _respond_into_stream(
        self,
        front: Endpoint,
        http_session: HttpSession | None,
        id: RequestId,
        request: ClientRequest,
        stream: EventStream,
    ) -> Message:
        """Answer a request, and put the response into the stream if the client is already reading it."""
        session = request.session
        task = asyncio.current_task()
        if session is not None:
            session.active_requests.append(request)
        try:
            if session is not None and task is not None:
                session.cancellable_requests.begin(id, task)
            answer = await front.respond(id, request)
        except asyncio.CancelledError:
            stream.end()
            raise
        finally:
            # A cancelled task keeps this frame, which must not refer to the task.
            task = None
            request.is_finished = True
            if session is not None:
                session.active_requests.remove(request)
                session.cancellable_requests.end(id)
        if stream.has_started:
            stream.put(answer)
            stream.end()
            if http_session is not None:
                http_session.finish_stream(stream, was_read=False)
        return answer

    def _find_session(self, http: HttpExchange, front: Endpoint) -> HttpSession | None:
        """Return the session that a request names, or None if it names none. Raises HttpRequestRejected."""
        id = http.headers.get("mcp-session-id")
        if id is None:
            return None
        found = self._sessions.find(id, front)
        if found is None:
            raise HttpRequestRejected(404, "Session not found", code=_SESSION_NOT_FOUND)
        return found

    async def handle_get(self, http: HttpExchange, endpoint: Endpoint) -> None:
        """Send a stream, from its beginning or from where it broke off."""
        http_session = self._find_session(http, endpoint)
        if http_session is None:
            raise HttpRequestRejected(405, "GET requires a session", {"Allow": "POST"})
        if not accepts_media_type(http.headers.get("accept", "*/*"), "text/event-stream"):
            raise HttpRequestRejected(406, "the client must accept text/event-stream")
        last = http.headers.get("last-event-id")
        found = (http_session.standalone_stream, None) if last is None else http_session.find_resumable(last)
        if found is None:
            # Not 404, which would tell the client that its session has ended.
            raise HttpRequestRejected(410, "the stream of this event has ended")
        stream, after = found
        with (
            DisconnectWatcher(http.receive),
            self._listeners.track(http.scope, stream.disconnect_reader),
        ):
            await stream.write_to(http.send, after=after)

    async def handle_delete(self, http: HttpExchange, endpoint: Endpoint) -> None:
        """End a session."""
        http_session = self._find_session(http, endpoint)
        if http_session is None:
            raise HttpRequestRejected(405, "DELETE requires a session", {"Allow": "POST"})
        await self._sessions.end(http_session)
        await http.respond(204)


def _build_request(
    http_session: HttpSession | None, body: Message, send_to_client: SendToClient
) -> ClientRequest:
    return build_session_request(
        body, LEGACY, None if http_session is None else http_session.session, send_to_client
    )


def _handle_one_way_message(http_session: HttpSession | None, body: Message) -> None:
    """Handle a response or a notification, which gets no answer."""
    if http_session is None:
        return
    method, params = body.get("method"), object_or_empty(body.get("params"))
    if method is None:
        http_session.session.receive_response(body)
    elif method == "notifications/cancelled":
        id = params.get("requestId")
        if is_request_id(id):
            http_session.session.cancellable_requests.cancel(id)
    elif method == "notifications/roots/list_changed":
        http_session.endpoint.gateway.manager.notify_roots_changed(http_session.session.key)
